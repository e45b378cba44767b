"""C8: a distribution on which robustness is at odds with accuracy: Theorems 2.1 and 2.2.

at-odds-2019, Section 2 and Appendices C and D. `theory/robustness_at_odds.py` has the theorems and our differences
from the printed text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le, Lt, MinLen

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds
from robustfeatures.experiments.shared.units import SHARES, percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.parameters import Distinct

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SECTION = "at-odds-2019, Section 2"
# Accuracies are exact to float precision; percent.
EXACT = 1e-6
BOUND = "bound of Theorem 2.1"

Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """p and eta sqrt(d) are the paper's. It leaves open the dimension and the sample size, which are ours."""

    p: Annotated[float, Ge(0.5), Lt(1)] = 0.95
    """The chance that the first feature agrees with the label."""
    signal: PositiveFloat = 4.0
    """eta sqrt(d)."""
    dimension: PositiveInt = 400
    """The dimension d."""
    examples: Annotated[int, Ge(2)] = 5000
    """The number of examples."""
    relative_eps: Annotated[tuple[Annotated[float, Ge(0)], ...], MinLen(2), Distinct] = (
        *(0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75),
        *(2.0, 2.5, 3.0, 4.0, 4.95),
    )
    """The radii over eta."""
    training_eps: PositiveFloat = 2.0
    """The radius of the adversarial SVM over eta."""
    mixtures: Annotated[tuple[Share, ...], MinLen(1), Distinct] = tuple(at / 40 for at in range(41))
    """Linear classifiers, each by its share of a right angle from x1 to the average."""
    limits: Annotated[tuple[Annotated[float, Ge(0)], ...], MinLen(1), Distinct] = tuple(at / 4 for at in range(33))
    """Classifiers that use the average beyond the limit, and x1 elsewhere."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed, which draws the sample of the SVMs.

    Raises:
        UserError: the adversary of the SVM takes more than each feature is worth, so that its best weights are 0.
    """
    radius, worth = settings.training_eps * settings.signal / settings.dimension**0.5, 2 * settings.p - 1
    if settings.training_eps >= 1 and radius >= worth:
        raise UserError(
            f"experiments.C8.training_eps: {settings.training_eps:g} eta is a radius of {radius:.3g}, and x1 is worth "
            f"2 p - 1 = {worth:.3g}; the best robust SVM would have the weights 0; choose a smaller one"
        )
    return [
        Need(
            "classifiers",
            seed,
            pieces.simulation("robustness-at-odds", "theory.robustness_at_odds", asdict(settings), seed),
        )
        for seed in pieces.study.seeds
    ]


