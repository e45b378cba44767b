"""D_rand and D_det: targeted adversarial examples, labelled with the target (not-bugs-2019, C.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.derived.derivation import Derivation, Progress, make_provenance
from robustfeatures.engine.randomness import make_generator
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.derived.settings import TargetedAttack
    from robustfeatures.engine.frozen_network import FrozenNetwork


def derive(
    network: FrozenNetwork, original: ImageDataset, method: TargetedAttack, *, seed: int, device: torch.device
) -> Derivation:
    """Attack each image towards its target, which becomes its label.

    Raises:
        UserError: the data set has no such class.
    """
    indices = original.provenance["source_index"]
    targets = draw_targets(original.labels, indices, target=method.target, num_classes=original.num_classes, seed=seed)

    def images(rows: NDArray[np.int64], progress: Progress) -> NDArray[np.float32]:
        adversarial = pgd(
            network,
            torch.from_numpy(original.float_images(rows)).to(device),
            torch.from_numpy(targets[rows]).to(device),
            norm=method.norm,
            eps=method.eps,
            step_size=method.step_size,
            steps=method.steps,
            targeted=True,
            progress=progress,
        )
        return adversarial.cpu().numpy()

    return Derivation(targets, make_provenance(original, target=targets), images, method.steps)


def draw_targets(
    labels: NDArray[np.int64], indices: NDArray[np.int64], *, target: str | int, num_classes: int, seed: int
) -> NDArray[np.int64]:
    """Draw the target class of each image, int64 (N,).

    "random" draws uniformly from all classes, including the image's own, by seed and source index; "next" is
    (y + 1) mod C; a number is the target of all images.

    Raises:
        UserError: the class number is not below `num_classes`.
    """
    if target == "random":
        drawn = [make_generator(seed, "target", int(index)).integers(num_classes) for index in indices]
        return np.array(drawn, dtype=np.int64)
    if target == "next":
        return (labels + 1) % num_classes
    if int(target) >= num_classes:
        raise UserError(f"method.target: class {target} is out of range, the data set has {num_classes} classes")
    return np.full_like(labels, int(target))
