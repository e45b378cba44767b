"""A13: two features; standard training uses both and is not robust, robust training ignores one and is robust.

not-bugs-2019, Section 4 and Appendix D.10, Figure 14. `theory/ignored_feature.py` has the conditions on the
distribution.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Len

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SECTION = "not-bugs-2019, Section 4, Appendix D.10 and Figure 14"
ACCURACIES = ("clean", "linf", "l2")


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The paper shows only a picture. These values make its claim true."""

    low: Annotated[tuple[PositiveFloat, ...], Len(2, 2)] = (0.3, 0.04)
    """The lower ends of y x1 and y x2."""
    high: Annotated[tuple[PositiveFloat, ...], Len(2, 2)] = (0.6, 0.44)
    """The upper ends of y x1 and y x2."""
    eps: PositiveFloat = 0.28
    """The radius of the adversary."""
    penalty: PositiveFloat = 1e-3
    """The factor of |w|^2 / 2."""
    examples: PositiveInt = 2000
    """The number of training points."""
    test_examples: PositiveInt = 20_000
    """The number of test points."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed, which draws the examples."""
    return [
        Need(
            "losses",
            seed,
            pieces.simulation("ignored-feature", "theory.ignored_feature", asdict(settings), seed),
        )
        for seed in pieces.study.seeds
    ]


def _accuracies_in_percent(results: Results) -> pd.DataFrame:
    """The rows with accuracies in percent."""
    rows = results.measurements
    return rows.assign(**{name: percent(rows[name]) for name in ACCURACIES})


def table(results: Results) -> pd.DataFrame:
    """One line per training and loss: the unit weights, the least margin under attack, and accuracies."""
    values = ("weight_1", "weight_2", "least_margin", *ACCURACIES)
    return summarise_seeds(_accuracies_in_percent(results), ["training", "loss"], values=values)


def figure(results: Results) -> Figure:
    """A sample of both classes, the boundaries that each loss learns, and the robust one with its band of eps."""
    import numpy as np
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import COLOURS, STYLES

    settings: Settings = results.settings
    drawn = Figure(figsize=(6.6, 5.0), layout="constrained")
    axes = drawn.subplots()
    generator = np.random.default_rng(0)
    signed = generator.uniform(settings.low, settings.high, (150, 2))
    handles: list[Any] = []
    for sign, marker, label in ((1, "+", "y = 1"), (-1, "_", "y = -1")):
        handles += axes.plot(*(sign * signed.T), marker, color="0.45", markersize=5, linestyle="none", label=label)
    standard = results.measurements[results.measurements["training"] == "standard"]
    for number, (loss, rows) in enumerate(standard.groupby("loss", sort=False)):
        # The band over seeds is one standard deviation of the boundary's angle.
        angles = np.arctan2(rows["weight_2"], rows["weight_1"])
        middle, spread = angles.mean(), angles.std() if len(angles) > 1 else 0.0
        ends = [_boundary(angle) for angle in (middle - spread, middle, middle + spread)]
        colour = COLOURS[1 + number]
        handles += axes.plot(*ends[1], color=colour, linestyle=STYLES[1 + number], label=f"standard, {loss}")
        for side in (0, 1):
            corners = [(0.0, 0.0), *(tuple(end[:, side]) for end in (ends[0], ends[2]))]
            axes.fill(*zip(*corners, strict=True), color=colour, alpha=0.2, lw=0)
    robust = results.measurements[results.measurements["training"] == "robust"]
    angle = float(np.arctan2(robust["weight_2"], robust["weight_1"]).mean())
    handles += axes.plot(*_boundary(angle), color="black", lw=2, label="robust, every loss")
    axes.axvspan(-settings.eps, settings.eps, color="0.85", zorder=0)
    reach = 1.15 * max(settings.high)
    # Both weights of every boundary are positive, so none passes where both features are.
    axes.annotate("", xy=(settings.eps, 0.85 * reach), xytext=(0, 0.85 * reach), arrowprops={"arrowstyle": "<->"})
    axes.text(settings.eps / 2, 0.87 * reach, f"eps {settings.eps:g}", ha="center", va="bottom", fontsize=8)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.set(xlabel="x1 (arbitrary units)", ylabel="x2 (arbitrary units)")
    drawn.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return drawn


def _boundary(angle: float) -> Any:
    """The ends (2, 2) of the line w'x = 0 for w at this angle, within the frame's reach; columns are points."""
    import numpy as np

    along = 1.5 * np.array([-np.sin(angle), np.cos(angle)])
    return np.stack([-along, along], axis=1)


def claims(results: Results) -> list[Claim]:
    """The claims of Section 4 on Figure 14."""
    rows = _accuracies_in_percent(results)

    def over(training: str, column: str, how: str) -> list[float]:
        return list(rows[rows["training"] == training].groupby("seed")[column].agg(how))

    return [
        Claim(
            "Any standard loss function learns an accurate classifier",
            SECTION,
            "clean accuracy, least over losses, minus 100",
            [value - 100 for value in over("standard", "clean", "min")],
            threshold=-1e-9,
        ),
        Claim(
            "Any standard loss function learns a classifier that is not robust",
            SECTION,
            "minus the least margin under the Linf attack over the whole distribution, times 100; least over losses "
            "and the classifier of largest margin",
            [-percent(value) for value in over("standard", "least_margin", "max")],
        ),
        Claim(
            "Robust training learns a perfectly accurate and perfectly robust decision boundary",
            SECTION,
            "least margin under the Linf attack over the whole distribution, times 100, least over losses",
            [percent(value) for value in over("robust", "least_margin", "min")],
        ),
        Claim(
            "Robust training forces the classifier to ignore x2",
            SECTION,
            "minus the share of |w2| in |w| (percent), largest over losses",
            [
                -percent(max(abs(low), abs(high)))
                for low, high in zip(over("robust", "weight_2", "min"), over("robust", "weight_2", "max"), strict=True)
            ],
            threshold=-1e-6,
        ),
    ]


EXPERIMENT = Experiment(
    id="A13",
    title="A feature that robust training ignores",
    paper="not-bugs-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units=dict.fromkeys(ACCURACIES, "%"),
    caption=(
        "Both features separate the classes, x2 by less than the adversary's Linf radius eps. Every standard loss, and "
        "the largest margin, use x2 and learn a slanted boundary, which is accurate but not robust. Robust training "
        "with each of the losses learns the vertical boundary, which is accurate and robust. In L2 no linear boundary "
        "is more robust than that of the largest margin, so the claims are about Linf. Grey: the points within eps of "
        "the vertical boundary. Lines are means over seeds, wedges standard deviations. The distribution is ours, "
        "because the paper shows only a picture."
    ),
)