def _in_percent(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(clean=percent(rows["clean"]), robust=percent(rows["robust"]))


def table(results: Results) -> pd.DataFrame:
    """One line per classifier and radius, and the bound at the standard accuracies that the paper names."""
    import numpy as np
    import pandas as pd

    from robustfeatures.theory.robustness_at_odds import robust_accuracy_bound

    settings: Settings = results.settings
    rows = _in_percent(results.measurements).rename(columns={"robust": "accuracy"})
    rows = rows.assign(eps=(rows["eps"] * settings.dimension**0.5 / settings.signal).round(6))
    chosen = rows[~rows["classifier"].isin(["mixture", "gated"])]
    by = ["classifier", "source", "eps"]
    lines = [
        {
            "classifier": f"any of standard accuracy {clean} %",
            "source": f"{BOUND} for p {settings.p:g}",
            "eps": 2.0,
            "accuracy": percent(share),
        }
        for clean, share in zip((99, 96), robust_accuracy_bound(np.array([0.01, 0.04]), settings.p), strict=True)
    ]
    found = summarise_seeds(chosen, by)
    return add_published(pd.concat([found, pd.DataFrame(lines).round({"accuracy": 2})]), results, by)


def figure(results: Results) -> Figure:
    """Accuracy against the radius, and robust accuracy against standard error under the bound."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import legend_instead

    drawn = Figure(figsize=(8.2, 4.6), layout="constrained")
    above, below = drawn.subplots(2, 2, height_ratios=(1, 3.2))
    for legend, axes, draw in zip(above, below, (_against_radius, _under_the_bound), strict=True):
        draw(axes, results)
        legend_instead(legend, axes.get_legend_handles_labels()[0])
    return drawn


def _against_radius(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, value_axis

    rows = _in_percent(results.measurements)
    eta = results.settings.signal / results.settings.dimension**0.5
    curves = [
        ("averaging", "exact", "average of the weak features x2, x3, ..."),
        ("standard SVM", "sample", "standard SVM, trained on a sample"),
        ("adversarial SVM", "sample", "adversarial SVM, trained on a sample"),
        ("standard SVM", "distribution", "standard SVM, best on the distribution"),
    ]
    for number, (classifier, source, label) in enumerate(curves):
        part = rows[(rows["classifier"] == classifier) & (rows["source"] == source)]
        found = part.groupby("eps")["robust"].agg(["mean", "std"]).fillna(0.0)
        radii, middle = found.index.to_numpy() / eta, found["mean"].to_numpy()
        # Black is the bound in the other panel.
        style, colour = STYLES[number], COLOURS[1 + number]
        axes.plot(radii, middle, linestyle=style, color=colour, marker=MARKERS[number], markersize=3.5, label=label)
        ends = middle - found["std"].to_numpy(), middle + found["std"].to_numpy()
        axes.fill_between(radii, *ends, color=colour, alpha=0.2, lw=0)
    axes.axvline(2, color="0.6", lw=0.8, label="eps = 2 eta")
    axes.set_xlabel("Linf radius eps (units of eta)")
    value_axis(axes, "robust accuracy (%)")


def _under_the_bound(axes: Axes, results: Results) -> None:
    import numpy as np

    from robustfeatures.experiments.shared.plots.style import COLOURS
    from robustfeatures.theory.robustness_at_odds import robust_accuracy_bound

    settings: Settings = results.settings
    rows = _at_the_bound(results)
    errors = np.linspace(0, (1 - settings.p) * 1.15, 200)
    axes.plot(
        percent(errors),
        percent(robust_accuracy_bound(errors, settings.p)),
        color="black",
        label="bound: no classifier is above p delta / (1 - p)",
    )
    shown = [
        ("mixture", "weighted sums of x1 and the average", "o", COLOURS[6]),
        ("gated", "the average where it exceeds a limit, else x1", "x", COLOURS[5]),
    ]
    for classifier, label, marker, colour in shown:
        part = rows[(rows["classifier"] == classifier) & (rows["seed"] == rows["seed"].min())]
        axes.plot(
            *(percent(1 - part["clean"]), percent(part["robust"])),
            *(marker,),
            color=colour,
            markersize=4,
            markerfacecolor="none",
            linestyle="none",
            label=label,
        )
    axes.set(xlim=(0, percent(errors.max())), ylim=(0, 102))
    axes.set_xlabel("standard error delta (%)")
    axes.set_ylabel("robust accuracy at eps = 2 eta (%)")


def _at_the_bound(results: Results) -> pd.DataFrame:
    """The rows with eps >= 2 eta, which Theorem 2.1 covers."""
    eta = results.settings.signal / results.settings.dimension**0.5
    rows: pd.DataFrame = results.measurements[results.measurements["eps"] >= 2 * eta * (1 - 1e-9)]
    return rows


def claims(results: Results) -> list[Claim]:
    """The claims on the averaging classifier, and Theorems 2.1 and 2.2."""
    rows = _in_percent(_at_the_bound(results))
    return [*_claims_on_the_bound(results, rows), *_claims_on_averaging(rows), *_claims_on_machines(results, rows)]


def _select(rows: pd.DataFrame, classifier: str, source: str) -> pd.DataFrame:
    found: pd.DataFrame = rows[(rows["classifier"] == classifier) & (rows["source"] == source)]
    return found


def _claims_on_the_bound(results: Results, rows: pd.DataFrame) -> list[Claim]:
    from robustfeatures.theory.robustness_at_odds import robust_accuracy_bound

    p = results.settings.p
    slack = percent(robust_accuracy_bound(1 - rows["clean"].to_numpy() / 100, p)) - rows["robust"]
    # The mixture at no angle from x1 is x1 alone.
    first = rows[(rows["classifier"] == "mixture") & (rows["parameter"] == 0.0)].set_index("seed")
    return [
        Claim(
            "Theorem 2.1: standard accuracy 1 - delta implies robust accuracy of at most p delta / (1 - p)",
            SECTION,
            "bound minus robust accuracy, least over all classifiers and radii of at least 2 eta",
            slack.groupby(rows["seed"]).min(),
            threshold=-EXACT,
        ),
        Claim(
            "Theorem 2.1 is tight: at delta = 1 - p the classifier x1 attains standard and robust accuracy p",
            SECTION,
            "minus the largest distance of either accuracy from p, at eps = 2 eta",
            -_distance_from(first, percent(p)),
            threshold=-EXACT,
        ),
    ]


def _distance_from(rows: pd.DataFrame, accuracy: float) -> pd.Series:
    """The larger distance of standard and robust accuracy (percent) from an accuracy."""
    found: pd.Series = (rows[["clean", "robust"]] - accuracy).abs().max(axis=1)
    return found


def _claims_on_averaging(rows: pd.DataFrame) -> list[Claim]:
    averaging = _select(rows, "averaging", "exact").groupby("seed")
    return [
        Claim(
            "The averaging classifier has a standard accuracy above 99 %",
            SECTION,
            "standard accuracy",
            averaging["clean"].min(),
            threshold=99.0,
            bounds=SHARES,
        ),
        Claim(
            "The averaging classifier cannot get a robust accuracy better than 1 %",
            SECTION,
            "1 minus robust accuracy at eps = 2 eta",
            1 - averaging["robust"].max(),
        ),
    ]


def _claims_on_machines(results: Results, rows: pd.DataFrame) -> list[Claim]:
    """Theorem 2.2, which is on the minimum of the distribution's loss; controls: machines that saw a sample."""
    whole = _in_percent(results.measurements)
    # The adversarially trained machine has accuracy p against every eps < 1, below 2 eta too.
    whole = whole[whole["eps"] < 1]
    found = []
    for source, theorem, control in (("distribution", "Theorem 2.2", False), ("sample", "As in Theorem 2.2", True)):
        cited = f"control of {SECTION}" if control else SECTION
        standard = _select(rows, "standard SVM", source).groupby("seed")
        robust = _select(whole, "adversarial SVM", source)
        distance = _distance_from(robust, percent(results.settings.p)).groupby(robust["seed"]).max()
        found += [
            Claim(
                f"{theorem}: the soft-margin SVM has a standard accuracy above 99 %",
                cited,
                "standard accuracy",
                standard["clean"].min(),
                threshold=99.0,
                setting=source,
                bounds=SHARES,
                control=control,
            ),
            Claim(
                f"{theorem}: the soft-margin SVM has a robust accuracy below 1 %",
                cited,
                "1 minus robust accuracy at eps of at least 2 eta",
                1 - standard["robust"].max(),
                setting=source,
                control=control,
            ),
            Claim(
                f"{theorem}: the adversarially trained SVM has standard and robust accuracy p against any eps < 1",
                cited,
                "minus the largest distance of either accuracy from p",
                -distance,
                threshold=-EXACT,
                setting=source,
                control=control,
            ),
        ]
    return found


EXPERIMENT = Experiment(
    id="C8",
    title="Robustness at odds with accuracy",
    paper="at-odds-2019",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    marks_published=False,
    caption=(
        "Left: accuracy against an Linf adversary who may move every coordinate by eps (in units of eta), exact on the "
        "distribution. The classifiers are the averaging one and soft-margin SVMs. Lines are means over seeds, bands "
        "standard deviations. Right: the bound of Theorem 2.1 on robust accuracy at eps = 2 eta. The marks under it "
        "are classifiers that mix the robust feature x1 with the average of the others, linear and not."
    ),
)
