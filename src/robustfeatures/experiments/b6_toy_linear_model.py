"""B6: gradient descent on the toy linear model: Theorems 1 and 2 over a grid, and the phase diagram.

two-pathways-2021, Section 5 and Appendix A. `theory/toy_linear_model.py` has the theorems, the threshold derived
from the closed form of w_T, and its differences from the printed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, Le, Lt, MinLen

from robustfeatures.engine.settings import PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 5 and Appendix A"
DERIVATION = "our derivation, in theory/toy_linear_model.py"
# Thresholds for "with high probability", percent of the cells, and for "approaches 1", percent of the sample.
HIGH = 95.0
FITTED = 99.9
# The closed form holds if no two examples share a noise coordinate. This is the largest expected number of such pairs.
MOST_SHARED = 0.01
VALUES = ("derived", "printed", "printed_as_read", "disputed", "first_step", "closed_form", "sample_accuracy")
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2, 5, 10, 20, 50, 100)
CELL = ["p", "examples", "seed", "k", "eps"]

Chance = Annotated[float, Gt(0), Lt(0.5)]
Ratio = Annotated[float, Gt(1)]
Size = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The phase diagrams, one for each p and n, over k and eps; and the curves. The paper prints no settings."""

    p: Annotated[tuple[Chance, ...], MinLen(1), Distinct] = (0.1, 0.3)
    """The values of p, the chance that l1 is -1."""
    simulated_examples: Annotated[tuple[PositiveInt, ...], MinLen(1), Distinct] = (100,)
    """The numbers n of examples for which gradient descent is run."""
    limit_examples: Annotated[tuple[PositiveInt, ...], Distinct] = (2000,)
    """The numbers n of examples for which the closed form of w_T gives the limit."""
    k_ends: tuple[Ratio, Ratio] = (1.05, 50.0)
    """The smallest and the largest k of a phase diagram."""
    k_values: Annotated[int, Ge(2)] = 40
    """The number of values of k, at equal ratios."""
    eps_ends: tuple[Size, Size] = (0.02, 0.98)
    """The smallest and the largest eps of a phase diagram."""
    eps_values: Annotated[int, Ge(2)] = 25
    """The number of values of eps, at equal ratios."""
    dimension: PositiveInt = 10**12
    """The dimension d. The proof takes it so large that no two examples share a noise coordinate."""
    relative_rate: Annotated[float, Gt(0), Le(1)] = 0.8
    """The learning rate as a share of Theorem 2's largest one."""
    steps_per_example: PositiveInt = 10
    """The steps of gradient descent over n."""
    curve_p: Chance = 0.1
    """The p of the curves."""
    curve_examples: PositiveInt = 100
    """The n of the curves."""
    curve_eps: Size = 0.3
    """The eps of the curves."""
    curve_k: Annotated[tuple[Ratio, Ratio], Distinct] = (1.05, 20.0)
    """The k of the curves, one on either side of the threshold."""

    def grid(self) -> dict[str, list[float]]:
        """k and eps of the phase diagrams, to six digits."""
        return {
            "k": _at_equal_ratios(self.k_ends, self.k_values),
            "eps": _at_equal_ratios(self.eps_ends, self.eps_values),
        }


