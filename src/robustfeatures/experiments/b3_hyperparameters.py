"""B3: which hyper-parameters lead to which pathway, and where one turns into the other.

two-pathways-2021, Appendix C, Table 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.engine.settings import Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.grid_rows import AT_THE_END, varied, with_augmentation
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Probe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SECTION = "two-pathways-2021, Appendix C and Table 5"
DECAY = "weight_decay"
PROBES = (
    Probe(name="D", input="original", split="test", every=AT_THE_END),
    Probe(name="D_shift", input="original", split="test", label_shift=1, every=AT_THE_END),
)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The derived set, the grid, which varies the weight decay, and the architecture where it is not the study's."""

    derived: str = "D_det"
    grid: str
    architecture: str | None = None


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One model per cell and seed.

    Raises:
        UserError: the grid does not vary the weight decay.
    """
    cells = pieces.grid(settings.grid)
    if DECAY not in cells[0].varied:
        raise UserError(f"grids.{settings.grid}.cells: none varies {DECAY}, along which the pathways are told apart")
    return [
        Need(
            cell.name,
            seed,
            pieces.downstream_model(
                settings.derived, seed, training=cell.name, architecture=settings.architecture, probes=PROBES
            ),
            cell.varied,
        )
        for seed in pieces.study.seeds
        for cell in cells
    ]


def table(results: Results) -> pd.DataFrame:
    """One line per cell and set."""
    from robustfeatures.experiments.shared.summaries import over_seeds, with_published

    rows = with_augmentation(results.histories).rename(columns={"probe": "test_set"}).assign(eps=0.0)
    by = [*varied(rows), "test_set"]
    return with_published(over_seeds(rows, [*by, "eps"]), results, by)


def gaps(results: Results) -> pd.DataFrame:
    """The varied fields, seed, D and D_shift (percent), and `gap`, their difference; one line per cell and seed."""
    rows = with_augmentation(results.histories)
    wide = rows.pivot_table(index=[*varied(rows), "seed"], columns="probe", values="accuracy", sort=False)
    return wide.assign(gap=wide["D"] - wide["D_shift"]).reset_index()


def series(results: Results) -> pd.DataFrame:
    """Of `gaps` the lines along which the weight decay takes the most values, the rest alike, sorted by it."""
    rows = gaps(results)
    others = [field for field in varied(with_augmentation(results.histories)) if field != DECAY]
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

    line = series(results)
    crossing, low, high = crossing_of(line)
    rows = gaps(results)
    others = [field for field in varied(with_augmentation(results.histories)) if field != DECAY]
    return heat_map_with_transition(
        rows.assign(name=[_named(others, values) for values in rows[others].itertuples(index=False)]),
        line,
        column=DECAY,
        crossing=crossing,
        low=low,
        high=high,
    )


def _named(fields: list[str], values: tuple[object, ...]) -> str:
    return ", ".join(f"{field.replace('_', ' ')} {value}" for field, value in zip(fields, values, strict=True))


def crossing_of(line: pd.DataFrame) -> tuple[float, float, float]:
    """The weight decay at which the mean gap over seeds crosses zero, and its 95 % interval."""
    from robustfeatures.experiments.shared.turning_points import crossing_interval, transition

    curves = line.pivot_table(index="seed", columns=DECAY, values="gap")
    decays = curves.columns.to_numpy(dtype=float)
    return transition(decays, curves.mean().to_numpy()).crossing, *crossing_interval(decays, curves.to_numpy())


def claims(results: Results) -> list[Claim]:
    """What Appendix C says of the series."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.turning_points import transition

    line = series(results)
    curves = line.pivot_table(index="seed", columns=DECAY, values="gap")
    decays = curves.columns.to_numpy(dtype=float)
    crossing, low, high = crossing_of(line)
    turns = [transition(decays, curve) for curve in curves.to_numpy()]
    at = f"the two cross at weight decay {crossing:.3g}, 95 % interval over seeds {low:.3g} to {high:.3g} (bootstrap)"
    return [
        Claim(
            f"With weight decay {decays[0]:g} a network takes pathway 2: it learns robust features alone",
            SECTION,
            "accuracy on D_shift minus accuracy on D",
            list(-curves.iloc[:, 0]),
        ),
        Claim(
            f"With weight decay {decays[-1]:g} it takes pathway 1: it learns more non-robust than robust features",
            SECTION,
            f"accuracy on D minus accuracy on D_shift; {at}",
            list(curves.iloc[:, -1]),
        ),
        Claim(
            "The transition is sharp (the middle half of it is taken within half the weight decay at which they cross)",
            SECTION,
            "half of the crossing minus the width of the middle half, in percent of the largest weight decay",
            [percent((turn.crossing / 2 - (turn.ends - turn.begins)) / decays[-1]) for turn in turns],
        ),
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
    caption=(
        "Accuracy on the test split of D (non-robust) and on it relabelled by t(y) = (y + 1) mod C (D_shift, robust) "
        "after training on D_det with each cell of the grid. The heat map shows their difference, means over seeds. "
        "Beside it both along the weight decay where it takes most values; the line is where they cross, the band its "
        "95 % interval: isotonic regression of the difference, straight between the cells, bootstrap over seeds. A "
        "difference that never changes its sign counts as crossing at an end of the series."
    ),
)
