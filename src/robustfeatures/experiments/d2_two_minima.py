"""D2: the two global minima built by hand, one of non-robust and one of robust features.

adversarial-training-2025, Propositions 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.d1_feature_learning import ATTACKS, BAD, GOOD, PAPER
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import MINUS_SHARES, SHARES, percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Name
from robustfeatures.theory.settings import Patches

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D


# The accuracies to which the errors belong. The adversarial error is at least that of all attacks together, and at most
# the share of points for which a bound does not exclude every perturbation.
ACCURACIES = {
    "clean": "clean",
    **{name: name for name in ATTACKS},
    "all_attacks": "robust",
    "not_excluded": "certified",
}
DRAWN = {
    "clean": "clean",
    **{name: ATTACKS[name] for name in ("one_step", "rotated", "planted")},
    "all_attacks": "all attacks",
}
# A risk below this, in nats, is taken as vanished.
VANISHED = 0.01
BY = ["row", "minimum", "scale"]
# Smaller risks are not drawn.
LEAST_RISK = 1e-7


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """Named settings of the data (see D1), the scales gamma of the filters, and the test attacks."""

    settings: Annotated[Mapping[Name, Patches], MinLen(1)]
    """Settings of the data, by name; see D1."""
    scales: Annotated[Sequence[Annotated[float, Gt(0)]], MinLen(2)] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    """The scales gamma of the filters."""
    test_samples: Annotated[int, Ge(1)] = 100
    """The number of test points."""
    pgd_steps: Annotated[int, Ge(1)] = 10
    """The steps of PGD."""
    pgd_relative_step_size: Annotated[float, Gt(0)] = 0.25
    """The length of a step of PGD as a share of the radius."""
    pgd_random_starts: Annotated[int, Ge(0)] = 1
    """The number of random starts of PGD, beside the start at the point."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement of both minima at all scales per setting and seed."""
    found = []
    for name, constants in settings.settings.items():
        for seed in pieces.study.seeds:
            asked = {
                "constants": constants,
                "scales": settings.scales,
                "test_samples": settings.test_samples,
                "pgd_steps": settings.pgd_steps,
                "pgd_relative_step_size": settings.pgd_relative_step_size,
                "pgd_random_starts": settings.pgd_random_starts,
            }
            recipe = pieces.simulation(f"minima-{name}", "theory.patch_minima", asked, seed)
            found.append(Need(name, seed, recipe))
    return found


def _errors(results: Results) -> pd.DataFrame:
    """The rows with errors (percent) in place of accuracies."""
    rows = results.measurements
    return rows.assign(**{error: percent(1 - rows[accuracy]) for error, accuracy in ACCURACIES.items()})


def table(results: Results) -> pd.DataFrame:
    """Per setting, minimum and scale: empirical risk, risk without noise, and errors on fresh points."""
    return summarise_seeds(_errors(results), BY, values=["risk", "noiseless_risk", *ACCURACIES])


