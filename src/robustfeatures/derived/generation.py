"""Derived sets: the derivation of each split, and its images batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfeatures.derived.registry import METHODS, DeriveFunction
from robustfeatures.engine.batch_size import BatchSize, fit_batch_size
from robustfeatures.engine.batches import choose_batch_size, choose_block_rows
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.engine.registry import load_attribute
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    import torch

    from robustfeatures.derived.derivation import Derivation
    from robustfeatures.derived.settings import Derived
    from robustfeatures.engine.run import Run


def derive_splits(parameters: Derived, run: Run) -> tuple[dict[str, Derivation], BatchSize]:
    """The derivation of each split of the input "data", with the network "source", by the split's name.

    Starts and targets are drawn from the same split, by seeds of its own: image i of the train split and image i of the
    test split are independent. The second result is the number of images in a batch.

    Raises:
        UserError: the method finds no image in a split, or does not fit it.
    """
    network = FrozenNetwork(run.network("source"), precision=parameters.precision, compile=parameters.compile)
    derive: DeriveFunction[Any] = load_attribute(f"{METHODS[parameters.method.kind].module}:derive")
    found: dict[str, Derivation] = {}
    for split in parameters.splits:
        original = run.dataset("data", split)
        seed = parameters.seed if split == "train" else derive_seed(parameters.seed, split)
        found[split] = derive(network, original, parameters.method, seed=seed, device=run.device)
    return found, fit_batch_size(network, run.device, original.image_shape)


def choose_rows_per_block(derivation: Derivation, image_shape: tuple[int, ...], device: torch.device) -> int:
    """The number of images (C, H, W) in a block; the last block of a set may have fewer."""
    return choose_block_rows(len(derivation), choose_batch_size(device, image_shape), image_shape)


def generate_images(
    derivation: Derivation,
    rows: NDArray[np.int64],
    image_shape: tuple[int, ...],
    batch_size: BatchSize,
    progress: Callable[[int], None],
) -> NDArray[Any]:
    """Generate the images (n, C, H, W) of these rows (n,), batch by batch; `progress` counts images times steps.

    If the memory of the device does not suffice, it begins anew with smaller batches.

    Raises:
        UserError: the network gives images that are no numbers.
    """

    def generate(size: int) -> NDArray[Any]:
        found = np.empty((len(rows), *image_shape), derivation.dtype)
        for first in range(0, len(rows), size):
            batch = rows[first : first + size]

            def report(steps: int, before: int = first * derivation.steps, count: int = len(batch)) -> None:
                progress(before + count * steps)

            found[first : first + size] = derivation.images(batch, report)
        if not np.isfinite(found).all():
            raise UserError("the gradient of the source network at some images is NaN or infinite")
        return found

    return batch_size.fit(generate)
