"""Shared by C4, C5 and C6: the three networks, the measured images, and pictures side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen
from pydantic import AfterValidator

from robustfeatures.attacks.settings import NormName, check_radii
from robustfeatures.data.settings import Subset
from robustfeatures.derived.settings import UntargetedAttack
from robustfeatures.engine.settings import Fraction, PositiveFloat, PositiveInt
from robustfeatures.experiments.shared.at_odds import STANDARD, AdversarialTrainings, make_network
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from robustfeatures.data.dataset import ImageDataset

RadiusPerNorm = Annotated[Mapping[NormName, PositiveFloat], MinLen(1), AfterValidator(check_radii)]
TITLES = {STANDARD: "standard", "l2": "L2-trained", "linf": "Linf-trained"}


@dataclass(frozen=True, kw_only=True)
class PerceptionSettings(AdversarialTrainings):
    """The training radii, and the images that are measured and shown."""

    eps: RadiusPerNorm
    """The training radius of each norm."""
    images: PositiveInt
    """The number of images of the test split that are measured."""
    references: PositiveInt
    """The number of images of the train split whose means stand for the classes."""
    shown: PositiveInt = 10
    """The number of images that the figure shows."""
    low_frequency: Fraction = 0.5
    """The share of the highest frequency up to which a frequency is low."""


@dataclass(frozen=True, kw_only=True)
class LargeRadiusSettings(PerceptionSettings):
    """The attack with a radius much larger than that of training, and the interpolations."""

    large_eps: RadiusPerNorm
    """The radius of the adversarial examples in each norm."""
    large_steps: PositiveInt = 60
    """The steps of PGD."""
    large_relative_step_size: PositiveFloat = 0.05
    """The length of a step as a share of the radius."""
    points: PositiveInt = 21
    """The number of images of an interpolation, both ends included."""


def select_images(pieces: Pieces, settings: PerceptionSettings) -> Recipe:
    """D with `references` images in its train split and `images` in its test split."""
    return pieces.data_with(
        f"{settings.images}-of-test",
        [
            Subset(kind="subset", split="train", samples=settings.references),
            Subset(kind="subset", split="test", samples=settings.images),
        ],
    )


def make_networks(pieces: Pieces, settings: PerceptionSettings, seed: int) -> dict[str, Recipe]:
    """The standard network and one per norm."""
    norms = list(settings.eps)
    found = {STANDARD: make_network(pieces, settings, seed, norms[0], 0.0)}
    return found | {norm: make_network(pieces, settings, seed, norm, eps) for norm, eps in settings.eps.items()}


def make_examples(pieces: Pieces, settings: LargeRadiusSettings, seed: int, norm: NormName) -> dict[str, Recipe]:
    """Adversarial examples of the test split with the large radius, against each of these networks."""
    data, eps = select_images(pieces, settings), settings.large_eps[norm]
    attack = UntargetedAttack(
        kind="untargeted-attack",
        norm=norm,
        eps=eps,
        step_size=settings.large_relative_step_size * eps,
        steps=settings.large_steps,
    )
    return {
        name: pieces.derived_with(
            f"{data.label}-against-{name}-{norm}-{eps:.4g}",
            attack,
            seed,
            {"data": data, "source": model},
            splits=("test",),
        )
        for name, model in make_networks(pieces, settings, seed).items()
    }


def make_interpolations(pieces: Pieces, settings: LargeRadiusSettings, seed: int, norm: NormName) -> Recipe:
    """The measurement of these examples and of the interpolations to them."""
    data = select_images(pieces, settings)
    made = make_examples(pieces, settings, seed, norm)
    roles = {name: f"examples-{name}" for name in made}
    return pieces.measurement(
        f"{data.label}-interpolations-{norm}",
        "measurements.interpolations",
        {"examples": roles, "cutoff": settings.low_frequency, "points": settings.points},
        {
            "data": data,
            **make_networks(pieces, settings, seed),
            **{roles[name]: recipe for name, recipe in made.items()},
        },
        seed=seed,
    )


def choose_images(dataset: ImageDataset, count: int) -> NDArray[np.int64]:
    """The first image of each class, then the second of each, up to `count` images; sorted by index."""
    import numpy as np

    from robustfeatures.experiments.shared.plots.samples import choose_of_each_class

    return np.sort(choose_of_each_class(dataset.labels, count))


def class_labels(dataset: ImageDataset, classes: Iterable[Any]) -> list[str]:
    """The names of these classes."""
    return [dataset.class_names[int(number)] for number in classes]


def colour_blue_to_yellow(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Colour grey pictures (n, 1, H, W) in [0, 1]: dark blue at 0, grey at 1/2, light yellow at 1.

    The paper uses red, white and blue, but red and blue look the same in a grey print. Pictures in colour stay as they
    are.
    """
    import numpy as np
    from matplotlib import colormaps

    from robustfeatures.experiments.shared.plots.matrices import COLOUR_MAP

    if pictures.shape[1] != 1:
        return pictures
    coloured = colormaps[COLOUR_MAP](pictures[:, 0])[..., :3]
    return coloured.transpose(0, 3, 1, 2).astype(np.float32)


def average_over_images(measurements: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Means over images of these values, per `by` (which includes "model") and seed, the standard network first.

    NaN values are left out.
    """
    means = measurements.groupby([*by, "seed"], sort=False)[values].mean().reset_index()
    return means.sort_values("model", key=lambda models: models.map(list(TITLES).index), kind="stable")
