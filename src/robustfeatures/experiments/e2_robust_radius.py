"""E2: the L2 radius that networks on clusters withstand, and how it depends on the number of clusters.

feature-averaging-2025, the theorems on averaged, hand-built and decoupled networks. The sweep over the number of
clusters and the dimension is not in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, MinLen

from robustfeatures.engine.settings import Strict
from robustfeatures.experiments.e1_feature_averaging import Settings as Training
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.theory.ideal_radii import OWN_CLASSES, ROBUST, SUMMED, TWO_CLASSES, ideal_radius

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

CURVES = "curves"
LEAST = "least perturbation"
SOURCE = "feature-averaging-2025, Theorem (Averaged Features are Non-robust Features)"
DECOUPLED = "feature-averaging-2025, Theorem (Feature-Decoupled Solutions)"

COMPARED = (
    (OWN_CLASSES, "The k-class network", DECOUPLED),
    (SUMMED, "The k-class network, its logits summed for each side,", DECOUPLED),
    (ROBUST, "f_robust", "feature-averaging-2025, There Exists the Robust Solution"),
)


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The networks of E1, the attacks on them, and the sweep.

    relative_radii: L2 radii over sqrt(d). sweep_clusters, sweep_dimensions: for each pair networks are trained with the
    other settings of `training`. Their cliff is the radius at which robust accuracy falls to one half.
    """

    training: Training = field(default_factory=Training)
    relative_radii: Annotated[Sequence[Annotated[float, Ge(0)]], MinLen(2)] = tuple(
        round(0.05 * number, 2) for number in range(21)
    )
    pgd_steps: Annotated[int, Ge(1)] = 40
    pgd_relative_step_size: Annotated[float, Gt(0)] = 0.1
    sweep_clusters: Annotated[Sequence[Annotated[int, Ge(2)]], MinLen(2)] = (2, 4, 6, 10, 16, 24, 36, 50)
    sweep_dimensions: Annotated[Sequence[Annotated[int, Ge(1)]], MinLen(1)] = (500, 1000, 2000, 5000, 10000)
    sweep_test_samples: Annotated[int, Ge(1)] = 200


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Per seed the curves at the size of `training`, and one part of the sweep for each dimension."""
    found = []
    for seed in pieces.study.seeds:
        asked = {
            **asdict(settings.training),
            "relative_radii": settings.relative_radii,
            "pgd_steps": settings.pgd_steps,
            "pgd_relative_step_size": settings.pgd_relative_step_size,
            "seed": seed,
        }
        recipe = pieces.measurement("clusters-radius", "theory.robust_radius", asked, {}, seed=seed)
        found.append(Need(CURVES, seed, recipe))
        for dimension in settings.sweep_dimensions:
            asked = {
                **asdict(settings.training),
                "clusters": settings.sweep_clusters,
                "dimension": dimension,
                "test_samples": settings.sweep_test_samples,
                "seed": seed,
            }
            recipe = pieces.measurement(f"clusters-cliffs-d{dimension}", "theory.robust_cliffs", asked, {}, seed=seed)
            found.append(Need(f"d = {dimension}", seed, recipe))
    return found


def _curves(results: Results) -> pd.DataFrame:
    rows = results.measurements
    part = rows[rows["row"] == CURVES]
    return part.assign(accuracy=percent(part["accuracy"]))


def _cliffs(results: Results) -> pd.DataFrame:
    """The sweep with `ratio` and `ideal_ratio`: measured and ideal cliffs over those of the 2-class network."""
    rows = results.measurements
    part = rows[rows["row"] != CURVES].astype({"clusters": int, "dimension": int})
    pair = ["clusters", "dimension", "seed"]
    two = part[part["network"] == TWO_CLASSES].set_index(pair)
    at = part.set_index(pair).index
    return part.assign(
        ratio=part["relative_cliff"].to_numpy() / two["relative_cliff"].reindex(at).to_numpy(),
        ideal_ratio=part["ideal"].to_numpy() / two["ideal"].reindex(at).to_numpy(),
    )


def table(results: Results) -> pd.DataFrame:
    """The cliff of every network of the sweep over sqrt(d), and over that of the 2-class network."""
    from robustfeatures.experiments.shared.summaries import summarise_seeds

    by = ["clusters", "dimension", "network", "ideal", "ideal_ratio"]
    found = _cliffs(results).round({"ideal": 4, "ideal_ratio": 4})
    return summarise_seeds(found, by, values=["relative_cliff", "ratio"])


def figure(results: Results) -> Figure:
    """Left: robust accuracy against the radius. Right: ratios of cliffs against the number of clusters."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import legend_above

    drawn = Figure(figsize=(9.0, 3.9), layout="constrained")
    left, right = drawn.subplots(1, 2)
    handles = _draw_curves(left, _curves(results), results.settings)
    _draw_ratios(right, _cliffs(results))
    legend_above(drawn, handles)
    return drawn


