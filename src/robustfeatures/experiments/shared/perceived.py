"""What C4, C5 and C6 share: three networks, the images they are shown, and pictures side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from robustfeatures.attacks.settings import NormName
from robustfeatures.data.settings import Subset
from robustfeatures.derived.settings import UntargetedAttack
from robustfeatures.engine.settings import Fraction, PositiveFloat, PositiveInt
from robustfeatures.experiments.shared.at_odds import STANDARD, AdversarialTrainings, network
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from robustfeatures.data.dataset import ImageDataset

RadiusPerNorm = Annotated[Mapping[NormName, PositiveFloat], MinLen(1)]
TITLES = {STANDARD: "standard", "l2": "L2-trained", "linf": "Linf-trained"}


@dataclass(frozen=True, kw_only=True)
class Perceived(AdversarialTrainings):
    """The radius of training per norm; how many images are measured, and shown; what low frequencies are.

    Numbers are means over `images` of the test split. The mean image of a class is over `references` of the train
    split. Frequencies up to `low_frequency` times the highest are low.
    """

    eps: RadiusPerNorm
    images: PositiveInt
    references: PositiveInt
    shown: PositiveInt = 10
    low_frequency: Fraction = 0.5


@dataclass(frozen=True, kw_only=True)
class Enlarged(Perceived):
    """The radius of the examples per norm, much larger than that of training, and how PGD gets there.

    `points` is how many images an interpolation has, both ends included.
    """

    large_eps: RadiusPerNorm
    large_steps: PositiveInt = 60
    large_relative_step_size: PositiveFloat = 0.05
    points: PositiveInt = 21


def measured_images(pieces: Pieces, settings: Perceived) -> Recipe:
    """D with as many images in its train and test splits as the settings ask for."""
    return pieces.data_with(
        f"{settings.images}-of-test",
        [
            Subset(kind="subset", split="train", samples=settings.references),
            Subset(kind="subset", split="test", samples=settings.images),
        ],
    )


def networks(pieces: Pieces, settings: Perceived, seed: int) -> dict[str, Recipe]:
    """The standard network and one per norm."""
    norms = list(settings.eps)
    found = {STANDARD: network(pieces, settings, seed, norms[0], 0.0)}
    return found | {norm: network(pieces, settings, seed, norm, eps) for norm, eps in settings.eps.items()}


def examples(pieces: Pieces, settings: Enlarged, seed: int, norm: NormName) -> dict[str, Recipe]:
    """Examples of the large radius against each of these networks, of the test split."""
    data, eps = measured_images(pieces, settings), settings.large_eps[norm]
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
        for name, model in networks(pieces, settings, seed).items()
    }


def interpolations(pieces: Pieces, settings: Enlarged, seed: int, norm: NormName) -> Recipe:
    """What is measured on these examples and on the way to them."""
    data = measured_images(pieces, settings)
    made = examples(pieces, settings, seed, norm)
    roles = {name: f"examples-{name}" for name in made}
    return pieces.measurement(
        f"{data.label}-interpolations-{norm}",
        "measurements.interpolations",
        {"examples": roles, "cutoff": settings.low_frequency, "points": settings.points},
        {"data": data, **networks(pieces, settings, seed), **{roles[name]: recipe for name, recipe in made.items()}},
        seed=seed,
    )


def chosen(dataset: ImageDataset, count: int) -> NDArray[np.int64]:
    """The first image of each class, then the second of each, until there are `count`; in the order of classes."""
    import numpy as np

    rank = np.zeros(len(dataset), dtype=np.int64)
    for label in np.unique(dataset.labels):
        of_class = dataset.labels == label
        rank[of_class] = np.arange(of_class.sum())
    return np.sort(np.lexsort((dataset.labels, rank))[:count])


def class_labels(dataset: ImageDataset, classes: Iterable[Any]) -> list[str]:
    """The names of these classes."""
    return [dataset.class_names[int(number)] for number in classes]


def from_blue_to_yellow(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Grey pictures (n, 1, H, W) of values in [0, 1] in three channels: dark blue at 0, grey at 1/2, light yellow at 1.

    The paper has red, white and blue, of which a grey print tells the ends not apart. Pictures in colour are left as
    they are.
    """
    import numpy as np
    from matplotlib import colormaps

    from robustfeatures.experiments.shared.plots.matrices import COLOUR_MAP

    if pictures.shape[1] != 1:
        return pictures
    coloured = colormaps[COLOUR_MAP](pictures[:, 0])[..., :3]
    return coloured.transpose(0, 3, 1, 2).astype(np.float32)


def per_seed(measurements: pd.DataFrame, by: list[str], values: list[str]) -> pd.DataFrame:
    """Means over images of these values, by `by` (with "model") and seed, the standard network first.

    An image whose value is nan is left out.
    """
    means = measurements.groupby([*by, "seed"], sort=False)[values].mean().reset_index()
    return means.sort_values("model", key=lambda models: models.map(list(TITLES).index), kind="stable")