def _at_equal_ratios(ends: tuple[float, float], count: int) -> list[float]:
    low, high = ends
    return [round(low * (high / low) ** (at / (count - 1)), 6) for at in range(count)]


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed, p and n, and one per seed for the curves.

    Raises:
        UserError: the dimension is too small for the numbers of examples, or one of these is listed twice.
    """
    both = set(settings.simulated_examples) & set(settings.limit_examples)
    if both:
        raise UserError(f"experiments.B6.limit_examples: {min(both)} is in simulated_examples too")
    _check_dimension(settings)
    same = {"dimension": settings.dimension, "relative_rate": settings.relative_rate}
    found = []
    last = {examples: [settings.steps_per_example * examples] for examples in settings.simulated_examples}
    last |= {examples: [] for examples in settings.limit_examples}
    for seed in pieces.study.seeds:
        for p in settings.p:
            for examples, steps in last.items():
                given = {**same, **settings.grid(), "p": p, "examples": examples, "steps": [1, *steps]}
                label = f"toy-linear-model-p{p:g}-n{examples}"
                found.append(_need(pieces, "phase diagram", label, given, seed))
        given = {**same, "k": settings.curve_k, "eps": [settings.curve_eps], "p": settings.curve_p}
        given |= {"examples": settings.curve_examples, "steps": _steps(settings)}
        found.append(_need(pieces, "curves", "toy-linear-model-curves", given, seed))
    return found


def _check_dimension(settings: Settings) -> None:
    most = max(*settings.simulated_examples, *settings.limit_examples, settings.curve_examples)
    # The expected number of pairs of examples that share a coordinate.
    shared = most * (most - 1) / 2 / settings.dimension
    if shared > MOST_SHARED:
        raise UserError(
            f"experiments.B6.dimension: {settings.dimension} is too small for {most} examples; "
            f"at least {ceil(shared * settings.dimension / MOST_SHARED)}"
        )


def _need(pieces: Pieces, row: str, label: str, given: dict[str, Any], seed: int) -> Need:
    recipe = pieces.simulation(label, "theory.toy_linear_model", given, seed)
    return Need(row, seed, recipe, columns={"p": given["p"], "examples": given["examples"]})


def _steps(settings: Settings) -> list[int]:
    """1, 2, 5, 10, 20 ... up to the last step."""
    last = settings.steps_per_example * settings.curve_examples
    marks = [factor * 10**power for power in range(len(str(last))) for factor in (1, 2, 5)]
    return [*(mark for mark in marks if mark < last), last]


def _judge_cells(results: Results) -> pd.DataFrame:
    """One row per cell and seed of the phase diagrams: the winning feature, and agreement with each rule in percent."""
    import numpy as np

    from robustfeatures.theory.toy_linear_model import first_step_bound, printed_threshold, threshold

    rows = results.measurements[results.measurements["row"] == "phase diagram"]
    cells = {
        name: chosen.set_index(CELL)
        for name, chosen in {
            "first": rows[rows["step"] == 1],
            "simulated": rows[(rows["step"] > 1) & np.isfinite(rows["step"])],
            "limit": rows[np.isinf(rows["step"])],
        }.items()
    }
    # For n without a simulation only the limit exists.
    last = cells["simulated"].combine_first(cells["limit"]).reset_index()
    p, k, eps, examples = (last[column].to_numpy() for column in ("p", "k", "eps", "examples"))
    ahead = {
        name: (part["nonrobust_weight"] > part["robust_weight"]).reindex(_index(last)) for name, part in cells.items()
    }
    wins = (last["nonrobust_weight"] > last["robust_weight"]).to_numpy()
    rules = {
        "derived": k >= threshold(p, eps, examples),
        "printed": k >= printed_threshold(p, eps, examples, power=2),
        "printed_as_read": k >= printed_threshold(p, eps, examples, power=1),
    }
    # A noise coordinate that an example and a fresh image share moves the accuracy by at most n / d.
    tolerance = examples / results.settings.dimension + 1e-8
    first_accuracy = cells["first"]["accuracy"].reindex(_index(last)).to_numpy()
    robust_first = ~ahead["first"].to_numpy(dtype=bool) & (np.abs(first_accuracy - (1 - p)) <= tolerance)
    simulated = ahead["simulated"].notna().to_numpy()
    judged: pd.DataFrame = last.assign(
        wins=percent(wins),
        **{name: percent(rule == wins) for name, rule in rules.items()},
        disputed=np.where(rules["derived"] != rules["printed"], percent(rules["derived"] == wins), np.nan),
        # Theorem 1 covers only the cells within its bound.
        first_step=np.where(eps <= first_step_bound(p, k), percent(robust_first), np.nan),
        closed_form=np.where(simulated, percent(ahead["limit"].to_numpy() == wins), np.nan),
        sample_accuracy=percent(last["sample_accuracy"]),
    )
    return judged


def _index(rows: pd.DataFrame) -> pd.MultiIndex:
    import pandas as pd

    return pd.MultiIndex.from_frame(rows[CELL])


def table(results: Results) -> pd.DataFrame:
    """One line per p and n: the share of cells in which each rule is right."""
    shares = _judge_cells(results).groupby(["p", "examples", "seed"], sort=False)[list(VALUES)].mean().reset_index()
    return summarise_seeds(shares, ["p", "examples"], values=VALUES)


def figure(results: Results) -> Figure:
    """Curves of both weights over the steps, and a phase diagram per p and n with the thresholds drawn in."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import WIDEST, legend_above

    settings: Settings = results.settings
    across, down = len(settings.p), len(settings.simulated_examples + settings.limit_examples)
    drawn = Figure(figsize=(min(3.6 + 2.9 * across, WIDEST), 0.9 + 2.4 * down), layout="constrained")
    halves: Any = drawn.subfigures(1, 2, width_ratios=(3.6, 2.9 * across))
    left, right = halves
    curves = results.measurements[results.measurements["row"] == "curves"]
    legend_above(left, _curves(left.subplots(2, 1, sharex=True), curves, settings))
    grid = right.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    judged = _judge_cells(results)
    for line, examples in zip(grid, settings.simulated_examples + settings.limit_examples, strict=True):
        for axes, p in zip(line, settings.p, strict=True):
            rows = judged[(judged["p"] == p) & (judged["examples"] == examples)]
            shown, handles = _phase(axes, rows, p, examples)
            how = "simulated" if examples in settings.simulated_examples else "limit of the samples"
            axes.set_title(f"p {p:g}, n {examples}, {how}", fontsize=8)
    right.supxlabel("k: the robust feature is wrong k times as often", fontsize=9)
    right.supylabel("eps: size of the non-robust feature (the robust one is 1)", fontsize=9)
    right.colorbar(shown, ax=list(grid.flat), label="non-robust feature wins (% of seeds)", fraction=0.05, pad=0.02)
    legend_above(right, handles)
    return drawn


