"""The success of the attack behind a derived set on its source network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustfeatures.experiments.shared.units import percent
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.training.settings import Augmentation

if TYPE_CHECKING:
    import pandas as pd

# The augmentation under which the success is measured a second time.
AUGMENTATION = Augmentation(crop_padding=4, flip=True)


def make_attack_success(
    pieces: Pieces, family: str, data: Recipe, source: Recipe, seed: int, *, augmentation: Augmentation = AUGMENTATION
) -> Recipe:
    """The measurement on a data set, with the network that was attacked. Its label begins with `family`."""
    return pieces.measurement(
        f"{family}-attack-success",
        "measurements.attack_success",
        {"precision": pieces.study.precision, "augmentation": augmentation, "seed": seed},
        {"data": data, "source": source},
        seed=seed,
    )


def add_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """Add two columns in percent: `success`, of the images with another target than class, and `kept`, of all images.

    Original data have no targets, and so no success.
    """
    success = percent(rows["reached"] / rows["targeted"]).where(rows["targeted"] > 0)
    return rows.assign(success=success, kept=percent(rows["kept"] / rows["images"]))
