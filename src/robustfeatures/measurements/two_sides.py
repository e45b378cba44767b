"""The robust accuracy of a network that decides between two sides; a side is one or several of its classes.

feature-averaging-2025, Figure 2, compares a network trained on two classes with one trained on ten. The slides do not
define how ten logits decide between two sides, nor the loss of the attack, so this module measures two versions of
each. The predicted side has the larger sum of logits, as f_robust sums its neurons, or it has the largest logit. The
attack raises the network's own cross-entropy, which may lead to another class of the same side, or it lowers the
margin of the read-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.gradient_ascent import Objective, gradient_ascent
from robustfeatures.attacks.norms import load_norm
from robustfeatures.attacks.objectives import log_odds_against
from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError, suggest

if TYPE_CHECKING:
    from torch import nn

    from robustfeatures.attacks.settings import NormName
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision

SUMMED, LARGEST = "summed logits", "largest logit"
OWN, READ_OUT, EITHER = "own cross-entropy", "read-out", "either"


def measure(
    run: Run,
    *,
    sides: Sequence[Sequence[str]],
    norm: NormName,
    eps: Sequence[float],
    steps: int,
    relative_step_size: float,
    precision: Precision,
) -> Sequence[Mapping[str, str | int | float]]:
    """Return one row per read-out, attack and radius on the test split: read_out, attack, eps, correct, total.

    `sides` are two lists of class names of the input "data". An image is wrong at a radius if it is wrong after any
    step, or at a smaller radius. The attack "either" counts images that are robust against both attacks. Radius 0 is
    clean. With two classes there is only one read-out, and the attacks on the margin and on the cross-entropy are the
    same.

    Raises:
        UserError: a name is no class of the data set, or a class is on neither side.
    """
    data = run.dataset("data", "test")
    side = assign_sides(sides, data.class_names).to(run.device)
    network = FrozenNetwork(run.network("model"), precision=precision)
    images, labels = load_batches(data, run.device), torch.from_numpy(data.labels).to(run.device)
    read_outs = (SUMMED,) if len(side) == 2 else (SUMMED, LARGEST)
    # The keys are (attacked loss, read-out that decides).
    keys = [(read_out, read_out) for read_out in read_outs]
    keys += [(OWN, read_out) for read_out in read_outs if len(side) > 2]
    robust = {key: torch.ones(len(data), dtype=torch.bool, device=run.device) for key in keys}
    result: list[Mapping[str, str | int | float]] = []
    radii = sorted(eps)
    batch_size = fit_batch_size(network, run.device, data.image_shape)
    for number, radius in enumerate(radii):
        for loss in dict.fromkeys(loss for loss, _ in keys):
            robust_by_read_out = {read_out: flags for (attacked, read_out), flags in robust.items() if attacked == loss}
            remaining = torch.stack(list(robust_by_read_out.values())).any(dim=0).nonzero().squeeze(1).cpu()

            def attack(
                size: int,
                loss: str = loss,
                radius: float = radius,
                remaining: Tensor = remaining,
                robust_by_read_out: Mapping[str, Tensor] = robust_by_read_out,
            ) -> None:
                for rows, batch in images.batches(remaining, size):
                    objective = build_objective(loss, network, labels[rows], side)
                    for inputs in follow_attack(objective, batch, norm, radius, steps, relative_step_size):
                        with torch.no_grad():
                            logits = network(inputs)
                        for read_out, flags in robust_by_read_out.items():
                            flags[rows] &= margins(logits, labels[rows], side, read_out) > 0

            if len(remaining):
                batch_size.fit(attack)
        for read_out in read_outs:
            result += _count_correct(robust, read_out, radius)
        run.progress(number + 1, len(radii))
    return result


def follow_attack(
    objective: Objective, images: Tensor, norm: NormName, eps: float, steps: int, relative_step_size: float
) -> Iterator[Tensor]:
    """Yield the images after each step of PGD; at radius 0 the images themselves."""
    if eps == 0:
        yield images
        return
    moved = images
    for _ in range(steps):
        moved = gradient_ascent(
            objective,
            moved,
            norm=load_norm(norm),
            step_size=relative_step_size * eps,
            steps=1,
            origin=images,
            eps=eps,
        )
        yield moved


def _count_correct(
    robust: Mapping[tuple[str, str], Tensor], read_out: str, eps: float
) -> list[Mapping[str, str | int | float]]:
    """Return the rows of one read-out at one radius, from the flags (N,) of each (attacked loss, read-out)."""
    by_attack = {READ_OUT: robust[read_out, read_out]}
    if (OWN, read_out) in robust:
        by_attack |= {OWN: robust[OWN, read_out], EITHER: robust[OWN, read_out] & by_attack[READ_OUT]}
    return [
        {"read_out": read_out, "attack": attack, "eps": eps, "correct": int(flags.sum()), "total": len(flags)}
        for attack, flags in by_attack.items()
    ]


def assign_sides(sides: Sequence[Sequence[str]], class_names: Sequence[str]) -> Tensor:
    """Return +1 for each class of the first side and -1 for each class of the second; float32 (K,).

    Raises:
        UserError: a name is no class or stands twice, or a class is on neither side.
    """
    signs = torch.zeros(len(class_names))
    for sign, names in zip((1.0, -1.0), sides, strict=True):
        for name in names:
            if name not in class_names:
                raise UserError(f"sides: there is no class {name!r}{suggest(name, class_names)}")
            if signs[list(class_names).index(name)]:
                raise UserError(f"sides: the class {name!r} stands twice")
            signs[list(class_names).index(name)] = sign
    if not signs.all():
        raise UserError(f"sides: the class {class_names[int((signs == 0).nonzero()[0])]!r} is on neither")
    return signs


def margins(logits: Tensor, labels: Tensor, side: Tensor, read_out: str) -> Tensor:
    """Return the margin of the read-out, (N,): the true side minus the other side; positive if it is correct.

    `logits` are (N, K), `labels` (N,) are classes, and `side` (K,) is +1 or -1.
    """
    if read_out == SUMMED:
        return (logits @ side) * side[labels]
    first, second = (torch.where(side == sign, logits, -torch.inf).amax(dim=1) for sign in (1, -1))
    return (first - second) * side[labels]


def build_objective(loss: str, network: nn.Module, labels: Tensor, side: Tensor) -> Objective:
    """Build the objective of an attack: the network's own cross-entropy, or minus the margin of a read-out.

    With two sides, margin and cross-entropy have the same gradient direction.
    """
    if loss == OWN:
        return log_odds_against(network, labels)
    return lambda images: -margins(network(images), labels, side, loss).sum()
