"""Stage evaluation: one model on one split of one data set under one attack."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from robustfeatures.attacks.pgd import pgd
from robustfeatures.data.dataset import read_dataset
from robustfeatures.engine.batches import batch_size, batches_of
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models.saving import load_network
from robustfeatures.training.accuracy import predictions

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Attack, Evaluation

COLUMNS = ("metric", "label_shift", "eps", "correct", "total", "classes")


def make(parameters: Evaluation, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `rows.csv`: one row per label shift and radius, with counts of right predictions; eps 0 is clean."""
    network = Prepared(load_network(inputs["model"], job.device), precision=parameters.precision)
    data = read_dataset(inputs["data"], parameters.split, in_memory=False)
    images = batches_of(data, job.device)
    rows: list[tuple[str, int, float, int, int, int]] = []
    radii = sorted(parameters.eps)
    with job.computing():
        predicted = predictions(network, images)
        for shift_number, label_shift in enumerate(parameters.label_shifts):
            labels = ((torch.from_numpy(data.labels) + label_shift) % data.num_classes).to(job.device)
            # What is wrong under a smaller attack, or none, stays wrong under a larger one.
            standing = predicted == labels
            for radius_number, eps in enumerate(radii):
                passes = shift_number * len(radii) + radius_number

                def progress(seen: int, before: int = passes * len(data)) -> None:
                    job.progress(before + seen, len(radii) * len(parameters.label_shifts) * len(data))

                if eps > 0:
                    standing = withstand(network, images, labels, standing, eps, parameters.attack, progress)
                progress(len(data))
                rows.append(("accuracy", label_shift, eps, int(standing.sum()), len(labels), data.num_classes))
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def withstand(
    network: Prepared,
    images: Batches,
    labels: torch.Tensor,
    standing: torch.Tensor,
    eps: float,
    attack: Attack,
    progress: Callable[[int], None],
) -> torch.Tensor:
    """Which of the `standing` images (bool (N,)) withstand the attack of radius `eps`."""
    after = torch.zeros_like(standing)
    left = standing.nonzero().squeeze(1).cpu()
    for rows, batch in images.batches(left, batch_size(images.device, images.image_shape)):
        adversarial = pgd(
            network,
            batch,
            labels[rows],
            norm=attack.norm,
            eps=eps,
            step_size=attack.relative_step_size * eps,
            steps=attack.steps,
        )
        with torch.no_grad():
            after[rows] = network(adversarial).argmax(dim=1) == labels[rows]
        left = left[len(rows) :]
        progress(len(images) - len(left))
    return after
