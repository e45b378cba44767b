"""AutoAttack (Croce and Hein, 2020) in its authors' own code, the package pyautoattack, at rising radii."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from pyautoattack import AutoAttack as Original
from torch import Tensor, nn

from robustfeatures.attacks.evaluating.noise import BROKEN
from robustfeatures.attacks.evaluating.task import AttackTask, Counts, Outcome

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import AutoAttack

NORMS = {"l2": "L2", "linf": "Linf"}
# Of every batch, so that a result depends on nothing but the images and the batches they are in.
SEED = 0
# The loss of targeted APGD compares the four largest logits.
FEWEST_CLASSES = {"apgd-t": 4}


def attack(task: AttackTask, settings: AutoAttack) -> Outcome:
    """Which images withstand all parts at which radii; what falls at one radius is not attacked at a larger one.

    Each part attacks what the parts before it left. The diagnostic counts what Square, which uses no gradients, breaks
    of what the other parts and the attacks before have left. Targeted parts take as many targets as there are other
    classes, nine at most; with fewer than four classes targeted APGD, whose loss needs four, is left out.
    """
    standing = task.standing.clone()
    counts = Counts(len(task.radii), task.labels.device)
    parts = [part for part in settings.parts if task.num_classes >= FEWEST_CLASSES.get(part, 2)]
    for level, eps in enumerate(task.radii.tolist()):
        for part in parts:
            places = standing[:, level].nonzero().squeeze(1)
            broken = _broken(task, settings, part, eps, places)
            standing[places[broken], level:] = False
            if part == "square" and len(parts) > 1:
                counts.add(torch.full_like(places, level), broken)
        task.progress((level + 1) / len(task.radii))
    return Outcome(standing, {BROKEN: counts.counts} if "square" in parts and len(parts) > 1 else {})


def _broken(task: AttackTask, settings: AutoAttack, part: str, eps: float, places: Tensor) -> Tensor:
    """Which of the images at `places` (m,) one part breaks, bool (m,)."""
    found = [torch.zeros(0, dtype=torch.bool, device=places.device)]
    if len(places) == 0:
        return found[0]
    chunks = torch.split(places, task.size)
    read = task.images.batches(task.rows[places.cpu()], task.size)
    network = _Contiguous(task.network)
    for chunk, (_, images) in zip(chunks, read, strict=True):
        labels = task.labels[chunk]
        with _undisturbed(images.device):
            original = _original(network, task, settings, eps, images.device)
            original.attacks_to_run = [part]
            adversarial, _ = original.run_standard_evaluation(images.contiguous(), labels, batch_size=len(images))
        with torch.no_grad():
            found.append(task.network(adversarial).argmax(dim=1) != labels)
    return torch.cat(found)


def _original(network: nn.Module, task: AttackTask, settings: AutoAttack, eps: float, device: torch.device) -> Any:
    original = Original(network, norm=NORMS[task.norm], eps=eps, seed=SEED, device=device)
    targets = min(9, task.num_classes - 1)
    original.apgd_targeted.n_target_classes = targets
    original.fab.n_target_classes = targets
    original.square.n_queries = settings.queries
    original.verbose = False
    return original


class _Contiguous(nn.Module):
    """A network whose gradients by the images are contiguous: the package calls `view` on them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(_WithContiguousGradient.apply(images))  # type: ignore[no-untyped-call]  # torch's
        return logits


class _WithContiguousGradient(torch.autograd.Function):
    """The images as they are."""

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        return images.view_as(images)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].contiguous()


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """The package seeds torch's own generators, and on a GPU uses operations that torch knows no repeatable form of."""
    strict = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.use_deterministic_algorithms(strict, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict)
