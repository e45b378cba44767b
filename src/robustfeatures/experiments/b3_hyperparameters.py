"""B3: the hyper-parameters that lead to each pathway, and the transition between the pathways.

two-pathways-2021, Appendix C, Table 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.feature_shares import NEARLY_ALL, margin_over_nine_tenths
from robustfeatures.experiments.shared.grid_rows import TEST_SETS, name_test_sets, varied_fields
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.turning_points import Transition


SECTION = "two-pathways-2021, Section 4.2, Appendix C and Table 5"
TABLE = "two-pathways-2021, Appendix C and Table 5"
DECAY = "weight_decay"


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The trainings on D_det."""

    grid: str
    """The grid of trainings; it varies the weight decay."""
    architecture: str | None = None
    """A name of `other_architectures`; by default the network of the study."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One evaluation per cell and seed.

    Raises:
        UserError: the grid does not vary the weight decay.
    """
    cells = pieces.grid(settings.grid)
    if DECAY not in cells[0].varied:
        raise UserError(f"grids.{settings.grid}.cells: none varies {DECAY}, along which the pathways are told apart")
    found = []
    for seed in pieces.study.seeds:
        for cell in cells:
            model = pieces.downstream_model("D_det", seed, training=cell.name, architecture=settings.architecture)
            evaluation = pieces.clean_evaluation(model, label_shifts=tuple(TEST_SETS))
            found.append(Need(cell.name, seed, evaluation, cell.varied))
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per cell and set."""
    rows = name_test_sets(results.evaluations)
    by = [*varied_fields(rows), "test_set"]
    return add_published(summarise_seeds(rows, [*by, "eps"]), results, by)


def compute_gaps(results: Results) -> pd.DataFrame:
    """The varied fields, seed, D and D_shift (percent), and `gap`, their difference; one line per cell and seed.

    `learned` tells whether the network has learned D or D_shift.
    """
    rows = name_test_sets(results.evaluations)
    by = [*varied_fields(rows), "seed"]
    wide = rows.pivot_table(index=by, columns="test_set", values="accuracy", sort=False)
    learned = rows.groupby(by, sort=False)["learned"].any()
    return wide.assign(gap=wide["D"] - wide["D_shift"], learned=learned).reset_index()


def select_series(results: Results) -> pd.DataFrame:
    """The rows of `compute_gaps` that vary only the weight decay, with the most values of it, sorted by it."""
    rows = compute_gaps(results)
    others = [field for field in varied_fields(results.evaluations) if field != DECAY]
    if others:
        counts = rows.groupby(others, sort=False)[DECAY].transform("nunique")
        rows = rows[counts == counts.max()]
        first = rows.iloc[0]
        for field in others:
            rows = rows[rows[field] == first[field]]
    return rows.sort_values([DECAY, "seed"])


def figure(results: Results) -> Figure:
    """A heat map of the gap over all cells, and the two accuracies along the series with their crossing."""
    from robustfeatures.experiments.shared.plots.transitions import heat_map_with_transition

    line = select_series(results)
    crossing, low, high = find_crossing(fit_transitions(line))
    rows = compute_gaps(results)
    others = [field for field in varied_fields(results.evaluations) if field != DECAY]
    return heat_map_with_transition(
        rows.assign(name=[_name_cell(others, values) for values in rows[others].itertuples(index=False)]),
        line,
        column=DECAY,
        crossing=crossing,
        low=low,
        high=high,
    )


def _name_cell(fields: list[str], values: tuple[object, ...]) -> str:
    return ", ".join(f"{field.replace('_', ' ')} {value}" for field, value in zip(fields, values, strict=True))


def fit_transitions(line: pd.DataFrame) -> list[Transition]:
    """For each seed, where the gap crosses zero along the weight decay, among networks that have learned something."""
    from robustfeatures.experiments.shared.turning_points import fit_transition

    curves = (curve[curve["learned"]] for _, curve in line.groupby("seed"))
    return [fit_transition(curve[DECAY], curve["gap"]) for curve in curves]


def find_crossing(turns: Sequence[Transition]) -> tuple[float, float, float]:
    """The weight decay at which the gap crosses zero, mean over seeds, and its 95 % interval.

    NaN if the gap does not cross zero in every seed.
    """
    import numpy as np

    from robustfeatures.experiments.shared.intervals import confidence_interval

    crossings = [turn.crossing if turn.crosses else math.nan for turn in turns]
    return float(np.mean(crossings)), *confidence_interval(crossings)


def claims(results: Results) -> list[Claim]:
    """The claims of Section 4.2 and Appendix C on the cells without regularisation, and on the series."""
    line = select_series(results)
    turns = fit_transitions(line)
    crossing, low, high = find_crossing(turns)
    cross = math.isfinite(crossing)
    ends = f"95 % interval over seeds {low:.3g} to {high:.3g}"
    at = (
        f"the two cross at weight decay {crossing:.3g}, {ends}"
        if cross
        else "not tested: in a seed the two do not cross"
    )
    on_d = line.assign(D=line["D"].where(line["learned"])).pivot(index="seed", columns=DECAY, values="D")
    decays = on_d.columns.to_numpy(dtype=float)
    return [
        *_unregularised_claims(results),
        Claim(
            "With weight decay a network takes pathway 1: it learns non-robust features too",
            SECTION,
            f"accuracy on D: weight decay {decays[-1]:g} minus weight decay {decays[0]:g}",
            on_d.iloc[:, -1] - on_d.iloc[:, 0],
        ),
        Claim(
            "The transition is sharp (the middle half of it is taken within half the weight decay at which they cross)",
            SECTION,
            f"half of the crossing minus the width of the middle half, in percent of the largest weight decay; {at}",
            [percent((turn.crossing / 2 - (turn.ends - turn.begins)) / decays[-1]) for turn in turns] if cross else [],
            of_images=False,
        ),
    ]


def _unregularised_claims(results: Results) -> list[Claim]:
    """Pathway 2, one setting per cell without weight decay and without augmentation.

    Section 4.2 counts a high learning rate as regularisation too. Table 5 has pathway 2 at a rate of 0.1.
    """
    rows, classes = compute_gaps(results), int(results.evaluations["classes"].iloc[0])
    rows = rows[rows[DECAY] == 0]
    if "augmentation" in rows:
        rows = rows[rows["augmentation"].isin(["no", "none"])]
    others = [field for field in varied_fields(results.evaluations) if field != DECAY]
    fields = [field for field in others if field != "augmentation"]
    cells = [(_name_cell(fields, names), cell) for names, cell in rows.groupby(fields, sort=False)] if fields else []
    return [
        Claim(
            "Without weight decay and augmentation a network takes pathway 2: it learns almost only robust features "
            "(taken as nine tenths)",
            TABLE,
            NEARLY_ALL,
            margin_over_nine_tenths(cell["D_shift"], cell["D"], classes).where(cell["learned"]),
            setting=name,
        )
        for name, cell in cells or [("", rows)]
    ]


EXPERIMENT = Experiment(
    id="B3",
    title="Hyper-parameters and pathways",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    marks_published=False,
    caption=(
        "Accuracy on the test split of D (non-robust) and on it relabelled by t(y) = (y + 1) mod C (D_shift, robust). "
        "Networks were trained on D_det with each cell of the grid. The heat map shows their difference, means over "
        "seeds. Beside it: both accuracies along the weight decay, with the other fields fixed. The vertical line is "
        "their crossing, the mean over seeds, the band its 95 % interval (Student's t). In each seed it comes from "
        "isotonic regression of the difference, linear between the cells. There is a line only if the difference "
        "changes its sign in every seed."
    ),
)
