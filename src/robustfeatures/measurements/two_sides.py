"""The robust accuracy of a network that is asked for one of two sides, each of one or several of its classes.

feature-averaging-2025, Figure 2: a network trained on two classes beside one trained on ten. The slides say neither how
ten logits are read out as two sides nor which loss an attack raises, so both ways of each are measured. The side is
that with the larger sum of logits, as f_robust sums its neurons, or that of the largest logit. The attack raises the
network's own cross-entropy, which may lead to another class of the same side, or lowers what the read-out decides by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks import l2
from robustfeatures.attacks.gradient_ascent import Objective, gradient_ascent
from robustfeatures.attacks.objectives import untargeted_cross_entropy
from robustfeatures.engine.batches import choose_batch_size, load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError, suggest

if TYPE_CHECKING:
    from torch import nn

    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision

SUMMED, LARGEST = "summed logits", "largest logit"
OWN, READ_OUT, EITHER = "own cross-entropy", "read-out", "either"


def measure(
    run: Run,
    *,
    sides: Sequence[Sequence[str]],
    eps: Sequence[float],
    steps: int,
    relative_step_size: float,
    precision: Precision,
) -> Sequence[Mapping[str, str | int | float]]:
    """One row per read-out, attack and L2 radius on the test split: columns read_out, attack, eps, correct, total.

    `sides` are two lists of class names of the input `data`. What is wrong at a smaller radius stays wrong at a larger
    one; "either" counts what withstands both attacks. Radius 0 is clean. Of two classes there is one read-out, and its
    attack is the one on the cross-entropy too.

    Raises:
        UserError: the data set has no class of a name, or has one that is on no side.
    """
    data = run.dataset("data", "test")
    side = side_of_class(sides, data.class_names).to(run.device)
    network = FrozenNetwork(run.network("model"), precision=precision)
    images, labels = load_batches(data, run.device), torch.from_numpy(data.labels).to(run.device)
    read_outs = (SUMMED,) if len(side) == 2 else (SUMMED, LARGEST)
    # By the loss that is attacked and the read-out that decides.
    attacked = [(read_out, read_out) for read_out in read_outs]
    attacked += [(OWN, read_out) for read_out in read_outs if len(side) > 2]
    standing = {each: torch.ones(len(data), dtype=torch.bool, device=run.device) for each in attacked}
    found: list[Mapping[str, str | int | float]] = []
    radii = sorted(eps)
    for number, radius in enumerate(radii):
        for loss in dict.fromkeys(loss for loss, _ in attacked):
            judged = {read_out: left for (by, read_out), left in standing.items() if by == loss}
            rows_left = torch.stack(list(judged.values())).any(dim=0).nonzero().squeeze(1).cpu()
            for rows, batch in images.batches(rows_left, choose_batch_size(run.device, data.image_shape)):
                moved = batch
                if radius > 0:
                    objective = objective_of(loss, network, labels[rows], side)
                    step_size = relative_step_size * radius
                    moved = gradient_ascent(
                        objective, batch, norm=l2, step_size=step_size, steps=steps, origin=batch, eps=radius
                    )
                with torch.no_grad():
                    logits = network(moved)
                for read_out, left in judged.items():
                    left[rows] &= margins(logits, labels[rows], side, read_out) > 0
        for read_out in read_outs:
            both = {READ_OUT: standing[read_out, read_out]}
            if (OWN, read_out) in standing:
                both |= {OWN: standing[OWN, read_out], EITHER: standing[OWN, read_out] & both[READ_OUT]}
            found += [
                {"read_out": read_out, "attack": attack, "eps": radius, "correct": int(left.sum()), "total": len(data)}
                for attack, left in both.items()
            ]
        run.progress(number + 1, len(radii))
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
                raise UserError(f"sides: there is no class {name!r}{suggest(name, class_names)}")
            found[list(class_names).index(name)] = sign
    if not found.all():
        raise UserError(f"sides: the class {class_names[int((found == 0).nonzero()[0])]!r} is on neither")
    return found


def margins(logits: Tensor, labels: Tensor, side: Tensor, read_out: str) -> Tensor:
    """What the read-out decides by, (N,), positive where it is right: that of the own side less that of the other.

    Of logits (N, K) and labels (N,) that count classes; `side` (K,) is +1 or -1.
    """
    if read_out == SUMMED:
        return (logits @ side) * side[labels]
    first, second = (logits[:, side == sign].amax(dim=1) for sign in (1, -1))
    return (first - second) * side[labels]


def objective_of(loss: str, network: nn.Module, labels: Tensor, side: Tensor) -> Objective:
    """What an attack raises: the frozen network's own cross-entropy, or minus the margin of a read-out.

    The margin of a read-out and its cross-entropy have the same gradient directions, but the latter's is rounded to
    nothing where the network is sure.
    """
    if loss == OWN:
        return untargeted_cross_entropy(network, labels)
    return lambda images: -margins(network(images), labels, side, loss).sum()
