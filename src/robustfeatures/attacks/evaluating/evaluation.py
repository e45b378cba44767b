"""An evaluation: which images of a split are robust against a list of attacks, at every radius and label shift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.evaluating.task import AttackTask
from robustfeatures.attacks.evaluating.watched_network import WatchedNetwork
from robustfeatures.engine.batch_size import BatchSize, fit_batch_size
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
# Attacks refill their batches with images of the same block, so blocks of several batches waste less.
MIN_BATCHES_PER_BLOCK = 2


@dataclass(frozen=True)
class BlockOutcome:
    """The outcome of an evaluation on the n images of a block.

    robust: bool (shifts, attacks, radii in rising order, n), True if neither the attack nor an earlier one broke the
        image.
    diagnostics: counts and cases, int64 (radii above 0, 2), by (index of the shift, index of the attack, name).
    """

    robust: NDArray[np.bool_]
    diagnostics: Mapping[tuple[int, int, str], NDArray[np.int64]]


@dataclass(frozen=True)
class EvaluatedSplit:
    """The network that an evaluation attacks, and the images and labels, int64 (N,), of the split."""

    network: torch.nn.Module
    images: Batches
    labels: torch.Tensor
    num_classes: int

    @cached_property
    def batch_size(self) -> BatchSize:
        """The number of images in a batch."""
        return fit_batch_size(self.network, self.images.device, self.images.image_shape)


def split_blocks(count: int, image_shape: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the rows (n,) of each block of `count` images (C, H, W); blocks are evaluated independently."""
    size = choose_batch_size(device, image_shape)
    return torch.split(torch.arange(count), choose_block_rows(count, size, image_shape, fewest=MIN_BATCHES_PER_BLOCK))


def load_split(parameters: Evaluation, run: Run) -> EvaluatedSplit:
    """Load the input "model" and the split of the input "data" that the parameters name."""
    network = FrozenNetwork(run.network("model"), precision=parameters.precision, compile=parameters.compile)
    data = run.dataset("data", parameters.split)
    images = load_batches(data, run.device)
    return EvaluatedSplit(network, images, torch.from_numpy(data.labels), data.num_classes)


def evaluate_block(
    evaluated: EvaluatedSplit,
    rows: torch.Tensor,
    parameters: Evaluation,
    progress: Callable[[float], None] = lambda share: None,
) -> BlockOutcome:
    """Run the attacks one after another on the images `rows`, int64 (n,); each attacks the images still robust.

    `progress` receives the share that is done, 0 to 1. If the memory of the device does not suffice, the block begins
    anew with smaller batches.
    """
    return evaluated.batch_size.fit(lambda size: _evaluate(evaluated, rows, parameters, progress, size))


def _evaluate(
    evaluated: EvaluatedSplit,
    rows: torch.Tensor,
    parameters: Evaluation,
    progress: Callable[[float], None],
    batch_size: int,
) -> BlockOutcome:
    network, images, num_classes = WatchedNetwork(evaluated.network), evaluated.images, evaluated.num_classes
    radii = torch.tensor([eps for eps in sorted(parameters.eps) if eps > 0], dtype=torch.float32, device=images.device)
    clean = int(0 in parameters.eps)
    shape = (len(parameters.label_shifts), len(parameters.attacks), clean + len(radii), len(rows))
    outcomes = np.zeros(shape, np.bool_)
    diagnostics: dict[tuple[int, int, str], NDArray[np.int64]] = {}
    predicted = _predict(network, images, rows, batch_size)
    network.check()
    rounds = shape[0] * shape[1]
    for shift, label_shift in enumerate(parameters.label_shifts):
        labels = ((evaluated.labels[rows] + label_shift) % num_classes).to(images.device)
        correct = predicted == labels
        outcomes[shift, :, :clean] = correct.cpu().numpy()
        # An image that is wrong at a smaller radius, or without an attack, counts as wrong at larger radii.
        robust = correct[:, None].expand(-1, len(radii))
        for number, attack in enumerate(parameters.attacks):
            before = shift * shape[1] + number

            def report_share(share: float, before: int = before) -> None:
                progress((before + share) / rounds)

            task = AttackTask(
                network,
                images,
                rows,
                labels,
                parameters.norm,
                radii,
                robust,
                num_classes,
                batch_size=batch_size,
                planned_batch_size=evaluated.batch_size.planned,
                progress=report_share,
            )
            if len(radii):
                run: EvaluatingAttack[Any] = load_attribute(f"{attack.module}:attack")
                with freeze(network):
                    outcome = run(task, attack)
                network.check()
                robust = outcome.robust
                diagnostics |= {
                    (shift, number, name): counts.cpu().numpy() for name, counts in outcome.diagnostics.items()
                }
            outcomes[shift, number, clean:] = robust.T.cpu().numpy()
    return BlockOutcome(outcomes, diagnostics)


@torch.no_grad()
def _predict(network: torch.nn.Module, images: Batches, rows: torch.Tensor, batch_size: int) -> torch.Tensor:
    """Predict the class of each of the images `rows`, int64 (n,)."""
    return torch.cat([network(batch).argmax(dim=1) for _, batch in images.batches(rows, batch_size)])


def count_correct(
    parameters: Evaluation, blocks: Sequence[BlockOutcome], labels: NDArray[np.int64], num_classes: int
) -> Iterator[tuple[Row, NDArray[np.bool_]]]:
    """Yield one row per label shift, radius and attack, and which images (N,) are robust after this attack.

    labels: those of the images (N,). `most_frequent` counts the images of the class that has most. So many are correct
    where a model gives this class to every image.
    The column `attacks` is the number of attacks that have run, in the order of the list; 0 at radius 0.
    """
    most_frequent = int(np.bincount(labels).max())
    robust = np.concatenate([block.robust for block in blocks], axis=3)
    for shift, label_shift in enumerate(parameters.label_shifts):
        for radius, eps in enumerate(sorted(parameters.eps)):
            images = robust[shift, :, radius]
            for attacks, correct in enumerate(images, start=1) if eps > 0 else [(0, images[0])]:
                row: Row = {
                    "metric": "accuracy",
                    "label_shift": label_shift,
                    "eps": eps,
                    "attacks": attacks,
                    "correct": int(correct.sum()),
                    "total": len(correct),
                    "classes": num_classes,
                    "most_frequent": most_frequent,
                }
                yield row, correct


def count_diagnostics(parameters: Evaluation, blocks: Sequence[BlockOutcome]) -> Iterator[Row]:
    """Yield one row per label shift, radius, attack and diagnostic: in `count` of `total` cases it is true."""
    radii = [eps for eps in sorted(parameters.eps) if eps > 0]
    # A dict keeps the order. All blocks have the same diagnostics, even if no image was left to attack.
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
