"""AutoAttack (Croce and Hein, 2020) in the code of its authors, the package pyautoattack, at rising radii."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from pyautoattack import AutoAttack as PyAutoAttack
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from robustfeatures.attacks.evaluating.noise import BROKEN_WITHOUT_GRADIENTS
from robustfeatures.attacks.evaluating.task import AttackTask, Counts, Outcome
from robustfeatures.attacks.evaluating.usable_gradients import NO_GRADIENT, count_without_gradient
from robustfeatures.attacks.margins import compute_margins
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import AutoAttack

NORMS = {"l2": "L2", "linf": "Linf"}
# Every batch starts with this seed, so that a result depends only on the images and their batch.
SEED = 0
# In L2, Square divides the height by this number. The result is the side of the squares that it begins with.
SQUARES = 5
# The loss of targeted APGD compares the four largest logits.
MIN_CLASSES = {"apgd-t": 4}


def attack(task: AttackTask, settings: AutoAttack) -> Outcome:
    """Find which images are robust against all parts at which radii.

    Each part attacks the images that the earlier parts did not break. An image that is broken at one radius is not
    attacked at larger radii. One diagnostic counts the images that Square breaks, which uses no gradients, after the
    parts before it have not. If Square is the first part, there is none. The other is "no gradient" of
    `usable_gradients`, for the loss of the parts; if Square is the only part, there is none.
    Targeted parts try all other classes, nine at most. Targeted APGD needs four classes for its loss; it is skipped if
    there are fewer.

    Raises:
        UserError: no part is left, or the images have a size that Square cannot attack in L2.
    """
    if task.norm == "l2" and "square" in settings.parts:
        _check_square(*task.images.image_shape[1:])
    robust = task.robust.clone()
    counts = Counts(len(task.radii), task.labels.device)
    parts = [part for part in settings.parts if task.num_classes >= MIN_CLASSES.get(part, 2)]
    if not parts:
        needed = f"{settings.parts[0]} needs {MIN_CLASSES[settings.parts[0]]} classes"
        raise UserError(f"attacks: autoattack: {needed}, and there are {task.num_classes}; name another part too")
    without = _count_without_gradient(task, parts)
    for level, eps in enumerate(task.radii.tolist()):
        for part in parts:
            positions = robust[:, level].nonzero().squeeze(1)
            broken = _find_broken(task, settings, part, eps, positions)
            robust[positions[broken], level:] = False
            if part == "square" and part != parts[0]:
                counts.add(torch.full_like(positions, level), broken)
        task.progress((level + 1) / len(task.radii))
    found = {BROKEN_WITHOUT_GRADIENTS: counts.counts} if "square" in parts[1:] else {}
    return Outcome(robust, found if without is None else {NO_GRADIENT: without, **found})


def _check_square(height: int, width: int) -> None:
    """Refuse sizes at which the first squares of the package, which begin in its middle, do not fit into the image."""
    if min(height, width) < SQUARES:
        raise UserError(f"attacks: autoattack: square needs images of at least {SQUARES} x {SQUARES} pixels in l2")
    side = height // SQUARES
    ends = [(height - SQUARES * side) // 2 + length // side * side for length in (height, width)]
    # A square of one pixel beyond the edge is empty.
    if side > 1 and (ends[0] > height or ends[1] > width):
        raise UserError(
            f"attacks: autoattack: square cannot attack images of {height} x {width} pixels in l2; name the other parts"
        )


def _count_without_gradient(task: AttackTask, parts: Sequence[str]) -> Tensor | None:
    """The images without a gradient of the loss that the parts use; None if they use none."""
    if set(parts) == {"square"}:
        return None
    # A loss of margins still has a gradient where the cross-entropy is flat because the network is sure.
    by_margins = {"apgd-t", "fab-t"} & set(parts)
    cross_entropies = partial(functional.cross_entropy, reduction="none")
    return count_without_gradient(task, compute_margins if by_margins else cross_entropies)


def _find_broken(task: AttackTask, settings: AutoAttack, part: str, eps: float, positions: Tensor) -> Tensor:
    """Find which of the images at `positions` (m,) one part breaks, bool (m,)."""
    found = [torch.zeros(0, dtype=torch.bool, device=positions.device)]
    if len(positions) == 0:
        return found[0]
    # The draws of the package depend on its batch, which is therefore the planned one.
    chunks = torch.split(positions, task.planned_batch_size)
    read = task.images.batches(task.rows[positions.cpu()], task.planned_batch_size)
    network = _Contiguous(task.network, task.batch_size)
    for chunk, (_, images) in zip(chunks, read, strict=True):
        labels = task.labels[chunk]
        with _isolated_settings(images.device):
            original = _build_autoattack(network, task, settings, eps, images.device)
            original.attacks_to_run = [part]
            adversarial, _ = original.run_standard_evaluation(images.contiguous(), labels, batch_size=len(images))
        with torch.no_grad():
            found.append(network(adversarial).argmax(dim=1) != labels)
    return torch.cat(found)


def _build_autoattack(
    network: nn.Module, task: AttackTask, settings: AutoAttack, eps: float, device: torch.device
) -> Any:
    original = PyAutoAttack(network, norm=NORMS[task.norm], eps=eps, seed=SEED, device=device)
    targets = min(9, task.num_classes - 1)
    original.apgd_targeted.n_target_classes = targets
    original.fab.n_target_classes = targets
    original.square.n_queries = settings.queries
    original.verbose = False
    return original


class _Contiguous(nn.Module):
    """A network with contiguous input gradients, because the package calls `view` on them.

    It takes at most `most_images` at once. A larger batch goes in parts, and the backward pass computes each of them
    again, so that the memory holds one part.
    """

    def __init__(self, network: nn.Module, most_images: int) -> None:
        super().__init__()
        self.network = network
        self.most_images = most_images

    def forward(self, images: Tensor) -> Tensor:
        contiguous: Tensor = _ContiguousGradient.apply(images)  # type: ignore[no-untyped-call]  # torch's
        if len(images) <= self.most_images:
            logits: Tensor = self.network(contiguous)
            return logits
        parts = torch.split(contiguous, self.most_images)
        return torch.cat([checkpoint(self.network, part, use_reentrant=False) for part in parts])


class _ContiguousGradient(torch.autograd.Function):
    """The identity function, whose gradient is contiguous."""

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        return images.view_as(images)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()


@contextmanager
def _isolated_settings(device: torch.device) -> Iterator[None]:
    """Restore the settings of torch that the package changes.

    The package seeds torch's global generators. On a GPU it uses operations without a deterministic form in torch.
    """
    strict = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(strict, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)
