"""The parts of an experiment, and the results that its functions read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def _no_rows() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True)
class Need:
    """One artifact that an experiment reads: its row in the table, its seed, and its recipe.

    `columns` are added to the measured rows: for example the varied fields of a grid's cell.
    """

    row: str
    seed: int
    recipe: Recipe
    columns: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """The measured rows of an experiment's needs, and its settings.

    evaluations: columns row, seed, metric, label_shift, eps, classes; accuracy (percent): the share of images that
        withstand all attacks; chance (percent): the share of the most frequent class among the images; learned: whether
        the accuracy says that the network has learned something (see `has_learned`).
    attacks: the same columns and attack, for eps above 0: the accuracy under this attack and those before it.
    diagnostics: columns row, seed, label_shift, eps, attack, diagnostic, count, total (see `masking`).
    histories: columns row, seed, epoch, probe, network ("itself", or one that the probe shows the same examples),
        accuracy (percent; of a performance correlation 100 times its value), loss, images.
    measurements: columns row, seed, and those of the measurement.
    All four also have the columns of their need.
    images: the files that say which images `evaluations` and `attacks` count, by the index of both; none where one of
        the evaluations has no such file.
    payloads: the data set or weights of each (row, seed).
    published: the rows that the paper prints (columns as in the table, accuracy in percent), their source and setting.
    comparable: whether the study has the paper's data set, whole, so that both fit in one row.
    notes: warnings about the measurements; table and figure print them.
    failed_gates: a line for each network or derived set that does not reach a gate of the study. If there is one, no
        claim is tested.
    norm: the norm of the evaluations' radii as text shows it ("L2", "Linf"); "eps" without attacks or with two norms.
    attack: norm and attacks of the evaluations as text shows them ("L2 PGD and random noise").
    """

    evaluations: pd.DataFrame
    histories: pd.DataFrame
    measurements: pd.DataFrame
    payloads: Mapping[tuple[str, int], Path]
    settings: Any
    attacks: pd.DataFrame = field(default_factory=_no_rows)
    diagnostics: pd.DataFrame = field(default_factory=_no_rows)
    # `ImageOutcomes` of `shared/resampling.py`, which imports this module.
    images: Sequence[Any] = ()
    published: pd.DataFrame | None = None
    published_source: str = ""
    published_setting: str = ""
    comparable: bool = False
    notes: Sequence[str] = ()
    failed_gates: Sequence[str] = ()
    norm: str = "eps"
    attack: str = "attack"

    def name_radius(self, eps: float) -> str:
        """What figures call the accuracy at a radius: "clean" at 0, else the norm and the radius."""
        return "clean" if eps == 0 else f"{self.norm} {eps:g}"

    @property
    def clean(self) -> pd.DataFrame:
        """The evaluations on unchanged images with the labels of their data set."""
        rows = self.evaluations
        return rows[(rows["eps"] == 0) & (rows["label_shift"] == 0)]

    @property
    def chance(self) -> float:
        """The best accuracy without a look at the images of the first evaluation, in percent.

        It is that of giving every image the most frequent class.
        """
        return float(self.evaluations["chance"].iloc[0])

    @property
    def comparable_rows(self) -> pd.DataFrame | None:
        """The paper's rows if the study has their data set, whole; else None."""
        return self.published if self.comparable else None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of a paper. `needs` runs without torch; the other functions run after all measurements.

    `table` returns identifying columns, then for each measured quantity x its mean `x` and, where they apply,
    `x_std`, `x_low`, `x_high`, `published_x` and `difference_x`, and `seeds` (see `summaries.summarise_seeds`). `units`
    are those of its columns; "%" is a share, whose interval stays within 0 to 100. `names` are the headings of columns
    that need more than their own name with spaces for underscores.
    `measured_claims` are those that read histories or measurements, where `claims` reads evaluations alone. With one
    seed only the latter have an interval, that over test images.
    `{attack}` in the caption stands for norm and attacks of the evaluations (`Results.attack`).
    `marks_published`: whether the figure marks published values where they are comparable; the table shows them anyway.
    """

    id: str
    title: str
    paper: str
    needs: Callable[[Pieces, Any], Sequence[Need]]
    settings: type
    table: Callable[[Results], pd.DataFrame] | None = None
    figure: Callable[[Results], Figure] | None = None
    claims: Callable[[Results], Sequence[Claim]] | None = None
    measured_claims: Callable[[Results], Sequence[Claim]] | None = None
    units: Mapping[str, str] = field(default_factory=lambda: {"accuracy": "%"})
    names: Mapping[str, str] = field(default_factory=lambda: {"row": "network"})
    caption: str = ""
    marks_published: bool = True

    def __post_init__(self) -> None:
        # The page of a study takes the warnings and the provenance of an experiment from one of them.
        if self.table is None and self.figure is None:
            raise UserError(f"{self.id}: the experiment has neither a table nor a figure; give it one")
