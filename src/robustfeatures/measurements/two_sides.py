"""The robust accuracy of a network that is asked for one of two sides, each of one or several of its classes.

feature-averaging-2025, Figure 2: a network trained on two classes beside one trained on ten, whose binary read-out is
the difference of the summed logits of its classes, as f_robust sums its neurons. The poster does not say which loss the
attack raises on the ten-class network, so both are measured: the network's own cross-entropy, and the binary read-out.
Whatever is attacked, the binary read-out decides what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.gradient_ascent import frozen, gradient_ascent
from robustfeatures.attacks.norms import NORMS
from robustfeatures.attacks.objectives import Objective, leave_class
from robustfeatures.data.dataset import read_dataset
from robustfeatures.engine.batches import batch_size, batches_of
from robustfeatures.engine.prepared import Prepared
from robustfeatures.errors import UserError, suggestion
from robustfeatures.models.saving import load_network

if TYPE_CHECKING:
    from torch import nn

    from robustfeatures.jobs import Job
    from robustfeatures.recipes.parameters import Precision

OWN = "own cross-entropy"
BINARY = "binary read-out"
EITHER = "either"


def measure(
    job: Job,
    inputs: Mapping[str, Path],
    *,
    sides: Sequence[Sequence[str]],
    eps: Sequence[float],
    steps: int,
    relative_step_size: float,
    precision: Precision,
) -> Sequence[Mapping[str, str | int | float]]:
    """One row per attack and L2 radius on the test split: columns attack, eps, correct, total.

    `sides` are two lists of class names of the input `data`. What is wrong at a smaller radius stays wrong at a larger
    one; "either" counts what withstands both attacks. Radius 0 is clean.

    Raises:
        UserError: the data set has no class of a name, or has one that is on no side.
    """
    data = read_dataset(inputs["data"], "test", in_memory=False)
    side = side_of_class(sides, data.class_names).to(job.device)
    network = Prepared(load_network(inputs["model"], job.device), precision=precision)
    images, labels = batches_of(data, job.device), torch.from_numpy(data.labels).to(job.device)
    standing = {attack: torch.ones(len(data), dtype=torch.bool, device=job.device) for attack in (OWN, BINARY)}
    found: list[Mapping[str, str | int | float]] = []
    radii = sorted(eps)
    for number, radius in enumerate(radii):
        for attack, left in standing.items():
            for rows, batch in images.batches(left.nonzero().squeeze(1).cpu(), batch_size(job.device, data.image_shape)):
                moved = batch
                if radius > 0:
                    objective = objectives(network, labels[rows], side)[attack]
                    moved = ascend(network, objective, batch, radius, steps, relative_step_size * radius)
                with torch.no_grad():
                    left[rows] = margins(network(moved), labels[rows], side) > 0
        both = {**standing, EITHER: standing[OWN] & standing[BINARY]}
        found += [
            {"attack": attack, "eps": radius, "correct": int(left.sum()), "total": len(data)}
            for attack, left in both.items()
        ]
        job.progress(number + 1, len(radii))
    return found


def side_of_class(sides: Sequence[Sequence[str]], class_names: Sequence[str]) -> Tensor:
    """+1 for each class of the first side, -1 for each of the second; float32 (K,).

    Raises:
        UserError: there is no class of a name, or a class is on no side.
    """
    found = torch.zeros(len(class_names))
    for sign, names in zip((1.0, -1.0), sides, strict=True):
        for name in names:
            if name not in class_names:
                raise UserError(f"sides: there is no class {name!r}{suggestion(name, class_names)}")
            found[list(class_names).index(name)] = sign
    if not found.all():
        raise UserError(f"sides: the class {class_names[int((found == 0).nonzero()[0])]!r} is on neither")
    return found


def margins(logits: Tensor, labels: Tensor, side: Tensor) -> Tensor:
    """The binary read-out (N,) of logits (N, K), positive where it is right: summed logits of the own side minus others.

    `labels` (N,) count classes; `side` (K,) is +1 or -1.
    """
    return (logits @ side) * side[labels]


def objectives(network: nn.Module, labels: Tensor, side: Tensor) -> dict[str, Objective]:
    """What each attack raises, summed over images.

    The margin of two classes and their cross-entropy have the same gradient directions, but the latter's is rounded to
    nothing where the network is sure.
    """
    return {
        OWN: leave_class(network, labels),
        BINARY: lambda images: -margins(network(images), labels, side).sum(),
    }


def ascend(
    network: nn.Module, objective: Objective, images: Tensor, eps: float, steps: int, step_size: float
) -> Tensor:
    """L2 PGD up the objective from the images (N, C, H, W) themselves."""
    with frozen(network):
        return gradient_ascent(
            objective, images, norm=NORMS["l2"], step_size=step_size, steps=steps, origin=images, eps=eps
        )
