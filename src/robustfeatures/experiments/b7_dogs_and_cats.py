"""B7: dogs and cats with known features: the features that networks learn from flipped pairs.

two-pathways-2021, Section 2, Table 1 and Figure 3. `theory/dogs_and_cats.py` has the four features and the predictions
of Section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt, Len, Lt

from robustfeatures.engine.settings import PositiveFloat, PositiveInt, Strict
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.summaries import select_by_seed, summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.training.settings import Training

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SECTION = "two-pathways-2021, Section 2"
EYES, PIXEL = "eyes set to the new label", "pixel set to the new label"
ATTACKED = "PGD on a network of D"
SHORT = {"D": "D", EYES: "eyes set to\nnew label", PIXEL: "pixel set to\nnew label", ATTACKED: "PGD on a\nnetwork of D"}
FEATURES = ("snout", "dark eyes", "odd first pixel")

TRAINING = Training(epochs=30, batch_size=50, learning_rate=0.05, weight_decay=5e-4, schedule="constant")

Share = Annotated[float, Gt(0.5), Lt(1)]


@dataclass(frozen=True, kw_only=True)
class Settings(Strict):
    """The paper gives no numbers. With this radius the adversary can flip eyes and first pixel, but not the snout."""

    examples: PositiveInt = 1000
    """The number of training images."""
    test_examples: PositiveInt = 2000
    """The number of test images."""
    agreement: Annotated[tuple[Share, ...], Len(3, 3)] = (0.95, 0.9, 0.55)
    """How often snout, eyes and first pixel agree with the label."""
    amplitudes: Annotated[tuple[PositiveFloat, ...], Len(3, 3)] = (0.25, 0.08, 0.08)
    """The amplitudes of snout, eyes and first pixel, in pixels of [0, 1]."""
    noise: PositiveFloat = 0.05
    """The standard deviation of the noise on each pixel."""
    eps: PositiveFloat = 0.16
    """The Linf radius of the adversary."""
    width: PositiveInt = 32
    """The width of the network."""
    training: Training = TRAINING
    """The training of both networks."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """One measurement per seed: a network on D, and one on each set of flipped pairs."""
    return [
        Need(
            "networks",
            seed,
            pieces.simulation("dogs-and-cats", "theory.dogs_and_cats", asdict(settings), seed),
        )
        for seed in pieces.study.seeds
    ]


def _accuracies_in_percent(results: Results) -> pd.DataFrame:
    """The rows with accuracies in percent."""
    rows = results.measurements
    return rows.assign(value=rows["value"].mask(rows["quantity"] == "accuracy", percent(rows["value"])))


def _select_last_epoch(results: Results) -> pd.DataFrame:
    rows = _accuracies_in_percent(results)
    last: pd.DataFrame = rows[rows["epoch"] == rows["epoch"].max()]
    return last


def _shares(results: Results) -> pd.DataFrame:
    """Effects of the three features in percent of the sum of their sizes, since networks differ in scale."""
    rows = _select_last_epoch(results)
    rows = rows[(rows["quantity"] == "effect") & rows["feature"].isin(FEATURES)]
    total = rows["value"].abs().groupby([rows["trained_on"], rows["seed"]]).transform("sum")
    return rows.assign(share=percent(rows["value"] / total))


def table(results: Results) -> pd.DataFrame:
    """One line per training set, quantity and feature, after the last epoch."""
    return summarise_seeds(_select_last_epoch(results), ["trained_on", "quantity", "feature"], values=("value",))


def figure(results: Results) -> Figure:
    """Dogs and cats with their changes, the effects that each network learned, and the accuracy on D per epoch."""
    from matplotlib.figure import Figure

    from robustfeatures.experiments.shared.plots.style import legend_instead

    drawn = Figure(figsize=(8.4, 5.8), layout="constrained")
    halves: Any = drawn.subfigures(2, 1, height_ratios=(1, 2.7))
    above, below = halves
    _pets(above, results.settings)
    legends, (left, right) = below.subplots(2, 2, width_ratios=(1.5, 1), height_ratios=(1, 3.5))
    legend_instead(legends[0], _bars(left, _shares(results)))
    rows = _accuracies_in_percent(results)
    legend_instead(legends[1], _curves(right, rows[(rows["quantity"] == "accuracy") & (rows["feature"] == "D")]))
    return drawn


def _pets(place: Any, settings: Settings) -> None:
    """Images of a typical dog and a typical cat, as they are and as flipped pairs, without noise."""
    import numpy as np

    from robustfeatures.theory.dogs_and_cats import SIDE, Pets

    def image(features: Sequence[float]) -> Any:
        shown = Pets(np.array([features]), np.ones(1), np.zeros((1, SIDE, SIDE)))
        return shown.images(settings.amplitudes)[0, 0].numpy()

    pictures = {
        "dog": (1, 1, 1),
        "lighter eyes,\nlabel cat": (1, -1, 1),
        "even pixel,\nlabel cat": (1, 1, -1),
        "cat": (-1, -1, -1),
        "darker eyes,\nlabel dog": (-1, 1, -1),
        "odd pixel,\nlabel dog": (-1, -1, 1),
    }
    for axes, (title, features) in zip(place.subplots(1, len(pictures)), pictures.items(), strict=True):
        axes.imshow(image(features), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=8)
        axes.set(xticks=[], yticks=[])


def _bars(axes: Axes, rows: pd.DataFrame) -> list[Any]:
    """Draw the shares of the features in each network's effects, and return a handle per feature."""
    import numpy as np

    from robustfeatures.experiments.shared.plots.bars import draw_bars
    from robustfeatures.experiments.shared.plots.style import distinct

    sets, width, ylabel = distinct(rows["trained_on"]), 0.27, "effect on dog's score (% of all)"
    handles = []
    for number, feature in enumerate(FEATURES):
        found = [rows[(rows["trained_on"] == name) & (rows["feature"] == feature)]["share"].to_numpy() for name in sets]
        places = [place + (number - 1) * width for place in range(len(sets))]
        handles.append(draw_bars(axes, places, found, width, number, ylabel))
        handles[-1].set_label(feature)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(np.arange(len(sets)), [SHORT[name] for name in sets])
    axes.tick_params(axis="x", labelsize=8)
    axes.set(ylim=(-100, 100), ylabel=ylabel)
    axes.set_xlabel("trained on")
    return handles


