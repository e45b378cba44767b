"""C7: linear classifiers of two classes, standard and adversarial. at-odds-2019, Appendix E, Figure 5 and Table 5."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from annotated_types import MinLen

from robustfeatures.engine.settings import Fraction, PositiveFloat, Strict
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import PAPER, STANDARD
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.training.settings import Adversary

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.claims import Claim

SOURCE = f"{PAPER}, Appendix E"
TRAININGS = (STANDARD, "adversarial")
TRAINED, EXACT = "gradient descent", "exact"
COLUMNS = ["training", "solver", "split", "eps"]
VALUES = ["accuracy", "l1_norm", "objective"]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """A data set of two classes and the network `linear`, as the study names them; the standard training; the radius.

    `fractions` are shares of pixels, most correlated first: the inputs of further standard classifiers (Appendix E.1).
    """

    data: str
    architecture: str
    training: str
    eps: PositiveFloat
    fractions: Annotated[tuple[Fraction, ...], MinLen(1)]


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
    """Columns training, solver, split, eps, seed, and each of `VALUES`."""
    rows = _with_all_pixels(results)
    found = rows[rows["quantity"] == "accuracy"].assign(accuracy=lambda found: percent(found["value"]))
    found = found[[*COLUMNS, "seed", "accuracy"]]
    for quantity in VALUES[1:]:
        one = rows[rows["quantity"] == quantity].rename(columns={"value": quantity})
        found = found.merge(one[["training", "solver", "seed", quantity]], on=["training", "solver", "seed"])
    return found


def table(results: Results) -> pd.DataFrame:
    """One line per training, solver, split and radius of the attack; the objective is that of the training split."""
    from robustfeatures.experiments.shared.summaries import add_published, summarise_seeds

    summary = summarise_seeds(
        _accuracies(results).sort_values(COLUMNS, ascending=[False, False, False, True]), COLUMNS, values=VALUES
    )
    return add_published(summary, results, COLUMNS, values=VALUES)


def figure(results: Results) -> Figure:
    """The three panels of Figure 5: weights by rank, weight against correlation, the most correlated pixels alone."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11.5, 3.4), layout="constrained")
    for axes, draw in zip(drawn.subplots(1, 3), (_weights, _correlations, _fractions), strict=True):
        draw(axes, results)
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

    for number, training in enumerate(TRAININGS):
        for style, solver in enumerate((TRAINED, EXACT)):
            sizes = _values_per_pixel(results, "weight", training, solver).abs().sort_values(ascending=False)
            axes.plot(
                range(1, len(sizes) + 1),
                sizes.to_numpy() / sizes.sum(),
                linestyle=STYLES[style],
                color=COLOURS[1 + number],
                label=f"{training}, {solver}",
            )
    log_axis(axes, "x")
    axes.set(xlabel="pixels by weight", ylabel="share of |w|_1")
    axes.legend(frameon=False, fontsize=7)


