"""A grid of trainings on derived sets, and the cell that validation data choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import MinLen

from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Need
from robustfeatures.experiments.shared.grid_rows import AFTER_LAST_EPOCH
from robustfeatures.pipeline.plan.pieces import DOWNSTREAM_SEED, Pieces
from robustfeatures.pipeline.study.parameters import Distinct, Name
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd

SELECTION, TEST = "validation", "D"


@dataclass(frozen=True, kw_only=True)
class Search(Strict):
    """A grid of the study, and a data set with a validation split: D, or a copy of it under `other_data`."""

    grid: Name
    """The grid of trainings."""
    data: Name = "D"
    """D, or the name of a copy of it in `other_data`, with a validation split."""
    chosen_on: Literal["derived", "original"] = "derived"
    """The validation split that chooses the cell: that of the derived set or that of D. The paper does not say which
    it took. Appendix D.4 argues that the first cannot predict the accuracy on D."""
    sets: Annotated[tuple[Name, ...], MinLen(1), Distinct] | None = None
    """The derived sets that the grid is searched for; by default all of the experiment."""

    def select_sets(self, derived_sets: Sequence[str], experiment: str) -> Sequence[str]:
        """The sets of an experiment that are searched.

        Raises:
            UserError: the experiment lacks one of `sets`.
        """
        missing = [name for name in self.sets or () if name not in derived_sets]
        if missing:
            known = ", ".join(derived_sets)
            raise UserError(f"experiments.{experiment}.search.sets: {missing[0]!r} is none of {known}")
        return self.sets or derived_sets

    @property
    def title(self) -> str:
        """What tables call the chosen cell."""
        return "best of the grid" + (" on validation images of D" if self.chosen_on == "original" else "")

    @property
    def probes(self) -> tuple[Probe, ...]:
        """The measurements after the last epoch: on the images that choose, and on the test images."""
        chosen_on = "data" if self.chosen_on == "derived" else "original"
        return (
            Probe(name=SELECTION, input=chosen_on, split="validation", every=AFTER_LAST_EPOCH),
            Probe(name=TEST, input="original", split="test", every=AFTER_LAST_EPOCH),
        )


def search_needs(
    pieces: Pieces,
    search: Search,
    derived_sets: Sequence[str],
    seed: int,
    *,
    experiment: str,
    architecture: str | None = None,
) -> list[Need]:
    """One network per cell of the grid and set, trained on those of an experiment's sets that are searched.

    The needs have the column `cell` and, if it is given, `architecture`, the study's name of another network.

    Raises:
        UserError: the data have no validation split, or the experiment lacks one of `search.sets`.
    """
    original = pieces.data(search.data)
    splits: tuple[Split, ...] | None = ("train", "validation") if search.chosen_on == "derived" else None
    columns = {} if architecture is None else {"architecture": architecture}
    found = []
    for name in search.select_sets(derived_sets, experiment):
        examples = pieces.derived(name, seed, data=search.data, splits=splits)
        for cell in pieces.grid(search.grid):
            parts = (original.label, architecture, f"on-{name}", cell.name)
            model = pieces.model(
                "-".join(part for part in parts if part),
                cell.name,
                seed,
                {"data": examples, "original": original},
                architecture=architecture,
                probes=search.probes,
                seed_offset=DOWNSTREAM_SEED,
            )
            found.append(Need(name, seed, model, {**columns, "cell": cell.name}))
    return found


def select_best_cells(histories: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The best cell for each value of the columns `by`: these columns and `cell`.

    The best cell has the highest mean accuracy over seeds on the validation split; among equal cells it is the first.
    """
    by = list(by)
    chosen = histories[histories["probe"] == SELECTION]
    means = chosen.groupby([*by, "cell"], sort=False)["accuracy"].mean().reset_index()
    best: pd.DataFrame = means.loc[means.groupby(by, sort=False)["accuracy"].idxmax(), [*by, "cell"]]
    return best
