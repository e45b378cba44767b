"""D2: the two global minima built by hand, one of non-robust and one of robust features.

adversarial-training-2025, Propositions 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.d1_feature_learning import PAPER
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.theory.settings import PatchConstants

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from robustfeatures.experiments.shared.claims import Claim

ERRORS = {
    "clean": "clean",
    "one_step": "one step",
    "replaced": "replaced",
    "planted": "planted",
    "pgd": "PGD",
}
BY = ["row", "minimum", "scale"]
# Smaller risks are not drawn.
LEAST_RISK = 1e-7


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Named settings of the data (see D1), the scales gamma of the filters, and the test attacks."""

    settings: Annotated[Mapping[Name, PatchConstants], MinLen(1)]
    scales: Annotated[Sequence[Annotated[float, Gt(0)]], MinLen(2)] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    test_samples: Annotated[int, Ge(1)] = 100
    pgd_steps: Annotated[int, Ge(1)] = 10
    pgd_relative_step_size: Annotated[float, Gt(0)] = 0.25


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement of both minima at all scales per setting and seed."""
    found = []
    for name, constants in settings.settings.items():
        for seed in pieces.study.seeds:
            asked = {
                "constants": to_json(constants),
                "seed": seed,
                "scales": settings.scales,
                "test_samples": settings.test_samples,
                "pgd_steps": settings.pgd_steps,
                "pgd_relative_step_size": settings.pgd_relative_step_size,
            }
            recipe = pieces.measurement(f"minima-{name}", "theory.patch_minima", asked, {}, seed=seed)
            found.append(Need(name, seed, recipe))
    return found


def _errors(results: Results) -> pd.DataFrame:
    """The rows with errors (percent) in place of accuracies."""
    rows = results.measurements
    return rows.assign(**{name: percent(1 - rows[name]) for name in ERRORS})


def table(results: Results) -> pd.DataFrame:
    """Per setting, minimum and scale: empirical risk, risk without noise, and errors on fresh points."""
    from robustfeatures.experiments.shared.summaries import summarise_seeds

    return summarise_seeds(_errors(results), BY, values=["risk", "noiseless_risk", *ERRORS])


def figure(results: Results) -> Figure:
    """Per setting a column: the risk of both minima above, and their errors below, one panel per minimum."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import distinct, legend_above, log_axis

    rows = _errors(results)
    names, minima = distinct(rows["row"]), distinct(rows["minimum"])
    drawn = Figure(figsize=(3.0 * len(names) + 1.2, 6.6), layout="constrained")
    grid = drawn.subplots(1 + len(minima), len(names), sharex=True, sharey="row", squeeze=False)
    for column, name in enumerate(names):
        risks, errors = [], []
        for number, minimum in enumerate(minima):
            part = rows[(rows["row"] == name) & (rows["minimum"] == minimum)].groupby("scale").mean(numeric_only=True)
            risks += _draw_risk(grid[0][column], part, minimum, number)
            errors = _draw_errors(grid[1 + number][column], part)
            grid[1 + number][0].set_ylabel(f"{minimum} minimum:\nerror (%)")
        grid[0][column].set_title(name, fontsize=10)
        grid[0][column].set_ylim(LEAST_RISK, 10)
        log_axis(grid[0][column], "y")
        log_axis(grid[0][column], "x")
        grid[-1][column].set_xlabel("scale gamma")
    grid[0][0].set_ylabel("empirical risk (nats)")
    legend_above(drawn, [*risks, *errors])
    return drawn


def _draw_risk(axes: Axes, part: pd.DataFrame, minimum: str, number: int) -> list[Line2D]:
    """The measured risk as marks and the closed form as a line."""
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES

    colour = COLOURS[number]
    axes.plot(part.index, part["noiseless_risk"], linestyle=STYLES[number], color=colour, lw=1)
    # A risk that float32 rounds to 0 has no place on a logarithmic axis.
    seen = part[part["risk"] > LEAST_RISK]["risk"]
    label = f"{minimum} minimum"
    return axes.plot(
        seen.index, seen, linestyle="none", color=colour, marker=MARKERS[number], markersize=4, label=label
    )


def _draw_errors(axes: Axes, part: pd.DataFrame) -> list[Line2D]:
    """A line per attack, with hollow marks of different sizes, since many coincide."""
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES

    handles = []
    for number, (error, label) in enumerate(ERRORS.items(), start=2):
        handles += axes.plot(
            part.index,
            part[error],
            label=label,
            color=COLOURS[number % len(COLOURS)],
            linestyle=STYLES[number],
            marker=MARKERS[number],
            markersize=10 - number,
            fillstyle="none",
        )
    axes.set_ylim(-4, 104)
    return handles


def claims(results: Results) -> list[Claim]:
    """The claims of both propositions, for each setting at the largest scale."""
    rows = _errors(results)
    at = rows[rows["scale"] == rows["scale"].max()]
    return [claim for name in results.settings.settings for claim in _claims_of(name, at[at["row"] == name])]


def _claims_of(name: str, rows: pd.DataFrame) -> list[Claim]:
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    def found(minimum: str, column: str) -> pd.Series:
        return select_by_seed(rows, value=column, minimum=minimum)

    stated = [
        *(
            (
                f"The empirical risk of the {minimum} minimum tends to 0 (a hundredth nat at the largest scale)",
                f"Proposition {number}",
                f"{minimum} minimum: 1 minus the risk in hundredths of a nat",
                1 - percent(found(minimum, "risk")),
            )
            for minimum, number in (("non-robust", "3.1"), ("robust", "3.2"))
        ),
        (
            "Replaced non-robust features fool the non-robust minimum (error above 95 %)",
            "Proposition 3.1",
            "non-robust minimum: error under the replacement, minus 95",
            found("non-robust", "replaced") - 95,
        ),
        *(
            (
                f"The robust minimum withstands perturbations in the ball: {how} (error under 5 %)",
                "Proposition 3.2",
                f"robust minimum: 5 minus the error, {how}",
                5 - found("robust", column),
            )
            for column, how in (
                ("replaced", "replaced non-robust features"),
                ("one_step", "one step of gradient ascent"),
                ("pgd", "PGD"),
                ("planted", "planted robust features"),
            )
        ),
    ]
    return [
        Claim(sentence, f"{PAPER}, {where}", f"{name}, {quantity}", list(values))
        for sentence, where, quantity, values in stated
    ]


EXPERIMENT = Experiment(
    id="D2",
    title="Two minima built by hand",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"risk": "nats", "noiseless_risk": "nats", **dict.fromkeys(ERRORS, "%")},
    caption=(
        "Networks whose filters are all gamma times the non-robust or the robust feature of their class: empirical "
        "risk (above; marks are measured, lines the closed form without noise) and error on fresh points (below), "
        "clean and under four attacks in the same ball, against gamma. Means over seeds."
    ),
)