def _curves(panels: Any, rows: pd.DataFrame, settings: Settings) -> list[Any]:
    """Draw both weights, a panel per k, and return the two lines of the last one."""
    from robustfeatures.experiments.shared.plots.lines import draw_mean
    from robustfeatures.experiments.shared.plots.style import log_axis

    ylabel, handles = "weight in the output", []
    for axes, (k, part) in zip(panels, rows.groupby("k"), strict=True):
        names = {"robust_weight": "w1, robust", "nonrobust_weight": "eps w2, non-robust"}
        handles = [
            draw_mean(axes, part, x="step", value=column, ylabel=ylabel, number=number, label=label)
            for number, (column, label) in enumerate(names.items())
        ]
        axes.set_title(
            f"k {k:g}, p {settings.curve_p:g}, n {settings.curve_examples}, eps {settings.curve_eps:g}", fontsize=9
        )
        axes.set_ylabel(ylabel)
    log_axis(axes, "x")
    axes.set_xlabel("gradient steps")
    return handles


def _phase(axes: Axes, rows: pd.DataFrame, p: float, examples: int) -> tuple[Any, list[Any]]:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patheffects import withStroke

    from robustfeatures.experiments.shared.plots.style import COLOURS, log_axis
    from robustfeatures.theory.toy_linear_model import first_step_bound, printed_threshold, threshold

    share = rows.pivot_table(index="eps", columns="k", values="wins", aggfunc="mean")
    k, eps = share.columns.to_numpy(), share.index.to_numpy()
    # The darkest grey is light enough for the lines to be visible.
    greys = LinearSegmentedColormap.from_list("greys", ["1.0", "0.4"])
    shown = axes.pcolormesh(k, eps, share.to_numpy(), cmap=greys, vmin=0, vmax=100, shading="nearest", lw=0)
    fine = np.geomspace(eps.min(), eps.max(), 2000)
    chance = np.full_like(fine, p)
    halo = [withStroke(linewidth=3, foreground="white")]
    lines = {
        "derived threshold": (threshold(chance, fine, examples), fine, COLOURS[4], "-"),
        "printed threshold": (printed_threshold(chance, fine, examples, power=2), fine, COLOURS[1], "--"),
        "Theorem 1 below": (k, first_step_bound(np.full_like(k, p), k), COLOURS[0], ":"),
    }
    handles = [
        axes.plot(along, up, color=colour, linestyle=style, lw=1.5, path_effects=halo, label=label)[0]
        for label, (along, up, colour, style) in lines.items()
    ]
    log_axis(axes, "x")
    log_axis(axes, "y")
    for axis, values in ((axes.xaxis, k), (axes.yaxis, eps)):
        axis.set_ticks([tick for tick in TICKS if values.min() <= tick <= values.max()])
    axes.set(xlim=(k.min(), k.max()), ylim=(eps.min(), eps.max()))
    return shown, handles