def _curves(axes: Axes, rows: pd.DataFrame) -> list[Any]:
    """Draw the accuracy on D per epoch, and return a line per training set."""
    from robustfeatures.experiments.shared.plots.lines import draw_mean
    from robustfeatures.experiments.shared.plots.style import distinct, value_axis

    ylabel = "accuracy on D (%)"
    axes.set_xlabel("epoch")
    value_axis(axes, ylabel)
    return [
        draw_mean(
            axes,
            rows[rows["trained_on"] == name],
            x="epoch",
            value="value",
            ylabel=ylabel,
            number=number,
            label=f"trained on {name}",
        )
        for number, name in enumerate(distinct(rows["trained_on"]))
    ]


def claims(results: Results) -> list[Claim]:
    """The claims of Section 2 on the learned features, and inequalities (6) to (8), by which f4 is contaminated."""
    shares = _shares(results)
    effects = [
        ("Lighter eyes, new label: the network learns snout => cat", EYES, "snout", -1),
        ("Lighter eyes, new label: the network learns light eyes => cat", EYES, "dark eyes", 1),
        ("First pixel changed, new label: the network learns snout => cat", PIXEL, "snout", -1),
        ("First pixel changed, new label: the network learns dark eyes => cat", PIXEL, "dark eyes", -1),
        ("First pixel changed, new label: the network learns even pixel => cat", PIXEL, "odd first pixel", 1),
    ]
    learned = [
        Claim(
            sentence,
            SECTION,
            f"effect of {feature} towards {'dog' if sign > 0 else 'cat'} (percent of all)",
            sign * select_by_seed(shares, value="share", trained_on=trained_on, feature=feature),
        )
        for sentence, trained_on, feature, sign in effects
    ]
    return [*learned, *_accuracy_claims(results), *_contamination_claims(results)]