def _correlations(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS

    correlation = _values_per_pixel(results, "correlation")
    for number, training in enumerate(TRAININGS):
        weight = _values_per_pixel(results, "weight", training, TRAINED).abs()
        axes.plot(
            correlation,
            weight.reindex(correlation.index) / weight.sum(),
            MARKERS[number],
            color=COLOURS[1 + number],
            markersize=3,
            alpha=0.7,
            label=f"{training}, {TRAINED}",
        )
    axes.axvline(results.settings.eps, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="correlation with the label, |E[y x]|", ylabel="share of |w|_1")
    axes.legend(frameon=False, fontsize=7)


def _accuracy_per_subset(results: Results) -> pd.DataFrame:
    """Accuracy of the best standard classifier per number of pixels, split and radius, in columns of these."""
    rows = results.measurements
    rows = rows[(rows["quantity"] == "accuracy") & (rows["solver"] == EXACT) & (rows["training"] == STANDARD)]
    return percent(rows.pivot_table(index="pixels", columns=["split", "eps"], values="value"))


def _fractions(axes: Axes, results: Results) -> None:
    from robustfeatures.experiments.shared.plots.style import COLOURS, MARKERS, STYLES, log_axis

    subsets, eps = _accuracy_per_subset(results), results.settings.eps
    rows = _accuracies(results)
    robust = rows[(rows["training"] == "adversarial") & (rows["solver"] == TRAINED) & (rows["split"] == "test")]
    for number, (radius, name) in enumerate(((0.0, "clean"), (eps, f"Linf {eps:g}"))):
        colour = COLOURS[1 + number]
        shares = subsets.index.to_numpy() / subsets.index.max()
        axes.plot(shares, subsets["test", radius], marker=MARKERS[number], markersize=3.5, color=colour, label=name)
        mean = robust[robust["eps"] == radius]["accuracy"].mean()
        axes.axhline(mean, linestyle=STYLES[3], color=colour, label=f"{name}, adversarial training on all")
    log_axis(axes, "x")
    axes.set(xlabel="share of the pixels, most correlated first", ylabel="test accuracy (%)", ylim=(0, 102))
    # The lines leave no free corner for the legend.
    axes.legend(frameon=False, fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def claims(results: Results) -> list[Claim]:
    """The claims of Appendix E on Table 5 and Figure 5; trained classifiers give one value per seed."""
    rows = _accuracies(results)
    trained = rows[rows["solver"] == TRAINED]
    return [*_claims_on_all_pixels(results, trained), *_claims_on_few_pixels(results, trained)]


def _test_accuracy(trained: pd.DataFrame, training: str, eps: float) -> pd.Series:
    """Test accuracy by seed."""
    from robustfeatures.experiments.shared.summaries import select_by_seed

    return select_by_seed(trained, training=training, split="test", eps=eps)


def _claims_on_all_pixels(results: Results, trained: pd.DataFrame) -> list[Claim]:
    """The claims on Table 5 and Figure 5(b)."""
    from robustfeatures.experiments.shared.claims import Claim
    from robustfeatures.experiments.shared.summaries import select_by_seed

    eps = results.settings.eps

    def norm(training: str) -> pd.Series:
        return select_by_seed(trained, value="l1_norm", training=training, split="test", eps=0.0)

    weak = _weak_share(results)
    return [
        Claim(
            "Standard training is more accurate on clean images",
            f"{PAPER}, Table 5",
            "clean test accuracy: standard minus adversarial",
            list(_test_accuracy(trained, STANDARD, 0.0) - _test_accuracy(trained, "adversarial", 0.0)),
        ),
        Claim(
            "Adversarial training is more accurate under attack",
            f"{PAPER}, Table 5",
            f"test accuracy under Linf {eps:g}: adversarial minus standard",
            list(_test_accuracy(trained, "adversarial", eps) - _test_accuracy(trained, STANDARD, eps)),
        ),
        Claim(
            "Adversarial training has the smaller l1 norm (13.69 of 41.08)",
            f"{PAPER}, Table 5",
            "reduction of the l1 norm (%)",
            list(percent(1 - norm("adversarial") / norm(STANDARD))),
        ),
        Claim(
            "The robust classifier gives less of its weight to pixels whose correlation is below eps",
            f"{SOURCE} and Figure 5(b)",
            "share of |w|_1 on these pixels (%): standard minus adversarial",
            list(weak[STANDARD] - weak["adversarial"]),
        ),
    ]


def _claims_on_few_pixels(results: Results, trained: pd.DataFrame) -> list[Claim]:
    """The claims on Figure 5(c); the number of pixels is chosen on training images and evaluated on test images."""
    from robustfeatures.experiments.shared.claims import Claim

    eps, subsets = results.settings.eps, _accuracy_per_subset(results)
    few = subsets["train", eps].idxmax()
    everything = subsets.index.max()
    return [
        Claim(
            "With more than the most correlated pixels standard accuracy increases",
            f"{SOURCE}.1 and Figure 5(c)",
            f"clean test accuracy of standard training: on all pixels minus the {few} that are most robust on train",
            list(_test_accuracy(trained, STANDARD, 0.0) - subsets["test", 0.0][few]),
        ),
        Claim(
            "With more than the most correlated pixels robustness decreases",
            f"{SOURCE}.1 and Figure 5(c)",
            f"test accuracy under attack: on the {few} pixels that are most robust on train minus all {everything}",
            list(subsets["test", eps][few] - _test_accuracy(trained, STANDARD, eps)),
        ),
        Claim(
            "Standard training on few robust pixels attains better robustness than adversarial training",
            f"{SOURCE}.1",
            f"test accuracy under attack: on the {few} pixels that are most robust on train minus adversarial training",
            list(subsets["test", eps][few] - _test_accuracy(trained, "adversarial", eps)),
        ),
    ]


def _weak_share(results: Results) -> pd.DataFrame:
    """Per seed and training the share (percent) of |w|_1 on pixels whose correlation is below eps."""
    rows = results.measurements
    correlation = _values_per_pixel(results, "correlation")
    weak = correlation.index[correlation < results.settings.eps]
    weights = rows[(rows["quantity"] == "weight") & (rows["solver"] == TRAINED)]
    weights = weights.assign(size=weights["value"].abs(), weak=weights["pixel"].isin(weak))
    sizes = weights.groupby(["seed", "training"])["size"].sum()
    weak_sizes = weights[weights["weak"]].groupby(["seed", "training"])["size"].sum()
    return percent(weak_sizes / sizes).fillna(0.0).unstack("training")


EXPERIMENT = Experiment(
    id="C7",
    title="Linear classifiers of two classes",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Linear classifiers of two classes, standard and adversarial in Linf. Left: weights by size. Middle: weight "
        "against the correlation of the pixel with the label; the dotted line is eps. Right: the best standard "
        "classifier of the most correlated pixels alone, beside adversarial training on all. Accuracy under attack is "
        "exact: the worst image in the ball and in [0, 1]. In the table, objective is the mean loss on the training "
        "images (in the worst case for adversarial training) plus weight decay; exact is its least value, by "
        "scikit-learn (standard) and by L-BFGS-B on the closed form (adversarial)."
    ),
)
