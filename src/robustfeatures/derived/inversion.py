"""D_R and D_NR: images with the same representation as an original image (not-bugs-2019, C.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.inversion import invert
from robustfeatures.derived.derivation import Derivation, Progress, make_provenance
from robustfeatures.engine.randomness import make_generator
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.settings import Inversion
    from robustfeatures.engine.frozen_network import FrozenNetwork

NOISE_DEVIATION = 0.25


def derive(
    network: FrozenNetwork, original: ImageDataset, method: Inversion, *, seed: int, device: torch.device
) -> Derivation:
    """Invert each image, starting from another image of the split or from noise; labels stay.

    Raises:
        UserError: there is no other image to start from.
    """
    indices = original.provenance["source_index"]
    chosen = None if method.start == "noise" else draw_start_rows(original, seed)

    def images(rows: NDArray[np.int64], progress: Progress) -> NDArray[np.float32]:
        if chosen is None:
            deviation = method.noise_deviation or NOISE_DEVIATION
            start = draw_noise(indices[rows], original.image_shape, seed, deviation)
        else:
            start = original.float_images(chosen[rows])
        inverted = invert(
            network,
            torch.from_numpy(start).to(device),
            torch.from_numpy(original.float_images(rows)).to(device),
            step_size=method.step_size,
            steps=method.steps,
            progress=progress,
        )
        return inverted.cpu().numpy()

    start_index = None if chosen is None else indices[chosen]
    return Derivation(original.labels, make_provenance(original, start_index=start_index), images, method.steps)


def draw_start_rows(original: ImageDataset, seed: int) -> NDArray[np.int64]:
    """Draw the row (N,) of the image at which each inversion starts: any other image of the split, uniformly.

    Raises:
        UserError: the split has only one image.
    """
    count = len(original)
    if count < 2:
        raise UserError("method.start: images: a split of one image has no other to start from")
    # An offset of 1 to count - 1, modulo count, gives each of the other images once.
    offsets = [
        1 + make_generator(seed, "start", int(index)).integers(count - 1)
        for index in original.provenance["source_index"]
    ]
    return (np.arange(count) + np.array(offsets)) % count


def draw_noise(
    indices: NDArray[np.int64], image_shape: tuple[int, ...], seed: int, deviation: float = NOISE_DEVIATION
) -> NDArray[np.float32]:
    """Draw Gaussian noise (n, C, H, W) with mean 1/2 and this standard deviation, clipped to [0, 1]."""
    drawn = [make_generator(seed, "start", int(index)).normal(0.5, deviation, image_shape) for index in indices]
    return np.clip(np.array(drawn), 0, 1).astype(np.float32)