def figure(results: Results) -> Figure:
    """Per setting a column: the risk of both minima above, and below the errors of each under every attack."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import WIDEST, distinct, legend_above, log_axis

    rows = _errors(results)
    names, minima = distinct(rows["row"]), distinct(rows["minimum"])
    drawn = Figure(figsize=(min(3.0 * len(names) + 2.6, WIDEST), 7.0), layout="constrained")
    grid = drawn.subplots(1 + len(minima), len(names), sharey="row", squeeze=False)
    for column, name in enumerate(names):
        risks: list[Line2D] = []
        for number, minimum in enumerate(minima):
            part = rows[(rows["row"] == name) & (rows["minimum"] == minimum)].groupby("scale").mean(numeric_only=True)
            risks += _draw_risk(grid[0][column], part, minimum, number)
            errors = grid[1 + number][column]
            shown = _draw_errors(errors, part)
            errors.set_title(f"{minimum} minimum: error (%)", fontsize=9)
        grid[0][column].set_title(name, fontsize=10)
        grid[0][column].set_ylim(LEAST_RISK, 10)
        log_axis(grid[0][column], "y")
        log_axis(grid[0][column], "x")
        grid[0][column].set_xlabel("scale gamma")
        grid[-1][column].set_xlabel("scale gamma")
    grid[0][0].set_ylabel("empirical risk (nats)")
    drawn.colorbar(shown, ax=list(grid[1:].flat), label="error (%)", fraction=0.05, pad=0.02, shrink=0.6, aspect=15)
    legend_above(drawn, risks)
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


def _draw_errors(axes: Axes, part: pd.DataFrame) -> AxesImage:
    """The error in percent under each attack, a row, at each scale, a column: curves would hide each other."""
    from robustfeatures.experiments.shared.plots.matrices import COLOUR_MAP, write_numbers

    errors = part[list(DRAWN)].to_numpy(dtype=float).T
    drawn = axes.imshow(errors, cmap=COLOUR_MAP, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    write_numbers(drawn, errors, "{:.0f}".format)
    axes.set_yticks(range(len(DRAWN)), list(DRAWN.values()))
    axes.set_xticks(range(len(part)), [f"{scale:g}" for scale in part.index], rotation=45)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return drawn


def claims(results: Results) -> list[Claim]:
    """The claims of both propositions; each setting of the data is a setting of every sentence.

    The text has lost gamma, and Section 3 says that such minima exist. So an error is read at the scale that suits the
    proposition best, among those whose risk has vanished. Without such a scale the errors are not tested.
    """
    rows = _errors(results)
    return [claim for name in results.settings.settings for claim in _claims_of(name, rows[rows["row"] == name])]


def _claims_of(name: str, rows: pd.DataFrame) -> list[Claim]:
    def at_minimum(minimum: str) -> pd.DataFrame:
        return rows[rows["minimum"] == minimum]

    def errors(minimum: str, column: str) -> pd.DataFrame:
        """The errors, a row per seed and a column per scale; NaN where the risk has not vanished."""
        found = at_minimum(minimum)
        found = found.assign(error=found[column].where(found["risk"] < VANISHED))
        return found.pivot(index="seed", columns="scale", values="error")

    return [
        *(
            Claim(
                f"The empirical risk of the {minimum} minimum tends to 0 (under a hundredth of a nat)",
                f"{PAPER}, Proposition {number}",
                "minus the least risk over the scales (nats)",
                -at_minimum(minimum).groupby("seed")["risk"].min(),
                -VANISHED,
                name,
            )
            for minimum, number in (("non-robust", "3.1"), ("robust", "3.2"))
        ),
        Claim(
            "Non-robust features of another class fool the non-robust minimum (error above 95 %)",
            f"{PAPER}, Proposition 3.1",
            "error under rotated non-robust features, largest over the scales (%)",
            errors("non-robust", "rotated").max(axis=1),
            GOOD,
            name,
            bounds=SHARES,
        ),
        Claim(
            "The robust minimum withstands all attacks (error under 5 %)",
            f"{PAPER}, Proposition 3.2",
            "minus the error under all attacks together, least over the scales (%)",
            -errors("robust", "all_attacks").min(axis=1),
            -BAD,
            name,
            bounds=MINUS_SHARES,
        ),
        *(
            Claim(
                "The robust minimum withstands this attack alone (error under 5 %)",
                f"{PAPER}, Proposition 3.2",
                "minus the error under one attack, least over the scales (%)",
                -errors("robust", column).min(axis=1),
                -BAD,
                f"{name}, {label}",
                control=True,
                bounds=MINUS_SHARES,
            )
            for column, label in ATTACKS.items()
        ),
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
    units={"risk": "nats", "noiseless_risk": "nats", **dict.fromkeys(ACCURACIES, "%")},
    names={"row": "setting"},
    caption=(
        "Networks whose filters are all gamma times the non-robust or the robust feature of their class, against "
        "gamma. Above: empirical risk; marks are measured, lines the closed form without noise. Below: error on "
        "fresh points, clean and under attacks in the same ball. One step is one step of gradient ascent. Rotated: "
        "the attack turns the non-robust features of a point into those of another class. Planted: it adds the "
        "robust feature of another class to the other patches. Means over seeds."
    ),
)
