"""Accuracies of the patch network: clean, under attacks in the ball, and on points with one kind of feature alone.

adversarial-training-2025 measures robust accuracy by "the standard PGD attack" (Section 6.1). Its theorems name
perturbations that do not depend on the network. Here every attack keeps each patch within the radius of the ball:

- one_step: the single step of gradient ascent that adversarial training takes (Section 2.5);
- rotated: non-robust features turned to another class's (Theorem 4.3);
- planted: another class's robust feature in the patches that hold none (see `patch_minima`);
- planted_and_lowered: the same, and the own robust feature lowered;
- pgd: projected gradient descent on the margin, from the point itself and from random starts.

`robust` is the share of points that withstand all of them, which bounds the robust accuracy from above. `certified` is
the share for which a bound excludes every perturbation in the ball (`is_certified`), which bounds it from below.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from robustfeatures.engine.randomness import derive_seed
from robustfeatures.theory.patch_data import (
    Patches,
    keep_patches,
    list_other_classes,
    plant_and_lower_features,
    plant_features,
    rotate_features,
)
from robustfeatures.theory.patch_network import PatchBall, activation, is_certified, is_right, one_step, pgd
from robustfeatures.theory.settings import PatchConstants

EXPLICIT = {
    "rotated": rotate_features,
    "planted": plant_features,
    "planted_and_lowered": plant_and_lower_features,
}


class Evaluation:
    """Measures filters on the points of one setting; random starts are the same at every call."""

    def __init__(
        self,
        constants: PatchConstants,
        data: Patches,
        seed: int,
        *,
        steps: int,
        relative_step_size: float,
        random_starts: int,
    ) -> None:
        self.constants, self.data = constants, data
        self.steps, self.relative_step_size = steps, relative_step_size
        generator = torch.Generator().manual_seed(derive_seed(seed, "starts"))
        changes = [PatchBall().random_start(data.points, constants.radius, generator) for _ in range(random_starts)]
        self.starts = [data.points, *(data.points + change for change in changes)]
        targets = list_other_classes(data.labels, constants.classes)
        self.explicit = {
            name: [data.points + move(data, constants, each) for each in targets] for name, move in EXPLICIT.items()
        }
        self.alone = {
            "robust_features_alone": keep_patches(data.points, data.robust),
            "non_robust_features_alone": keep_patches(data.points, ~data.robust),
        }

    def __call__(self, weights: Tensor) -> Mapping[str, float]:
        """Accuracies in [0, 1] by name; those under an explicit perturbation are means over the other classes."""
        clean = self._are_right(weights, [self.data.points])
        explicit = {name: self._are_right(weights, moved) for name, moved in self.explicit.items()}
        searched = {
            "one_step": self._are_right(weights, [one_step(weights, *self._labelled, self.constants)]),
            "pgd": self._are_right(weights, [self._pgd(weights, start) for start in self.starts]).all(dim=0),
        }
        withstood = [clean, *explicit.values(), *(each.expand(1, -1) for each in searched.values())]
        shares = {
            "clean": clean,
            **explicit,
            **searched,
            "robust": torch.cat(withstood).all(dim=0),
            "certified": is_certified(weights, *self._labelled, self.constants),
            **{name: self._are_right(weights, [points]) for name, points in self.alone.items()},
        }
        return {name: float(right.float().mean()) for name, right in shares.items()}

    @property
    def _labelled(self) -> tuple[Tensor, Tensor]:
        return self.data.points, self.data.labels

    def _are_right(self, weights: Tensor, versions: list[Tensor]) -> Tensor:
        """Whether each point is classified rightly in each of its versions, bool (versions, n)."""
        relu = activation(self.constants)
        return torch.stack([is_right(weights, points, self.data.labels, relu) for points in versions])

    def _pgd(self, weights: Tensor, start: Tensor) -> Tensor:
        return pgd(
            weights,
            *self._labelled,
            self.constants,
            start=start,
            steps=self.steps,
            relative_step_size=self.relative_step_size,
        )