def _draw_curves(axes: Axes, rows: pd.DataFrame, settings: Settings) -> list[object]:
    """A line per network under the least perturbation, its closed form as a vertical line, and PGD as points."""
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, distinct, value_axis

    handles: list[object] = []
    training = settings.training
    for number, network in enumerate(distinct(rows["network"])):
        part = rows[rows["network"] == network]
        colour = COLOURS[1 + number]
        for attack in distinct(part["attack"]):
            mean = part[part["attack"] == attack].groupby("relative_radius")["accuracy"].mean()
            if attack == LEAST:
                handles += axes.plot(mean.index, mean, STYLES[number], color=colour, label=network)
            elif attack == "PGD":
                axes.plot(mean.index, mean, MARKERS[number], color=colour, markersize=3.5, fillstyle="none")
        closed = ideal_radius(network, training.clusters, training.dimension) / training.dimension**0.5
        axes.axvline(closed, color=colour, lw=0.6, linestyle=":")
    handles += axes.plot([], [], MARKERS[0], color="black", markersize=3.5, fillstyle="none", label="under PGD")
    handles += axes.plot([], [], color="black", lw=0.6, linestyle=":", label="closed form")
    value_axis(axes, "robust accuracy (%)")
    axes.set_xlabel("L2 radius over sqrt(d)")
    axes.set_title(f"k = {training.clusters}, d = {training.dimension}", fontsize=10)
    return handles


def _draw_ratios(axes: Axes, rows: pd.DataFrame) -> None:
    """Means over dimensions and seeds with the range over dimensions, beside sqrt(k) and the closed forms."""
    import numpy as np

    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, distinct, log_axis

    clusters = np.sort(rows["clusters"].unique())
    axes.plot(clusters, np.sqrt(clusters), color="grey", lw=1)
    for number, network in enumerate(distinct(rows["network"])):
        if network == TWO_CLASSES:
            continue
        part = rows[rows["network"] == network].groupby(["clusters", "dimension"])["ratio"].mean().unstack()
        colour = COLOURS[1 + number]
        spread = np.stack([part.mean(axis=1) - part.min(axis=1), part.max(axis=1) - part.mean(axis=1)])
        axes.errorbar(
            part.index, part.mean(axis=1), yerr=spread, fmt=MARKERS[number], color=colour, markersize=3.5, lw=0.8
        )
        closed = rows[rows["network"] == network].groupby("clusters")["ideal_ratio"].mean()
        axes.plot(closed.index, closed, color=colour, lw=0.6, linestyle=":")
    axes.text(clusters[-1], clusters[-1] ** 0.5, "sqrt(k)", ha="right", va="bottom", color="grey")
    for which in ("x", "y"):
        log_axis(axes, which)
    axes.set_xticks(clusters)
    axes.set_yticks([tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10) if tick < 1.1 * clusters[-1] ** 0.5])
    axes.set_xlabel("clusters k")
    axes.set_ylabel("cliff over that of the 2-class network")
    axes.set_title("mean and range over dimensions", fontsize=10)


def _exponents(rows: pd.DataFrame, network: str) -> list[float]:
    """Per seed the exponent of k in the ratio of cliffs: the slope of a log-log line over all pairs."""
    import numpy as np

    part = rows[rows["network"] == network]
    return [
        float(np.polyfit(np.log(each["clusters"]), np.log(each["ratio"]), 1)[0]) for _, each in part.groupby("seed")
    ]


def claims(results: Results) -> list[Claim]:
    """The claims of the theorems on radii; an order of magnitude is an exponent of k, within 0.1."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    curves, cliffs = _curves(results), _cliffs(results)
    radii = sorted(curves["relative_radius"].unique())
    beyond = next((r for r in radii if r >= 1.5 * results.settings.training.clusters**-0.5), radii[-1])
    at = curves[(curves["relative_radius"] == beyond) & (curves["attack"] == LEAST)]

    def advantage(network: str) -> list[float]:
        """Robust accuracy minus that of the 2-class network, mean over radii."""
        least = curves[curves["attack"] == LEAST].groupby(["network", "seed"])["accuracy"].mean()
        return list(least[network] - least[TWO_CLASSES])

    return [
        Claim(
            "Averaged features have nearly no robust accuracy at radii of the order of sqrt(d/k) (under 5 %)",
            SOURCE,
            f"2-class: 5 minus robust accuracy at radius {beyond:g} sqrt(d)",
            list(5 - select_by_seed(at, network=TWO_CLASSES)),
        ),
        *(
            Claim(
                f"{name} is more robust than the 2-class network",
                source,
                f"robust accuracy, mean over radii, {network} minus 2-class",
                advantage(network),
            )
            for network, name, source in COMPARED
        ),
        *(
            Claim(
                f"{name} has a cliff that differs from the 2-class network's by a factor of the order of sqrt(k)",
                source,
                f"10 minus the distance of the exponent of k in the ratio of cliffs from 1/2, in hundredths, {network}",
                [10 - percent(abs(exponent - 0.5)) for exponent in _exponents(cliffs, network)],
            )
            for network, name, source in COMPARED
        ),
    ]


EXPERIMENT = Experiment(
    id="E2",
    title="Robust radii of averaged and decoupled features",
    paper="feature-averaging-2025",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    units={"relative_cliff": "over sqrt(d)", "ideal": "over sqrt(d)"},
    caption=(
        "Left: accuracy on fresh points against the L2 radius, under the least perturbation found (lines) and under "
        "PGD (marks), with the closed forms for ideal features (dotted); the k-class network is right about the "
        "cluster (classes) or about its side by summed logits. Right: the radius at which accuracy falls to one half, "
        "over that of the 2-class network."
    ),
)
