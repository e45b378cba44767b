"""A7: models trained on D_det, tested on D and on D relabelled by t(y) = (y + 1) mod C.

not-bugs-2019, Appendix D.6, Table 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments import a2_random_and_deterministic_targets as a2
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import (
    add_published,
    keep_if_any_learned,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DERIVED_SETS = ("D_det", "D_det-robust")
TEST_SETS = {0: "D", 1: "relabelled D"}
SECTION = "not-bugs-2019, Appendix D.6 and Table 10"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A7 has no settings of its own."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """The evaluations of A2's models trained on D_det."""
    return [a2.evaluate_on(pieces, name, seed) for seed in pieces.study.seeds for name in DERIVED_SETS]


def _name_test_sets(results: Results) -> pd.DataFrame:
    return results.evaluations.assign(test_set=results.evaluations["label_shift"].map(TEST_SETS))


def table(results: Results) -> pd.DataFrame:
    """One line per training set and test set."""
    return add_published(
        summarise_seeds(_name_test_sets(results), ["row", "test_set", "eps"]), results, ["row", "test_set", "eps"]
    )


def figure(results: Results) -> Figure:
    """Two bars per training set: on D and on relabelled D."""
    from robustfeatures.experiments.shared.plots import grouped_bars
    from robustfeatures.experiments.shared.sources import name_source

    printed = results.comparable_rows
    rows = _name_test_sets(results)
    return grouped_bars(
        rows.assign(row=rows["row"].map(name_source)),
        group="row",
        bar="test_set",
        bar_label=lambda test_set: f"on {test_set}",
        xlabel="trained on",
        published=None if printed is None else printed.assign(row=printed["row"].map(name_source)),
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix D.6 on these rows."""

    def difference(row: str, more: int, less: int) -> pd.Series:
        rows = results.evaluations[results.evaluations["row"] == row]
        on = {shift: select_by_seed(rows, label_shift=shift) for shift in TEST_SETS}
        return keep_if_any_learned(on[more] - on[less], rows)

    return [
        Claim(
            "D_det made with a robust model teaches the permuted labels, by robust features",
            SECTION,
            "D_det-robust: accuracy on relabelled D minus accuracy on D",
            difference("D_det-robust", 1, 0),
        ),
        Claim(
            "D_det made with a standard model teaches the true labels rather than the permuted ones",
            SECTION,
            "D_det: accuracy on D minus accuracy on relabelled D",
            difference("D_det", 0, 1),
        ),
    ]


EXPERIMENT = Experiment(
    id="A7",
    title="Models of D_det on the relabelled test set",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "trained on"},
    caption=(
        "Clean accuracy of models trained on D_det, on the test split of D and on the same images relabelled by t(y) "
        "= (y + 1) mod C. The training is the one that the study gives D_det (B1 shows another). The source, "
        "standard or robust, is the network that D_det was made with. Bars are means, whiskers standard deviations, "
        "dots the seeds."
    ),
)
