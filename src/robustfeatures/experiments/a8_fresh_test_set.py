"""A8: models of D_rand and D_det on a test set that played no part in any choice.

not-bugs-2019, Appendix D.7, uses CIFAR-10.1 (Recht et al., 2019), because CIFAR-10's test split has been in use for a
decade. A study without a second collection can compare the split that its choices used with an unused split. This
detects choices that fit only their split, but it tests no other collection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from robustfeatures.data.settings import Split
from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.a2_random_and_deterministic_targets import LABEL_SHIFTS
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.pipeline.plan.recipe import Recipe

DERIVED_SETS = ("D_rand", "D_det")
SECTION = "not-bugs-2019, Appendix D.7"


@dataclass(frozen=True, kw_only=True)
class Sample(Strict):
    """A split of D or of another named data set with the same classes in the same order."""

    data: Name = "D"
    split: Split = "test"

    @property
    def shown(self) -> str:
        """The name in table and figure."""
        return self.data if self.data != "D" and self.split == "test" else f"{self.data} {self.split}"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The images that choices may have used, and the images that no choice used."""

    used: Sample = field(default_factory=Sample)
    fresh: Sample


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Two evaluations per training set and seed."""
    found = []
    for seed in pieces.study.seeds:
        models = {"D": pieces.source_model("standard", seed)}
        models |= {name: pieces.downstream_model(name, seed) for name in DERIVED_SETS}
        for sample in (settings.used, settings.fresh):
            found += [
                Need(row, seed, _evaluation(pieces, model, sample), {"test_set": sample.shown})
                for row, model in models.items()
            ]
    return found


def _evaluation(pieces: Pieces, model: Recipe, sample: Sample) -> Recipe:
    data = None if sample.data == "D" else pieces.data(sample.data)
    return pieces.evaluation(model, eps=(0.0,), label_shifts=LABEL_SHIFTS, data=data, split=sample.split)


def _clean(results: Results) -> pd.DataFrame:
    return results.evaluations[results.evaluations["label_shift"] == 0]


def table(results: Results) -> pd.DataFrame:
    """One line per training set and test set."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    columns = ["row", "test_set", "eps"]
    return add_published(summarise_seeds(_clean(results), columns), results, columns)


def figure(results: Results) -> Figure:
    """Two bars per training set: on the used images, and on the fresh images."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        _clean(results),
        group="row",
        bar="test_set",
        bar_label=lambda test_set: f"on {test_set}",
        xlabel="trained on",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.7 on these rows."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    rows = _clean(results)
    fresh = results.settings.fresh.shown
    chance = percent(1 / rows["classes"].iloc[0])
    return [
        Claim(
            f"A model trained on {name} generalises to images that no choice was made on",
            SECTION,
            f"accuracy on {fresh}: {name} minus chance",
            list(select_by_seed(rows, row=name, test_set=fresh) - chance),
        )
        for name in DERIVED_SETS
    ]


EXPERIMENT = Experiment(
    id="A8",
    title="A fresh test set",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Clean accuracy of models trained on D, D_rand and D_det, on images that choices may have used and on images "
        "that no choice used (see the legend). Bars are means, whiskers standard "
        "deviations, dots the seeds."
    ),
)
