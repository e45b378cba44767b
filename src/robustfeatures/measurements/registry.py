"""The work of the measurements that attack every image of a split; that of the others is taken to be small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# A step of an attack is a forward and a backward pass to the image.
ATTACK_STEP = 2


def _two_sides(settings: Mapping[str, Any]) -> float:
    """Each radius has an attack on either read-out and one on the own cross-entropy; two classes have one attack."""
    attacks = 1 if sum(map(len, settings["sides"])) == 2 else 3
    eps: list[float] = settings["eps"]
    steps: int = settings["steps"]
    # Each step is judged by a forward pass.
    return attacks * sum((ATTACK_STEP + 1) * steps if radius > 0 else 1 for radius in eps)


def _transfer(settings: Mapping[str, Any]) -> float:
    """A targeted and an untargeted attack on the source; source and targets classify their results and the images."""
    steps: int = settings["steps"]
    return 2 * ATTACK_STEP * steps + 3 * (1 + len(settings["targets"]))


# Forward passes for an image of the measured split, from the settings. Images that leave an attack early count too.
FORWARDS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "measurements.transfer": _transfer,
    "measurements.two_sides": _two_sides,
}
