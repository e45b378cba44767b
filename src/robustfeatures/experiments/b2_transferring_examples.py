"""B2: training on the examples of D_det that transfer to a second network, and on those that do not.

two-pathways-2021, Section 3, Figure 2 and Table 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.derived.settings import Transferring
from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.grid_rows import TEST_SETS, name_test_sets, varied_fields
from robustfeatures.experiments.shared.summaries import (
    add_published,
    keep_if_any_learned,
    select_by_seed,
    summarise_seeds,
)
from robustfeatures.pipeline.plan.pieces import DOWNSTREAM_SEED, Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 3 and Figure 2"
# The second network on the same data has random draws of its own.
SECOND_SEED = 2000
SETS = {"transferring": True, "not transferring": False}
SELECTION = "D, validation"
# So many points count as no difference.
WITHIN = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The grid of trainings on the two parts of D_det; D needs a validation split to choose cells."""

    grid: str
    """The grid of trainings on the two parts."""


def make_second_model(pieces: Pieces, training: str, seed: int, *, data: str = "D") -> Recipe:
    """A second network with a named training on D, or on another data set, and random draws of its own."""
    label = f"{pieces.data(data).label}-{training}-second"
    return pieces.model(label, training, seed, {"data": pieces.data(data)}, seed_offset=SECOND_SEED)


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Two evaluations per half, cell of the grid and seed: on validation and on test images of D."""
    found, cells = [], pieces.grid(settings.grid)
    derived = pieces.derived_set("D_det")
    for seed in pieces.study.seeds:
        examples = pieces.derived("D_det", seed)
        second = make_second_model(pieces, derived.source, seed, data=derived.source_data or "D")
        for row, transfers in SETS.items():
            name = f"D_det-{row.replace(' ', '-')}"
            method = Transferring(kind="transferring", transfers=transfers)
            label = f"{pieces.data().label}-{name}"
            half = pieces.derived_with(label, method, seed, {"data": examples, "source": second})
            for cell in cells:
                model = pieces.model(
                    f"{pieces.data().label}-on-{name}-{cell.name}",
                    cell.name,
                    seed,
                    {"data": half},
                    seed_offset=DOWNSTREAM_SEED,
                )
                chosen_on = pieces.clean_evaluation(model, split="validation")
                tested = pieces.clean_evaluation(model, label_shifts=tuple(TEST_SETS))
                found.append(Need(row, seed, chosen_on, {**cell.varied, "split": "validation"}))
                found.append(Need(row, seed, tested, {**cell.varied, "split": "test"}))
    return found


def _mark_chosen(results: Results) -> pd.DataFrame:
    """The rows with `test_set` and a column `chosen`: "yes" for the best cell of each part of D_det, else "no".

    The best cell has the highest mean validation accuracy on D over seeds; among equal cells it is the first.
    """
    rows = name_test_sets(results.evaluations)
    rows = rows.assign(test_set=rows["test_set"].mask(rows["split"] == "validation", SELECTION))
    fields = varied_fields(rows)
    means = rows[rows["test_set"] == SELECTION].groupby(["row", *fields], sort=False)["accuracy"].mean().reset_index()
    best = means.loc[means.groupby("row", sort=False)["accuracy"].idxmax(), ["row", *fields]]
    marked = rows.merge(best.assign(chosen="yes"), on=["row", *fields], how="left")
    return marked.fillna({"chosen": "no"})


def table(results: Results) -> pd.DataFrame:
    """One line per half, cell and set; `chosen` marks the cell with the best validation accuracy on D."""
    rows = _mark_chosen(results)
    by = ["row", *varied_fields(rows), "chosen", "test_set", "eps"]
    return add_published(summarise_seeds(rows, by), results, ["row", "test_set"])


def figure(results: Results) -> Figure:
    """Figure 2: the accuracies of the chosen cells on D and on D_shift."""
    from robustfeatures.experiments.shared.plots import grouped_bars

    rows = _mark_chosen(results)
    return grouped_bars(
        rows[(rows["chosen"] == "yes") & (rows["test_set"] != SELECTION)],
        group="row",
        bar="test_set",
        bar_label=lambda test_set: f"on {test_set}",
        xlabel="trained on examples of D_det",
    )


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3 on the chosen cells.

    Robust features push the accuracy on D below chance, because no label of D_det is true. A network without non-robust
    features gives the true class as often as any other class that is not t(y). With classes of equal size it is then
    right on D in (100 - accuracy on D_shift) / (C - 1) percent. With two classes there is no other class, and nothing
    to test.
    """
    rows = _mark_chosen(results)
    rows = rows[rows["chosen"] == "yes"]

    def on(row: str, test_set: str) -> pd.Series:
        return select_by_seed(rows, row=row, test_set=test_set)

    yes, no = SETS
    classes = rows["classes"].iloc[0]
    tested = {row: rows[(rows["row"] == row) & (rows["test_set"] != SELECTION)] for row in SETS}
    of_others = (100 - on(no, "D_shift")) / (classes - 1) - on(no, "D")
    return [
        Claim(
            "A model trained on the examples that transfer generalises to D rather than to D_shift",
            SECTION,
            "accuracy on D minus accuracy on D_shift",
            on(yes, "D") - on(yes, "D_shift"),
        ),
        Claim(
            "A model trained on the examples that do not transfer generalises to D_shift rather than to D",
            SECTION,
            "accuracy on D_shift minus accuracy on D",
            on(no, "D_shift") - on(no, "D"),
        ),
        Claim(
            "Examples that transfer contain more of the predictive non-robust features than those that do not",
            "two-pathways-2021, Section 3, Claim 1",
            "accuracy on D: transferring minus not transferring",
            keep_if_any_learned(on(yes, "D") - on(no, "D"), tested[yes]),
        ),
        Claim(
            "Examples that do not transfer contain no predictive non-robust features (the true class is given as often "
            f"as the mean of all classes but the next, within {WITHIN:g} points)",
            "two-pathways-2021, Section 3, Claim 1",
            "not transferring: mean share of all classes but the next, minus accuracy on D",
            keep_if_any_learned(of_others, tested[no]) if classes > 2 else [],
            -WITHIN,
        ),
    ]


EXPERIMENT = Experiment(
    id="B2",
    title="Examples that transfer, and examples that do not",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"row": "examples"},
    caption=(
        "Accuracy on the test split of D, and on it relabelled by t(y) = (y + 1) mod C (D_shift). The models were "
        "trained on the examples of D_det that a second network on D classifies as their target, and on the others. "
        "The figure shows the training with the best mean accuracy on the validation split of D; the table shows the "
        "whole grid. Bars are means, whiskers standard deviations, dots the seeds."
    ),
)
