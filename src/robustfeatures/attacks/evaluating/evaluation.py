"""An evaluation: the images of a split that withstand the attacks of a list, at every radius and label shift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.evaluating.task import AttackTask
from robustfeatures.engine.batches import choose_batch_size, choose_block_rows, load_batches
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.registry import load_attribute

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.registry import EvaluatingAttack
    from robustfeatures.attacks.evaluating.settings import Evaluation
    from robustfeatures.engine.batches import Batches
    from robustfeatures.engine.run import Run

Row = dict[str, str | int | float]
# Within a block, batches are filled with the images that are still standing; more of them fill batches better.
FEWEST_BATCHES = 2


@dataclass(frozen=True)
class Judged:
    """What became of some images: `standing`, bool (shifts, attacks, radii in rising order, n), and the diagnostics.

    `standing` says which withstand an attack and those before it. The diagnostics are counts found and cases looked at,
    int64 (radii above 0, 2), by the number of the shift, that of the attack, and their name.
    """

    standing: NDArray[np.bool_]
    diagnostics: Mapping[tuple[int, int, str], NDArray[np.int64]]


@dataclass(frozen=True)
class Subject:
    """The network that an evaluation attacks, and its split: images, and labels int64 (N,)."""

    network: torch.nn.Module
    images: Batches
    labels: torch.Tensor
    num_classes: int

    def blocks(self) -> tuple[torch.Tensor, ...]:
        """The rows (n,) of each block, which is judged by itself."""
        device, shape = self.images.device, self.images.image_shape
        size = choose_block_rows(len(self.images), choose_batch_size(device, shape), shape, fewest=FEWEST_BATCHES)
        return torch.split(torch.arange(len(self.images)), size)


def subject(parameters: Evaluation, run: Run) -> Subject:
    """The input "model" and the split of the input "data" that the parameters name."""
    network = FrozenNetwork(run.network("model"), precision=parameters.precision, compile=parameters.compile)
    data = run.dataset("data", parameters.split)
    images = load_batches(data, run.device)
    return Subject(network, images, torch.from_numpy(data.labels), data.num_classes)


def judged(
    subject: Subject,
    rows: torch.Tensor,
    parameters: Evaluation,
    progress: Callable[[float], None] = lambda share: None,
) -> Judged:
    """Run every attack on the images `rows` (int64 (n,)) that the attacks before it have left.

    `progress` is told the share that is done.
    """
    network, images, num_classes = subject.network, subject.images, subject.num_classes
    radii = torch.tensor([eps for eps in sorted(parameters.eps) if eps > 0], device=images.device)
    clean = int(0 in parameters.eps)
    shape = (len(parameters.label_shifts), len(parameters.attacks), clean + len(radii), len(rows))
    found = np.zeros(shape, np.bool_)
    diagnostics: dict[tuple[int, int, str], NDArray[np.int64]] = {}
    predicted = _predicted(network, images, rows)
    rounds = shape[0] * shape[1]
    for shift, label_shift in enumerate(parameters.label_shifts):
        wanted = ((subject.labels[rows] + label_shift) % num_classes).to(images.device)
        right = predicted == wanted
        found[shift, :, :clean] = right.cpu().numpy()
        # What is wrong under a smaller attack, or none, stays wrong under a larger one.
        standing = right[:, None].expand(-1, len(radii))
        for number, attack in enumerate(parameters.attacks):
            before = shift * shape[1] + number

            def told(share: float, before: int = before) -> None:
                progress((before + share) / rounds)

            task = AttackTask(
                network, images, rows, wanted, parameters.norm, radii, standing, num_classes, progress=told
            )
            if len(radii):
                run: EvaluatingAttack[Any] = load_attribute(f"{attack.module}:attack")
                with freeze(network):
                    outcome = run(task, attack)
                standing = outcome.standing
                diagnostics |= {
                    (shift, number, name): counts.cpu().numpy() for name, counts in outcome.diagnostics.items()
                }
            found[shift, number, clean:] = standing.T.cpu().numpy()
    return Judged(found, diagnostics)


@torch.no_grad()
def _predicted(network: torch.nn.Module, images: Batches, rows: torch.Tensor) -> torch.Tensor:
    """The class that each of the images `rows` is taken for, int64 (n,)."""
    batches = images.batches(rows, choose_batch_size(images.device, images.image_shape))
    return torch.cat([network(batch).argmax(dim=1) for _, batch in batches])


def counted(parameters: Evaluation, blocks: Sequence[Judged], num_classes: int) -> Iterator[Row]:
    """One row per label shift, radius and attack: how many of all images withstand it and those before it.

    `attacks` is how many attacks have run: the first so many of the list; 0 at radius 0, where none runs.
    """
    standing = np.concatenate([block.standing for block in blocks], axis=3)
    for shift, label_shift in enumerate(parameters.label_shifts):
        for radius, eps in enumerate(sorted(parameters.eps)):
            left = standing[shift, :, radius].sum(axis=1).tolist()
            for attacks, correct in enumerate(left, start=1) if eps > 0 else [(0, left[0])]:
                yield {
                    "metric": "accuracy",
                    "label_shift": label_shift,
                    "eps": eps,
                    "attacks": attacks,
                    "correct": correct,
                    "total": standing.shape[3],
                    "classes": num_classes,
                }


def counted_diagnostics(parameters: Evaluation, blocks: Sequence[Judged]) -> Iterator[Row]:
    """One row per label shift, radius, attack and diagnostic: in how many of `total` cases the sign was seen."""
    radii = [eps for eps in sorted(parameters.eps) if eps > 0]
    # In the order in which they came; a block none of whose images an attack saw has them too.
    for shift, number, name in dict.fromkeys(key for block in blocks for key in block.diagnostics):
        counts = np.sum([block.diagnostics[shift, number, name] for block in blocks], axis=0)
        for eps, (count, total) in zip(radii, counts.tolist(), strict=True):
            yield {
                "diagnostic": name,
                "label_shift": parameters.label_shifts[shift],
                "eps": eps,
                "attack": parameters.attacks[number].name,
                "count": count,
                "total": total,
            }