def claims(results: Results) -> list[Claim]:
    """Both theorems at the largest n, since they assume a large n, and the claims on simulated cells.

    The share of all cells in which a threshold is right depends on the grid; the table has it. A claim reads only the
    cells between the two thresholds.
    """
    settings: Settings = results.settings
    judged = _judge_cells(results)
    most = max(settings.simulated_examples + settings.limit_examples)
    shares = judged[judged["examples"] == most].groupby("seed")[list(VALUES)].mean()
    simulated = judged[judged["examples"].isin(settings.simulated_examples)].groupby("seed")[list(VALUES)].mean()
    cells = f"percent of the cells with n {most}"
    found = [
        (
            "Theorem 1: after one step the model relies on the robust feature and its population accuracy is 1 - p",
            f"both, {cells} within its bound",
            shares["first_step"],
            HIGH,
        ),
        (
            "Theorem 2: the sample accuracy approaches 1",
            "sample accuracy after the last step, mean over the simulated cells (percent)",
            simulated["sample_accuracy"],
            FITTED,
        ),
        (
            "The feature that wins by gradient descent is that of w_T = A'(A A')^-1 B (equation 10)",
            "the same feature wins, percent of the simulated cells",
            simulated["closed_form"],
            HIGH,
        ),
        (
            "Theorem 2, with the k_t that is printed: the non-robust feature wins if k >= k_t, else the robust one",
            f"50 minus the share where the derived k_t is right, {cells} between both k_t",
            50 - shares["disputed"],
            0.0,
        ),
    ]
    return [
        *(Claim(sentence, SECTION, quantity, values, least) for sentence, quantity, values, least in found),
        Claim(
            "Between the printed and the derived threshold, the derived one is right",
            DERIVATION,
            f"share where the derived k_t is right minus 50, {cells} between both k_t",
            shares["disputed"] - 50,
            control=True,
        ),
    ]


EXPERIMENT = Experiment(
    id="B6",
    title="The toy linear model",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units=dict.fromkeys(VALUES, "%"),
    caption=(
        "Left: the weights of the robust and the non-robust feature in the output during gradient descent, for a k "
        "below and above the threshold. Lines are means over seeds, bands standard deviations. Right: the winning "
        "feature in the limit (dark: the non-robust one). Lines: the threshold of Theorem 2, derived from the closed "
        "form and as printed, and the bound of Theorem 1. Below this bound the robust feature leads after one step. In "
        "the table each column is the share of cells in which a rule agrees with gradient descent. Column disputed: "
        "the cells between the two thresholds in which the derived one is right. Column first_step: the cells within "
        "Theorem 1's bound in which the robust feature wins, and the population accuracy is 1 - p. Column closed_form: "
        "those in which simulation and closed form have the same winner."
    ),
)
