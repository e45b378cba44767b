"""C4: gradients of the loss with respect to the input. at-odds-2019, Section 3, Figures 2 and 10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.derived.settings import LossGradient
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import NORM_NAMES, PAPER, STANDARD
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.perception import PerceptionSettings, make_networks, select_images
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Section 3 and Figure 2"
NUMBERS = ["alignment", "low_frequency", "density"]


@dataclass(frozen=True, kw_only=True)
class Settings(PerceptionSettings):
    """The settings that C4, C5 and C6 share."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Measurements of every seed; images and their gradients of the first seed."""
    data, first = select_images(pieces, settings), pieces.study.seeds[0]
    pictures = [
        Need(
            name,
            first,
            pieces.derived_with(
                f"{data.label}-gradients-{name}",
                LossGradient(kind="loss-gradient"),
                first,
                {"data": data, "source": model},
                splits=("test",),
            ),
        )
        for name, model in make_networks(pieces, settings, first).items()
    ]
    numbers = [
        Need(
            "gradients",
            seed,
            pieces.measurement(
                f"{data.label}-gradients",
                "measurements.loss_gradients",
                {"cutoff": settings.low_frequency},
                {"data": data, **make_networks(pieces, settings, seed)},
                seed=seed,
            ),
        )
        for seed in pieces.study.seeds
    ]
    return [Need("original", first, data), *pictures, *numbers]


def table(results: Results) -> pd.DataFrame:
    """One line per network."""
    from robustfeatures.experiments.shared.perception import average_over_images

    return summarise_seeds(average_over_images(results.measurements, ["model"], NUMBERS), ["model"], values=NUMBERS)


def figure(results: Results) -> Figure:
    """The images, and below them the gradients of each network, as in Figure 2."""
    from robustfeatures.experiments.shared.perception import TITLES, choose_images, class_labels, colour_blue_to_yellow
    from robustfeatures.experiments.shared.plots import ImageRow, image_grid
    from robustfeatures.pipeline.store.datasets import read_dataset

    sets = {row: read_dataset(path, "test", in_memory=False) for (row, _), path in results.payloads.items()}
    original = sets.pop("original")
    places = choose_images(original, results.settings.shown)
    labels = class_labels(original, original.labels[places])
    rows = [ImageRow("original", original.float_images(places), labels)]
    rows += [
        ImageRow(TITLES[name], colour_blue_to_yellow(gradients.float_images(places)))
        for name, gradients in sets.items()
    ]
    return image_grid({"": rows})


def claims(results: Results) -> list[Claim]:
    """The claims of Section 3 on the gradients, as numbers."""
    from robustfeatures.experiments.shared.perception import average_over_images

    per_seed = average_over_images(results.measurements, ["model"], NUMBERS)
    numbers = per_seed.pivot_table(index="seed", columns="model", dropna=False)
    robust = [norm for norm in NORM_NAMES if norm in results.settings.eps]
    found = []
    for norm in robust:
        name = NORM_NAMES[norm]
        found += [
            Claim(
                "Loss gradients of robust networks align better with features that people perceive",
                SOURCE,
                f"100 x cosine with the difference of class means: {name}-trained minus standard",
                percent(numbers["alignment", norm] - numbers["alignment", STANDARD]),
                setting=f"{name}-trained",
            ),
            Claim(
                "Loss gradients of standard networks are noisier than those of robust ones",
                SOURCE,
                f"energy in low frequencies (%): {name}-trained minus standard",
                percent(numbers["low_frequency", norm] - numbers["low_frequency", STANDARD]),
                setting=f"{name}-trained",
            ),
        ]
    if len(robust) == 2:
        found.append(
            Claim(
                "Loss gradients of Linf-trained networks tend to be sparser than those of L2-trained ones",
                SOURCE,
                "100 x |v|_1 / (sqrt(d) |v|_2): L2-trained minus Linf-trained",
                percent(numbers["density", "l2"] - numbers["density", "linf"]),
            )
        )
    return found


EXPERIMENT = Experiment(
    id="C4",
    title="Loss gradients",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Gradients of the loss with respect to test images, of a standard, an L2-trained and a Linf-trained network. "
        "Each is clipped at three of its standard deviations. For grey images, positive values are light yellow, "
        "negative ones dark blue, and zero is grey. The table has means over test images. Alignment is the cosine with "
        "the difference between the mean images of the likeliest other class and of the label's class. The column "
        "low_frequency is the share of energy in low frequencies. Density is |v|_1 / (sqrt(d) |v|_2), 1 if all pixels "
        "have the same size."
    ),
)
