"""The distance from each image to the nearest image of another class, and whether a radius is small beside it.

If the distance is at most 2 eps, the balls of radius eps round both images meet: an attack of that radius can move the
two images, which have different labels, to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.settings import NormName

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

ORDERS: dict[NormName, float] = {"l2": 2.0, "linf": float("inf")}
# The relative error of distances between pixels in float32.
ROUNDING = 1e-6
# The distances that are in memory at once.
BLOCK_DISTANCES = 1 << 24


def distances_to_other_classes(images: Tensor, labels: Tensor, norm: NormName) -> Iterator[Tensor]:
    """Yield block by block the distance (rows,) from each image to the nearest image of another class.

    `images` are (N, ...), labels int64 (N,). Distances are computed in float64, because the matrix product behind them
    loses half the digits. They are infinite if all images have one class.
    """
    points = images.flatten(1).double()
    size = max(1, BLOCK_DISTANCES // len(points))
    for first in range(0, len(points), size):
        rows = slice(first, first + size)
        distances = torch.cdist(points[rows], points, p=ORDERS[norm])
        distances[labels[rows, None] == labels] = float("inf")
        yield distances.min(dim=1).values


def measure(run: Run, *, norm: NormName, radii: Sequence[float]) -> Sequence[Mapping[str, int | float]]:
    """Return one row per radius about the train split of the input "data".

    radius: eps, in pixels of [0, 1].
    within: the share of images with one of another class at a distance of at most 2 eps, 0 to 1.
    images: the number of images.
    """
    data = run.dataset("data", "train")
    images = torch.from_numpy(data.float_images()).to(run.device)
    labels = torch.from_numpy(data.labels).to(run.device)
    found: list[Tensor] = []
    done = 0
    for block in distances_to_other_classes(images, labels, norm):
        found.append(block.cpu())
        done += len(block)
        run.progress(done, len(data))
    nearest = torch.cat(found)
    return [
        # Pixels are rounded to float32, so a distance of exactly 2 eps may come out larger.
        {"radius": eps, "within": float((nearest <= 2 * eps * (1 + ROUNDING)).double().mean()), "images": len(data)}
        for eps in radii
    ]
