"""How often adversarial examples of one network fool others: not-bugs-2019, Section 3.3, Figures 3 and 13.

The paper has no formula. It mentions "how often adversarial examples transfer" (Section 3.3) and, for targeted attacks,
the "attack success rate, not just misclassification" (Figure 13). Here an image counts if both networks classify it
correctly and the attack succeeds on the source. The transfer rate is the share of these images on which the attack
succeeds on the target too. An untargeted attack succeeds if the prediction differs from the label y. A targeted attack
succeeds if the prediction is t(y) = (y + 1) mod C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from robustfeatures.attacks.projected_gradient_descent import pgd
from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork

if TYPE_CHECKING:
    from robustfeatures.attacks.settings import NormName
    from robustfeatures.data.settings import Split
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision

ATTACKS = {"untargeted": False, "targeted": True}


@dataclass(frozen=True)
class TransferCounts:
    """Counts of images; each is a subset of the one before.

    images: all images.
    both_right: images that both networks classify correctly.
    fooled: images on which the attack succeeds on the source.
    transferred: images on which the attack succeeds on the target.
    """

    images: int
    both_right: int
    fooled: int
    transferred: int


@dataclass(frozen=True)
class Predictions:
    """The classes that a network predicts for images and for their adversarial examples, int64 (N,)."""

    clean: Tensor
    attacked: Tensor


def count_transfers(
    labels: Tensor, source: Predictions, target: Predictions, *, targeted: bool, num_classes: int
) -> TransferCounts:
    """Count the images of the transfer rate from `source` to `target`; `labels` are int64 (N,)."""

    def succeeds(attacked: Tensor) -> Tensor:
        return attacked == (labels + 1) % num_classes if targeted else attacked != labels

    both_right = (source.clean == labels) & (target.clean == labels)
    fooled = both_right & succeeds(source.attacked)
    transferred = fooled & succeeds(target.attacked)
    return TransferCounts(len(labels), int(both_right.sum()), int(fooled.sum()), int(transferred.sum()))


def measure(
    run: Run,
    *,
    targets: Mapping[str, str],
    split: Split,
    precision: Precision,
    norm: NormName,
    eps: float,
    step_size: float,
    steps: int,
) -> Sequence[Mapping[str, str | int]]:
    """Return one row per target and kind of attack: target, attack, and the fields of `TransferCounts`.

    `targets` maps the name of each target network to its input. PGD on the network "source" makes adversarial examples
    of a split of the input "data".
    """
    data = run.dataset("data", split)
    images = load_batches(data, run.device)
    labels = torch.from_numpy(data.labels).to(run.device)
    networks = {role: FrozenNetwork(run.network(role), precision=precision) for role in ("source", *targets.values())}
    predictions = {key: {role: torch.empty_like(labels) for role in networks} for key in ("clean", *ATTACKS)}
    attack = partial(pgd, networks["source"], norm=norm, eps=eps, step_size=step_size, steps=steps)

    def predict(size: int) -> None:
        done = 0
        for rows, batch in images.batches(torch.arange(len(data)), size):
            inputs = {"clean": batch}
            for kind, targeted in ATTACKS.items():
                goal = (labels[rows] + 1) % data.num_classes if targeted else labels[rows]
                inputs[kind] = attack(batch, goal, targeted=targeted)
            with torch.no_grad():
                for key, batch_inputs in inputs.items():
                    for role, network in networks.items():
                        predictions[key][role][rows] = network(batch_inputs).argmax(dim=1)
            done += len(rows)
            run.progress(done, len(data))

    fit_batch_size(networks["source"], run.device, data.image_shape).fit(predict)

    def count(role: str, kind: str, *, targeted: bool) -> dict[str, int]:
        source, target = (Predictions(predictions["clean"][each], predictions[kind][each]) for each in ("source", role))
        return asdict(count_transfers(labels, source, target, targeted=targeted, num_classes=data.num_classes))

    return [
        {"target": name, "attack": kind, **count(role, kind, targeted=targeted)}
        for kind, targeted in ATTACKS.items()
        for name, role in targets.items()
    ]
