"""The work of an evaluation at eight radii, beside that of attacking every image at every radius."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from robustfeatures.attacks import l2
from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Evaluation
from robustfeatures.engine.batches import InMemory, choose_batch_size
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from tests.benchmarks.timing import seconds


class Counting(nn.Module):
    """A network that counts the images that go through it, with and without a gradient."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.forward_alone = 0
        self.both_ways = 0

    def forward(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.both_ways += len(images)
        else:
            self.forward_alone += len(images)
        logits: Tensor = self.network(images)
        return logits


def attack_everything(
    network: nn.Module, images: Tensor, labels: Tensor, attack: PGD, radii: Sequence[float]
) -> Tensor:
    """Which images withstand L2 PGD, bool (radii, n): all steps for every image at every radius.

    An image that an iterate of any run at a radius shows misclassified is broken there and at every larger radius.
    """
    size = choose_batch_size(images.device, images.shape[1:])
    robust = torch.ones((len(radii), len(images)), dtype=torch.bool, device=images.device)
    with freeze(network):
        for level, radius in enumerate(torch.tensor(radii, device=images.device)):
            for rows in torch.split(torch.arange(len(images), device=images.device), size):
                origin, wanted = images[rows], labels[rows]
                for step_size in attack.relative_step_sizes:
                    found = origin
                    for _ in range(attack.steps + 1):
                        found = found.detach().requires_grad_(True)
                        logits = network(found)
                        robust[level, rows] &= logits.detach().argmax(1) == wanted
                        (gradient,) = torch.autograd.grad(
                            functional.cross_entropy(logits, wanted, reduction="sum"), found
                        )
                        moved = l2.step(found.detach(), gradient, step_size * radius)
                        found = l2.project(moved, origin, radius).clamp(0, 1)
    return robust.cumprod(0).bool()


def compare_evaluations(
    network: Network, images: Tensor, labels: Tensor, attack: PGD, radii: Sequence[float]
) -> tuple[pd.DataFrame, list[str]]:
    """A line per way: accuracy at each radius, passes and seconds, and notes."""
    frozen_network = FrozenNetwork(network)
    parameters = Evaluation(split="test", norm="l2", attacks=(attack,), eps=tuple(radii))
    rows = torch.arange(len(images))
    found: dict[str, Tensor] = {}

    def everything(counting: nn.Module) -> None:
        found["every image at every radius"] = attack_everything(counting, images, labels, attack, radii)

    def ours(counting: nn.Module) -> None:
        outcome = evaluate_block(EvaluatedSplit(counting, InMemory(images), labels.cpu(), 10), rows, parameters)
        found["ours"] = torch.from_numpy(outcome.robust[0, 0])

    lines = []
    for name, way in (("every image at every radius", everything), ("ours", ours)):
        counting = Counting(frozen_network)

        def run(way: object = way, counting: nn.Module = counting) -> None:
            way(counting)  # type: ignore[operator]

        taken = seconds(run, images.device)
        left = [f"{eps:g}: {int(each.sum())}" for eps, each in zip(radii, found[name], strict=True)]
        lines.append(
            {
                "way": name,
                "forward and back": counting.both_ways,
                "forward": counting.forward_alone,
                "s": round(taken, 2),
                "left at each radius": ", ".join(left),
            }
        )
    work = [int(line["forward and back"]) + int(line["forward"]) / 3 for line in lines]
    passes, time = work[1] / work[0], float(lines[1]["s"]) / float(lines[0]["s"])
    notes = [
        f"Radii {radii[0]:g} to {radii[-1]:g}: ours does {100 * passes:.1f} % of the work (a forward pass alone counts "
        f"a third) in {100 * time:.1f} % of the time; aimed at was a fifth of the work.",
    ]
    return pd.DataFrame(lines), notes
