"""C6: interpolations from an image to its large-radius adversarial example. at-odds-2019, Section 3, Figure 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robustfeatures.attacks.settings import NormName
from robustfeatures.engine.settings import PositiveInt
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Experiment, Need, Results
from robustfeatures.experiments.shared.at_odds import NORM_NAMES, PAPER, STANDARD
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.experiments.shared.perception import (
    LargeRadiusSettings,
    make_examples,
    make_interpolations,
    select_images,
)
from robustfeatures.experiments.shared.summaries import summarise_seeds
from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.checks import check_reach

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SOURCE = f"{PAPER}, Section 3 and Figure 4"
NUMBERS = ["width", "detour"]
PICTURES = 9


@dataclass(frozen=True, kw_only=True)
class Settings(LargeRadiusSettings):
    """What is interpolated, and how much of it is shown."""

    norm: NormName = "l2"
    """The norm of the examples."""
    shown: PositiveInt = 3
    """The number of interpolations shown for each network."""


def needs(pieces: Pieces, settings: Settings) -> list[Need]:
    """Measurements of every seed; images and adversarial examples of the first seed.

    Raises:
        UserError: the norm has no large radius, or its steps are too few or too short.
    """
    if settings.norm not in settings.large_eps:
        raise UserError(f"experiments.C6.large_eps: {settings.norm!r} is missing")
    check_reach(settings.large_steps, settings.large_relative_step_size, "experiments.C6.large_steps")
    first = pieces.study.seeds[0]
    shown = make_examples(pieces, settings, first, settings.norm)
    return [
        Need("original", first, select_images(pieces, settings)),
        *(Need(name, first, recipe) for name, recipe in shown.items()),
        *(
            Need("ways", seed, make_interpolations(pieces, settings, seed, settings.norm))
            for seed in pieces.study.seeds
        ),
    ]


def table(results: Results) -> pd.DataFrame:
    """One line per network."""
    from robustfeatures.experiments.shared.perception import average_over_images

    return summarise_seeds(average_over_images(results.measurements, ["model"], NUMBERS), ["model"], values=NUMBERS)


def figure(results: Results) -> Figure:
    """A block per network, a row per image, from the image on the left to the example on the right."""
    import numpy as np

    from robustfeatures.experiments.shared.perception import TITLES, choose_images, class_labels
    from robustfeatures.experiments.shared.plots import ImageRow, image_grid
    from robustfeatures.pipeline.store.datasets import read_dataset

    sets = {row: read_dataset(path, "test", in_memory=False) for (row, _), path in results.payloads.items()}
    original = sets.pop("original")
    places = choose_images(original, results.settings.shown)
    ((_, first),) = {key for key in results.payloads if key[0] == "original"}
    seen = results.measurements[results.measurements["seed"] == first].set_index(["model", "image"])["reached"]
    blocks = {}
    for name, reached_set in sets.items():
        blocks[TITLES[name]] = [
            ImageRow(
                "",
                np.linspace(begin, end, PICTURES, dtype=np.float32),
                [label, *[""] * (PICTURES - 2), reached],
            )
            for begin, end, label, reached in zip(
                original.float_images(places),
                reached_set.float_images(places),
                class_labels(original, original.labels[places]),
                class_labels(original, seen[name].loc[places]),
                strict=True,
            )
        ]
    return image_grid(blocks)


def claims(results: Results) -> list[Claim]:
    """A control: the paper shows that the images change smoothly, and has no number for it."""
    from robustfeatures.experiments.shared.perception import average_over_images

    per_seed = average_over_images(results.measurements, ["model"], NUMBERS)
    numbers = per_seed.pivot_table(index="seed", columns="model", dropna=False)
    return [
        Claim(
            "With robust networks the probability of the final class rises over a longer part of the way",
            f"control of {SOURCE}",
            "share of the way between one and nine tenths of the final class's probability (%): "
            f"{NORM_NAMES[norm]}-trained minus standard",
            percent(numbers["width", norm] - numbers["width", STANDARD]),
            setting=f"{NORM_NAMES[norm]}-trained",
            control=True,
        )
        for norm in results.settings.eps
    ]


EXPERIMENT = Experiment(
    id="C6",
    title="Interpolations between classes",
    paper=PAPER,
    needs=needs,
    settings=Settings,
    table=table,
    figure=figure,
    claims=claims,
    caption=(
        "Even steps from test images (with their class) to adversarial examples with a large radius (with the "
        "network's prediction). The table has means over the test images whose prediction changes. Width is the share "
        "of the interpolation on which the probability of the final class lies between 0.1 and 0.9. Detour is the "
        "total variation of this probability beyond its change from end to end."
    ),
)
