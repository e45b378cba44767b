"""B5: generalisation of the non-robust features of one data set to another one with the same classes.

two-pathways-2021, Section 6, Table 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import above_chance, add_published, summarise_seeds
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 6 and Table 2"
WEAKER = " (two halves of one source: the weaker test)"


@dataclass(frozen=True, kw_only=True)
class CrossSet(Strict):
    """One of the two data sets."""

    data: str
    """D, or the name of a set of `other_data`."""
    training: str
    """The training on the data set."""
    derived: str = "D_det"
    """The entry of `derived` by which its D_det is made."""


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Two data sets with the same classes."""

    first: CrossSet
    """The first data set."""
    second: CrossSet
    """The second data set, with the same classes."""
    independent: bool = True
    """Whether the sets were drawn from different sources."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Models trained on each set and on its D_det, each evaluated on both test splits.

    Raises:
        UserError: both sets are the same.
    """
    sets = (settings.first, settings.second)
    if settings.first.data == settings.second.data:
        raise UserError(f"experiments.B5.second.data: {settings.second.data!r} is the first set too")
    found = []
    for seed in pieces.study.seeds:
        for each in sets:
            models = {
                each.data: pieces.source_model(each.training, seed, data=each.data),
                f"{each.data}, D_det": pieces.downstream_model(each.derived, seed, data=each.data),
            }
            for row, model in models.items():
                for other in sets:
                    evaluation = pieces.evaluation(model, eps=(0.0,), data=pieces.data(other.data))
                    found.append(Need(row, seed, evaluation, {"tested_on": other.data}))
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per training set and test set."""
    return add_published(
        summarise_seeds(results.evaluations, ["row", "tested_on", "eps"]), results, ["row", "tested_on", "eps"]
    )


def figure(results: Results) -> Figure:
    """One group of bars per training set, one bar per test set."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    return grouped_bars(
        results.evaluations,
        group="row",
        bar="tested_on",
        bar_label=lambda name: f"on {name}",
        xlabel="trained on" if results.settings.independent else "trained on (two halves of one source)",
        published=results.comparable_rows,
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 6 on the two models trained on D_det."""
    first, second = results.settings.first.data, results.settings.second.data
    weaker = "" if results.settings.independent else WEAKER
    return [
        Claim(
            "The non-robust features of one data set generalise to another",
            SECTION,
            f"accuracy on {target} after training on the D_det of {source}, minus chance",
            above_chance(results.evaluations, row=f"{source}, D_det", tested_on=target),
            setting=f"{source} to {target}{weaker}",
        )
        for source, target in ((first, second), (second, first))
    ]


EXPERIMENT = Experiment(
    id="B5",
    title="Transfer from one data set to another",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on"},
    caption=(
        "Clean accuracy on the test splits of two data sets with the same classes, of models trained on either and "
        "on the D_det of either. If both are halves of one source (see the claims), they share all peculiarities of "
        "the source, and the test is weaker. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