def _value(results: Results, trained_on: str, quantity: str, feature: str) -> pd.Series:
    """One quantity after the last epoch, by seed."""
    return select_by_seed(
        _select_last_epoch(results), value="value", trained_on=trained_on, quantity=quantity, feature=feature
    )


def _accuracy_claims(results: Results) -> list[Claim]:
    eyes = _value(results, EYES, "accuracy", "D")
    flipped = _value(results, PIXEL, "accuracy", "flipped D")
    return [
        Claim(
            "Since the eye colour is predictive, the network has non-trivial performance on D",
            SECTION,
            f"{EYES}: accuracy on D minus 50",
            eyes - 50,
        ),
        # With two classes the accuracy on flipped D is 100 minus that on D, so that both halves are one claim.
        Claim(
            "What is learned from a changed first pixel is not helpful on D, but useful on the flipped distribution",
            SECTION,
            f"{PIXEL}: accuracy on flipped D minus 50",
            flipped - 50,
        ),
    ]


def _contamination_claims(results: Results) -> list[Claim]:
    import pandas as pd

    def value(trained_on: str, quantity: str, feature: str) -> pd.Series:
        return _value(results, trained_on, quantity, feature)

    instead = value(PIXEL, "usefulness", "-snout + pixel") - value(PIXEL, "usefulness", "snout + pixel")
    preferred = value(PIXEL, "effect", "-snout + pixel") - value(PIXEL, "effect", "snout + pixel").abs()
    margins = [value("D", "usefulness", "odd first pixel"), -value("D", "robust usefulness", "odd first pixel")]
    weak = pd.concat(margins, axis=1).min(axis=1, skipna=False)
    contaminated = [
        ("f1 is robustly useful on D (equation 6)", value("D", "robust usefulness", "snout")),
        ("f3 is useful on D, but not robustly useful (equation 7: the smaller of both margins)", weak),
        ("f4 = f1 + f3 is useful on D", value("D", "usefulness", "snout + pixel")),
        ("f4 is not robustly useful on D (equation 8)", -value("D", "robust usefulness", "snout + pixel")),
        ("f4 is still correlated with the new label", value(PIXEL, "usefulness", "snout + pixel")),
        ("-f1 + f3 is more correlated with the new label than f4", instead),
        ("The network learns -f1 + f3 in preference to f4", preferred),
    ]
    return [
        *(
            Claim(sentence, f"{SECTION}, equations 6 to 8", "100 times the value or difference", percent(values))
            for sentence, values in contaminated
        ),
        Claim(
            "An attack on a network of D turns the eyes towards the new label (dogs get lighter eyes)",
            "two-pathways-2021, Section 3",
            f"{ATTACKED}: 100 times the usefulness of dark eyes for the new label",
            percent(value(ATTACKED, "usefulness", "dark eyes")),
        ),
    ]


EXPERIMENT = Experiment(
    id="B7",
    title="Dogs and cats with four known features",
    paper="two-pathways-2021",
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Above: the images, without their noise. Snout: the bright patch below; eyes: two patches above; first pixel: "
        "top left. Below left: the effect of each feature alone on the dog's score, as a share of all three. Networks "
        "were trained on D and on flipped pairs. Bars are means, whiskers standard deviations, dots the seeds. Below "
        "right: accuracy on D per epoch; bands are standard deviations over seeds. In the table, usefulness is E[t f] "
        "on the training set, for the label t (1 or -1) and the feature f. Robust usefulness is its least value in the "
        "Linf ball. Effect is half the change of the dog's score when the feature changes its sign. Accuracy is in "
        "percent, on D and on D with its labels flipped."
    ),
)
