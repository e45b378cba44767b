"""C7: linear classifiers of two classes, standard and adversarial. at-odds-2019, Appendix E, Figure 5 and Table 5.

The adversary of Appendix E leaves the margin y (w x + b) - eps |w|_1, so it may move pixels out of [0, 1]. That of
adversarial training here is clipped to [0, 1]. Everything is measured with both. The classifier that is trained against
the adversary without clipping is an exact solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.attacks.settings import LinfRadius
from robustfeatures.engine.settings import Fraction, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import PAPER, STANDARD
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import add_published, select_by_seed, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.parameters import Distinct
from robustfeatures.training.settings import Adversary

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Appendix E"
TRAINED, EXACT = "gradient descent", "exact"
NO_ATTACK, CLIPPED, UNCLIPPED = "none", "clipped", "not clipped"
# Per attack the classifier that was trained against it, and how.
ROBUST = {CLIPPED: ("adversarial", TRAINED), UNCLIPPED: ("adversarial, not clipped", EXACT)}
# Per attack the best classifier against it.
BEST = {CLIPPED: ("adversarial", EXACT), UNCLIPPED: ROBUST[UNCLIPPED]}
SETTINGS = {CLIPPED: "adversary clipped to [0, 1]", UNCLIPPED: "adversary not clipped"}
COLUMNS = ["training", "solver", "split", "eps", "attack"]
VALUES = ["accuracy", "l1_norm", "objective"]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The data, the network and its training, and the radius."""

    data: str
    """The name in `other_data` of a set with two classes."""
    architecture: str
    """The name in `other_architectures` of the network `linear`."""
    training: str
    """The standard training."""
    eps: LinfRadius
    """The Linf radius."""
    fractions: Annotated[tuple[Fraction, ...], MinLen(1), Distinct]
    """Shares of pixels, most correlated first: the inputs of further standard classifiers (Appendix E.1)."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement of the exact optima, and per seed one of the two trained classifiers.

    Raises:
        UserError: the training has no weight decay.
    """
    plain = pieces.training(settings.training)
    if plain.weight_decay == 0:
        raise UserError(
            f"training.{settings.training}.weight_decay: must be above 0, or classes that a line separates have no "
            "best linear classifier"
        )
    # For a linear classifier one step of size eps along the gradient's sign is the strongest attack.
    worst = Adversary(norm="linf", eps=settings.eps, step_size=settings.eps, steps=1)
    trainings = {STANDARD: plain, "adversarial": replace(plain, adversary=worst)}
    data = pieces.data(settings.data)
    label = f"{data.label}-{settings.data}-{settings.architecture}"

    def trained(seed: int) -> dict[str, Recipe]:
        return {
            name: pieces.model(
                f"{label}-{settings.training}-{name}", each, seed, {"data": data}, architecture=settings.architecture
            )
            for name, each in trainings.items()
        }

    asked = {"eps": settings.eps, "decay": plain.weight_decay}
    first = pieces.study.seeds[0]
    exact = pieces.measurement(
        f"{label}-exact",
        "measurements.linear_solutions",
        {**asked, "fractions": settings.fractions},
        {"data": data},
        seed=first,
    )
    return [
        Need(EXACT, first, exact),
        *(
            Need(
                TRAINED,
                seed,
                pieces.measurement(
                    f"{label}-trained",
                    "measurements.linear_networks",
                    asked,
                    {"data": data, **trained(seed)},
                    seed=seed,
                ),
            )
            for seed in pieces.study.seeds
        ),
    ]


def _with_all_pixels(results: Results) -> pd.DataFrame:
    """The rows of classifiers with all pixels as input."""
    rows = results.measurements
    whole: pd.DataFrame = rows[rows["pixels"] == rows["pixels"].max()]
    return whole


def _accuracies(results: Results) -> pd.DataFrame:
    """Columns training, solver, split, eps, attack, seed, and each of `VALUES`."""
    rows = _with_all_pixels(results)
    found = rows[rows["quantity"] == "accuracy"].assign(accuracy=lambda found: percent(found["value"]))
    found = found[[*COLUMNS, "seed", "accuracy"]]
    for quantity in VALUES[1:]:
        one = rows[rows["quantity"] == quantity].rename(columns={"value": quantity})
        found = found.merge(one[["training", "solver", "seed", quantity]], on=["training", "solver", "seed"])
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per training, solver, split and attack; the objective is that of the training split."""
    ordered = _accuracies(results).sort_values(COLUMNS, ascending=[False, False, False, True, True])
    summary = summarise_seeds(ordered, COLUMNS, values=VALUES)
    return add_published(summary, results, COLUMNS, values=VALUES)


def figure(results: Results) -> Figure:
    """The three panels of Figure 5: weights by rank, weight against correlation, the most correlated pixels alone."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import WIDEST, legend_instead

    drawn = Figure(figsize=(WIDEST, 4.2), layout="constrained")
    above, below = drawn.subplots(2, 3, height_ratios=(1, 3))
    for legend, axes, draw in zip(above, below, (_weights, _correlations, _fractions), strict=True):
        draw(axes, results)
        legend_instead(legend, axes.get_legend_handles_labels()[0])
    return drawn


