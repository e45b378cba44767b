"""Stage evaluation: one model on one split of one data set under one attack or several."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.evaluating.task import AttackTask, Outcome
from robustfeatures.data.dataset import read_dataset
from robustfeatures.engine.batches import batch_size, batches_of, block_rows
from robustfeatures.engine.eval_mode import frozen
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.saving import load_network

if TYPE_CHECKING:
    from robustfeatures.attacks.evaluating.settings import Evaluation
    from robustfeatures.engine.batches import Batches
    from robustfeatures.pipeline.run.job import Job

COLUMNS = ("metric", "label_shift", "eps", "attack", "correct", "total", "classes")
DIAGNOSTIC_COLUMNS = ("diagnostic", "label_shift", "eps", "attack", "count", "total")
# The rows of all attacks together.
ALL = "all"
# Within a block, batches are filled with the images that are still standing; more of them fill batches better.
FEWEST_BATCHES = 2


def make(parameters: Evaluation, inputs: Mapping[str, Path], folder: Path, job: Job) -> None:
    """Write `rows.csv` and `diagnostics.csv`.

    `rows.csv` has a row per label shift and radius for all attacks together, whose `correct` images withstand all, and
    one for each attack: what it and those before it left. Radius 0 is clean. `diagnostics.csv` says of each attack in
    how many of `total` cases each sign of masked gradients was seen (`attacks.evaluating`).

    Blocks of images, which several jobs may share, are judged one by one.
    """
    network = FrozenNetwork(
        load_network(inputs["model"], job.device), precision=parameters.precision, compile=parameters.compile
    )
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
            found = judged(network, images, labels, data.num_classes, rows, parameters, progress)
        with path.open("wb") as file:
            counts = [[*key, value.tolist()] for key, value in found.diagnostics.items()]
            np.savez(file, standing=found.standing, diagnostics=json.dumps(counts))
        done += len(rows)

    job.blocks.finish(list(blocks), outcomes)
    if job.blocks.whole:
        _write(folder, parameters, [_read_block(job.blocks.path(name)) for name in blocks], data.num_classes)


@dataclass(frozen=True)
class Judged:
    """What became of some images: `standing`, bool (shifts, attacks, radii in rising order, n), and the diagnostics.

    `standing` says which withstand an attack and those before it. The diagnostics are counts found and cases looked at,
    int64 (radii above 0, 2), by the number of the shift, that of the attack, and their name.
    """

    standing: NDArray[np.bool_]
    diagnostics: Mapping[tuple[int, int, str], NDArray[np.int64]]


def judged(
    network: torch.nn.Module,
    images: Batches,
    labels: torch.Tensor,
    num_classes: int,
    rows: torch.Tensor,
    parameters: Evaluation,
    progress: Callable[[float], None] = lambda share: None,
) -> Judged:
    """Run every attack on the images `rows` (int64 (n,)) that the attacks before it have left.

    `labels` (N,) are those of all images; `progress` is told the share that is done.
    """
    radii = torch.tensor([eps for eps in sorted(parameters.eps) if eps > 0], device=images.device)
    clean = int(0 in parameters.eps)
    shape = (len(parameters.label_shifts), len(parameters.attacks), clean + len(radii), len(rows))
    found = np.zeros(shape, np.bool_)
    diagnostics: dict[tuple[int, int, str], NDArray[np.int64]] = {}
    predicted = _predicted(network, images, rows)
    rounds = shape[0] * shape[1]
    for shift, label_shift in enumerate(parameters.label_shifts):
        wanted = ((labels[rows] + label_shift) % num_classes).to(images.device)
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
                with frozen(network):
                    outcome: Outcome = import_module(attack.module).attack(task, attack)
                standing = outcome.standing
                diagnostics |= {
                    (shift, number, name): counts.cpu().numpy() for name, counts in outcome.diagnostics.items()
                }
            found[shift, number, clean:] = standing.T.cpu().numpy()
    return Judged(found, diagnostics)


@torch.no_grad()
def _predicted(network: torch.nn.Module, images: Batches, rows: torch.Tensor) -> torch.Tensor:
    """The class that each of the images `rows` is taken for, int64 (n,)."""
    batches = images.batches(rows, batch_size(images.device, images.image_shape))
    return torch.cat([network(batch).argmax(dim=1) for _, batch in batches])


def _read_block(path: Path) -> Judged:
    with np.load(path) as block:
        counts = json.loads(str(block["diagnostics"]))
        diagnostics = {(shift, number, name): np.array(value) for shift, number, name, value in counts}
        return Judged(block["standing"], diagnostics)


def _write(folder: Path, parameters: Evaluation, blocks: Sequence[Judged], num_classes: int) -> None:
    standing = np.concatenate([block.standing for block in blocks], axis=3)
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_rows(parameters, standing, num_classes))
    with (folder / "diagnostics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(DIAGNOSTIC_COLUMNS)
        writer.writerows(_diagnostic_rows(parameters, blocks))


def _rows(parameters: Evaluation, standing: NDArray[np.bool_], num_classes: int) -> Iterator[tuple[str | float, ...]]:
    total = standing.shape[3]
    for shift, label_shift in enumerate(parameters.label_shifts):
        for radius, eps in enumerate(sorted(parameters.eps)):
            left = [int(count) for count in standing[shift, :, radius].sum(axis=1)]
            yield "accuracy", label_shift, eps, ALL, left[-1], total, num_classes
            for attack, count in zip(parameters.attacks, left, strict=True):
                if eps > 0:
                    yield "accuracy", label_shift, eps, attack.name, count, total, num_classes


def _diagnostic_rows(parameters: Evaluation, blocks: Sequence[Judged]) -> Iterator[tuple[str | float, ...]]:
    radii = [eps for eps in sorted(parameters.eps) if eps > 0]
    # In the order in which they came; a block none of whose images an attack saw has them too.
    for shift, number, name in dict.fromkeys(key for block in blocks for key in block.diagnostics):
        counts = np.sum([block.diagnostics[shift, number, name] for block in blocks], axis=0)
        for eps, (count, total) in zip(radii, counts.tolist(), strict=True):
            yield name, parameters.label_shifts[shift], eps, parameters.attacks[number].name, count, total
