"""Stage evaluation: one model on one split of one data set under one attack."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.pgd import pgd
from robustfeatures.data.dataset import read_dataset
from robustfeatures.engine.batches import batch_size, batches_of, block_rows
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models.saving import load_network

if TYPE_CHECKING:
    from robustfeatures.engine.batches import Batches
    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Attack, Evaluation

COLUMNS = ("metric", "label_shift", "eps", "correct", "total", "classes")
# Within a block, batches are filled with the images that are still standing; more of them fill batches better.
FEWEST_BATCHES = 2


def make(parameters: Evaluation, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `rows.csv`: one row per label shift and radius, with counts of right predictions; eps 0 is clean.

    Blocks of images, which several jobs may share, are judged one by one: their outcomes are bool (shifts, radii, n).
    """
    network = Prepared(load_network(inputs["model"], job.device), precision=parameters.precision)
    data = read_dataset(inputs["data"], parameters.split, in_memory=False)
    images = batches_of(data, job.device)
    batch = batch_size(job.device, data.image_shape)
    size = block_rows(len(data), batch, data.image_shape, fewest=FEWEST_BATCHES)
    # What another kind of device has judged is cut in another way.
    cut = enumerate(torch.split(torch.arange(len(data)), size))
    blocks = {f"{job.device.type}-{number}": rows for number, rows in cut}
    expected = sum(len(blocks[name]) for name in job.blocks.missing(list(blocks)))
    done = 0

    def outcomes(name: str, path: Path) -> None:
        nonlocal done
        rows, before = blocks[name], done
        labels = torch.from_numpy(data.labels)

        def progress(share: float) -> None:
            job.progress(before + int(share * len(rows)), expected)

        with job.computing():
            standing = judged(network, images, labels, data.num_classes, rows, parameters, progress)
        with path.open("wb") as file:
            np.save(file, standing)
        done += len(rows)

    job.blocks.finish(list(blocks), outcomes)
    if job.blocks.whole:
        standing = np.concatenate([np.load(job.blocks.path(name)) for name in blocks], axis=2)
        _write_rows(folder / "rows.csv", parameters, standing, data.num_classes)


def _write_rows(path: Path, parameters: Evaluation, standing: NDArray[np.bool_], num_classes: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (shift_number, label_shift), (radius_number, eps) in itertools.product(
            enumerate(parameters.label_shifts), enumerate(sorted(parameters.eps))
        ):
            correct = int(standing[shift_number, radius_number].sum())
            writer.writerow(("accuracy", label_shift, eps, correct, standing.shape[2], num_classes))


def judged(
    network: Prepared,
    images: Batches,
    labels: torch.Tensor,
    num_classes: int,
    rows: torch.Tensor,
    parameters: Evaluation,
    progress: Callable[[float], None],
) -> NDArray[np.bool_]:
    """Which of the images `rows` (int64 (n,)) are classified right, bool (shifts, radii in rising order, n).

    `labels` (N,) are those of all images; `progress` is told the share that is done.
    """
    radii = sorted(parameters.eps)
    rounds = len(radii) * len(parameters.label_shifts)
    found = np.zeros((len(parameters.label_shifts), len(radii), len(rows)), np.bool_)
    predicted = torch.full((len(images),), -1, device=images.device)
    with torch.no_grad():
        for batch_rows, batch in images.batches(rows, batch_size(images.device, images.image_shape)):
            predicted[batch_rows] = network(batch).argmax(dim=1)
    for shift_number, label_shift in enumerate(parameters.label_shifts):
        wanted = ((labels + label_shift) % num_classes).to(images.device)
        # What is wrong under a smaller attack, or none, stays wrong under a larger one.
        standing = predicted == wanted
        for radius_number, eps in enumerate(radii):
            if eps > 0:
                standing = withstand(network, images, wanted, standing, eps, parameters.attack)
            found[shift_number, radius_number] = standing[rows.to(images.device)].cpu().numpy()
            progress((shift_number * len(radii) + radius_number + 1) / rounds)
    return found


def withstand(
    network: Prepared,
    images: Batches,
    labels: torch.Tensor,
    standing: torch.Tensor,
    eps: float,
    attack: Attack,
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
    return after