def _values_per_pixel(results: Results, quantity: str, training: str = "", solver: str = "") -> pd.Series:
    """One value per pixel, of the first seed."""
    rows = results.measurements
    rows = rows[(rows["quantity"] == quantity) & (rows["seed"] == rows["seed"].iloc[0])]
    if training:
        rows = rows[(rows["training"] == training) & (rows["solver"] == solver)]
    found: pd.Series = rows.set_index("pixel")["value"]
    return found


def _weights(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, STYLES, log_axis

    shown = [
        (STANDARD, TRAINED),
        (STANDARD, EXACT),
        ("adversarial", TRAINED),
        ("adversarial", EXACT),
        ROBUST[UNCLIPPED],
    ]
    for number, (training, solver) in enumerate(shown):
        sizes = _values_per_pixel(results, "weight", training, solver).abs().sort_values(ascending=False)
        axes.plot(
            range(1, len(sizes) + 1),
            sizes.to_numpy() / sizes.sum(),
            linestyle=STYLES[solver == EXACT],
            color=COLOURS[1 + number // 2],
            label=f"{training}, {solver}",
        )
    log_axis(axes, "x")
    axes.set(xlabel="rank of the pixel by weight", ylabel="share of |w|_1")


def _correlations(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS

    correlation = _values_per_pixel(results, "correlation")
    for number, (training, solver) in enumerate([(STANDARD, TRAINED), *ROBUST.values()]):
        weight = _values_per_pixel(results, "weight", training, solver).abs()
        axes.plot(
            correlation,
            weight.reindex(correlation.index) / weight.sum(),
            MARKERS[number],
            color=COLOURS[1 + number],
            markersize=3,
            alpha=0.7,
            label=f"{training}, {solver}",
        )
    axes.axvline(results.settings.eps, color="black", linewidth=0.8, linestyle=":", label="eps")
    axes.set(xlabel="correlation with the label, |E[y x]|", ylabel="share of |w|_1")


def _accuracy_per_subset(results: Results) -> pd.DataFrame:
    """Accuracy of the best standard classifier per number of pixels, split and attack, in columns of these."""
    rows = results.measurements
    rows = rows[(rows["quantity"] == "accuracy") & (rows["solver"] == EXACT) & (rows["training"] == STANDARD)]
    return percent(rows.pivot_table(index="pixels", columns=["split", "attack"], values="value"))


def _fractions(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, log_axis

    subsets = _accuracy_per_subset(results)
    shares = subsets.index.to_numpy() / subsets.index.max()
    for number, attack in enumerate((NO_ATTACK, CLIPPED, UNCLIPPED)):
        colour = COLOURS[1 + number]
        name = "clean" if attack == NO_ATTACK else f"Linf {results.settings.eps:g}, {attack}"
        label = f"standard, exact: {name}"
        axes.plot(shares, subsets["test", attack], marker=MARKERS[number], markersize=3.5, color=colour, label=label)
        # On clean images the classifier of the adversary that networks are trained against.
        robust = _list(_test_values(results, attack, *BEST.get(attack, BEST[CLIPPED])))
        axes.axhline(robust[0], linestyle=STYLES[3], color=colour)
    axes.plot([], [], linestyle=STYLES[3], color="black", label="adversarial, exact, on all pixels")
    log_axis(axes, "x")
    axes.set(xlabel="share of the pixels, most correlated first", ylabel="test accuracy (%)", ylim=(0, 102))


def _test_values(
    results: Results, attack: str, training: str, solver: str, *, value: str = "accuracy"
) -> pd.Series | float:
    """A value on the test split by seed, or the only one of an exact solution, which depends on no seed."""
    rows = _accuracies(results)
    found = select_by_seed(rows, value=value, training=training, solver=solver, split="test", attack=attack)
    return float(found.iloc[0]) if solver == EXACT else found


def _list(values: pd.Series | float) -> list[float]:
    """The values of a claim: one per seed, or one alone where both sides are exact."""
    return [values] if isinstance(values, float) else list(values)


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix E on Table 5 and Figure 5, with each adversary; one value per seed.

    Where only exact solutions are compared, there is one value, and so no interval.
    """
    found = []
    for attack in ROBUST:
        found += [
            *_claims_on_table_5(results, attack),
            *_claims_on_weak_pixels(results, attack),
            *_claims_on_few_pixels(results, attack),
        ]
    return found


def _claims_on_table_5(results: Results, attack: str) -> list[Claim]:
    source = f"{PAPER}, Table 5"

    def standard(attack: str, value: str = "accuracy") -> pd.Series | float:
        return _test_values(results, attack, STANDARD, TRAINED, value=value)

    def robust(under: str, value: str = "accuracy") -> pd.Series | float:
        return _test_values(results, under, *ROBUST[attack], value=value)

    # The problem is convex: all seeds may end at classifiers with the same predictions.
    images = int(results.measurements.query("split == 'test'")["total"].max())
    return [
        Claim(
            "Standard training is more accurate on clean images",
            source,
            "clean test accuracy: standard minus adversarial",
            _list(standard(NO_ATTACK) - robust(NO_ATTACK)),
            setting=SETTINGS[attack],
            images=images,
        ),
        Claim(
            "Adversarial training is more accurate under attack",
            source,
            f"test accuracy under Linf {results.settings.eps:g}: adversarial minus standard",
            _list(robust(attack) - standard(attack)),
            setting=SETTINGS[attack],
            images=images,
        ),
        Claim(
            "Adversarial training has the smaller l1 norm",
            source,
            "reduction of the l1 norm (%)",
            [percent(each) for each in _list(1 - robust(NO_ATTACK, "l1_norm") / standard(NO_ATTACK, "l1_norm"))],
            setting=SETTINGS[attack],
            of_images=False,
        ),
    ]


def _claims_on_weak_pixels(results: Results, attack: str) -> list[Claim]:
    """The claims on Figure 5(b): what the classifiers make of pixels whose correlation with the label is below eps."""
    source = f"{SOURCE} and Figure 5(b)"
    standard, robust = _weak_share(results, STANDARD, TRAINED), _weak_share(results, *ROBUST[attack])
    return [
        Claim(
            "The standard classifier gives weight even to weakly correlated pixels",
            source,
            "share of |w|_1 on pixels whose correlation is below eps (%): standard minus adversarial",
            _list(standard - robust),
            setting=SETTINGS[attack],
            of_images=False,
        ),
        Claim(
            "The robust classifier gives no weight to pixels whose correlation is below a threshold, dictated by eps",
            source,
            "1 minus the share (%) of |w|_1 on pixels whose correlation is below eps",
            _list(1 - robust),
            setting=SETTINGS[attack],
            of_images=False,
        ),
    ]


def _claims_on_few_pixels(results: Results, attack: str) -> list[Claim]:
    """The claims on Figure 5(c); the number of pixels is chosen on training images and evaluated on test images.

    All classifiers are exact solutions, those on all pixels too. Beside one of gradient descent a difference could come
    from the solver. Exact solutions depend on no seed: each claim has one value, so no interval, and is not tested.
    """
    source, subsets = f"{SOURCE}.1 and Figure 5(c)", _accuracy_per_subset(results)
    few, everything = subsets["train"][attack].idxmax(), subsets.index.max()
    gain, loss = (subsets["test"][each][everything] - subsets["test"][each][few] for each in (NO_ATTACK, attack))
    best = _list(_test_values(results, attack, *BEST[attack]))
    return [
        Claim(
            "With more than the most correlated pixels standard accuracy increases",
            source,
            f"clean test accuracy, exact: on all {everything} pixels minus on those most robust on train ({few})",
            [gain],
            setting=SETTINGS[attack],
        ),
        Claim(
            "With more than the most correlated pixels robustness decreases",
            source,
            f"test accuracy under attack, exact: on the pixels most robust on train ({few}) minus on all {everything}",
            [-loss],
            setting=SETTINGS[attack],
        ),
        Claim(
            "Standard training on few robust pixels attains better robustness than adversarial training",
            f"{SOURCE}.1",
            f"test accuracy under attack, exact: on the pixels most robust on train ({few}) minus adversarial training",
            [subsets["test"][attack][few] - value for value in best],
            setting=SETTINGS[attack],
        ),
    ]


def _weak_share(results: Results, training: str, solver: str) -> pd.Series | float:
    """Per seed the share (percent) of |w|_1 on pixels whose correlation is below eps; exact solutions as above.

    NaN if there is no such pixel, or all weights are 0.
    """
    rows = results.measurements
    correlation = _values_per_pixel(results, "correlation")
    weak = correlation.index[correlation < results.settings.eps]
    weights = rows[(rows["quantity"] == "weight") & (rows["training"] == training) & (rows["solver"] == solver)]
    weights = weights.assign(size=weights["value"].abs())
    sizes = weights.groupby("seed")["size"].sum()
    weak_sizes = weights[weights["pixel"].isin(weak)].groupby("seed")["size"].sum()
    found = percent(weak_sizes / sizes.where(sizes > 0))
    return float(found.iloc[0]) if solver == EXACT else found


EXPERIMENT = Experiment(
    id="C7",
    title="Linear classifiers of two classes",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    names={"l1_norm": "L1 norm"},
    marks_published=False,
    caption=(
        "Linear classifiers of two classes, standard and adversarial in Linf. Left: weights by size. Middle: weight "
        "against the correlation of the pixel with the label; the dotted line is eps. Right: the exact standard "
        "classifier of the most correlated pixels alone. Dotted levels are exact adversarial training on all pixels. "
        "Accuracy under attack is exact: clipped is the worst image in the ball and in [0, 1]. Not clipped is the "
        "worst in the ball, as in Appendix E of the paper. Adversarial training is against the clipped one, but on the "
        "right each level is against its own. In the table, objective is the mean loss on the training images plus "
        "weight decay. The loss of adversarial training is that of the worst case. Exact is the least objective: by "
        "scikit-learn (standard) and by L-BFGS-B on the closed form (adversarial)."
    ),
)
