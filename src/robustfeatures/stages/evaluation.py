"""Stage evaluation: one model on one split of one data set under one attack."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from robustfeatures.attacks.pgd import pgd
from robustfeatures.data.dataset import read_dataset
from robustfeatures.models.saving import load_network
from robustfeatures.training.accuracy import BATCH, predictions

if TYPE_CHECKING:
    from robustfeatures.jobs import Job
    from robustfeatures.models.network import Network
    from robustfeatures.recipes.parameters import Attack, Evaluation

COLUMNS = ("metric", "label_shift", "eps", "correct", "total", "classes")


def make(parameters: Evaluation, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `rows.csv`: one row per label shift and radius, with counts of right predictions; eps 0 is clean."""
    network = load_network(inputs["model"], job.device)
    data = read_dataset(inputs["data"], parameters.split)
    images = torch.from_numpy(data.float_images()).to(job.device)
    rows: list[tuple[str, int, float, int, int, int]] = []
    radii = sorted(parameters.eps)
    with job.computing():
        for shift_number, label_shift in enumerate(parameters.label_shifts):
            labels = ((torch.from_numpy(data.labels) + label_shift) % data.num_classes).to(job.device)
            # What is wrong under a smaller attack, or none, stays wrong under a larger one.
            standing = predictions(network, images) == labels
            for radius_number, eps in enumerate(radii, start=1):
                if eps > 0:
                    standing = withstand(network, images, labels, standing, eps, parameters.attack)
                rows.append(("accuracy", label_shift, eps, int(standing.sum()), len(labels), data.num_classes))
                job.progress((shift_number + radius_number / len(radii)) / len(parameters.label_shifts))
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def withstand(
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    standing: torch.Tensor,
    eps: float,
    attack: Attack,
) -> torch.Tensor:
    """Which of the `standing` images (bool (N,)) of `images` (N, C, H, W) withstand the attack of radius `eps`."""
    after = torch.zeros_like(standing)
    for batch in torch.split(standing.nonzero().squeeze(1), BATCH):
        adversarial = pgd(
            network,
            images[batch],
            labels[batch],
            norm=attack.norm,
            eps=eps,
            step_size=attack.relative_step_size * eps,
            steps=attack.steps,
        )
        after[batch] = predictions(network, adversarial) == labels[batch]
    return after
