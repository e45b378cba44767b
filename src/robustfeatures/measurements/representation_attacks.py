"""The success of NRF-PGD and RF-PGD for every ordered pair of classes.

adversarial-training-2025, Appendix A.2: an attack perturbs images of a source class, inside a ball, until an extractor
represents them like a random image of the target class. The attack succeeds if a separately trained victim predicts
the target class. The text at hand lacks the formulas, but describes them: "x is the original image from the source
class, x' is a random image sampled from the target class".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from robustfeatures.attacks.representation_pgd import representation_pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import make_generator

if TYPE_CHECKING:
    from robustfeatures.attacks.settings import NormName
    from robustfeatures.data.settings import Split
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision


def measure(
    run: Run,
    *,
    victims: Mapping[str, str],
    split: Split,
    images_per_class: int,
    norm: NormName,
    eps: float,
    step_size: float,
    steps: int,
    precision: Precision,
    seed: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Return one row per source class, target class and victim.

    The attack uses the representation of the input "extractor". `victims` maps the name of each victim to its input.
    Columns: victim; source and target, class names; total, the number of images attacked; reached, the number
    predicted as the target after the attack; before, the number predicted as the target before the attack.
    """
    data = run.dataset("data", split)
    extractor = FrozenNetwork(run.network("extractor"), precision=precision)
    networks = {name: FrozenNetwork(run.network(role), precision=precision) for name, role in victims.items()}
    rows, goals, targets = draw_pairs(data, images_per_class, seed)
    before = {name: np.empty(len(rows), np.int64) for name in victims}
    after = {name: np.empty(len(rows), np.int64) for name in victims}

    def attack(size: int) -> None:
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            images = torch.from_numpy(data.float_images(rows[part])).to(run.device)
            adversarial = representation_pgd(
                extractor,
                images,
                torch.from_numpy(data.float_images(targets[part])).to(run.device),
                norm=norm,
                eps=eps,
                step_size=step_size,
                steps=steps,
            )
            with torch.no_grad():
                for name, victim in networks.items():
                    before[name][part] = victim(images).argmax(dim=1).cpu().numpy()
                    after[name][part] = victim(adversarial).argmax(dim=1).cpu().numpy()
            run.progress(min(first + size, len(rows)), len(rows))

    fit_batch_size(extractor, run.device, data.image_shape).fit(attack)
    sources = data.labels[rows]
    return [
        {"victim": name, **pair}
        for name in victims
        for pair in _count_pairs(data, sources, goals, before[name], after[name])
    ]


def _count_pairs(
    data: ImageDataset,
    sources: NDArray[np.int64],
    goals: NDArray[np.int64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
) -> Iterator[Mapping[str, str | int]]:
    """Yield the rows of one victim, given source, target, and predictions before and after each attack, int64 (n,)."""
    for source in range(data.num_classes):
        for target in range(data.num_classes):
            chosen = (sources == source) & (goals == target)
            if chosen.any():
                yield {
                    "source": data.class_names[source],
                    "target": data.class_names[target],
                    "total": int(chosen.sum()),
                    "reached": int((after[chosen] == target).sum()),
                    "before": int((before[chosen] == target).sum()),
                }


def draw_pairs(
    data: ImageDataset, images_per_class: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw the pairs to attack: rows of source images, target classes, and rows of target images, int64 (n,) each.

    The seed draws up to `images_per_class` source images of each class. Each is paired with every other class, each
    time with a new random target image of that class.
    """
    members = [np.flatnonzero(data.labels == label) for label in range(data.num_classes)]
    rows, goals, targets = [], [], []
    for source, own in enumerate(members):
        for row in make_generator(seed, "source", source).permutation(own)[:images_per_class]:
            generator = make_generator(seed, "target", int(data.provenance["source_index"][row]))
            for goal, others in enumerate(members):
                if goal != source:
                    rows.append(row)
                    goals.append(goal)
                    targets.append(generator.choice(others))
    return np.array(rows, np.int64), np.array(goals, np.int64), np.array(targets, np.int64)
