"""What the network that a derived set was made with sees in it, as it is and under augmentation.

D_rand and D_det (not-bugs-2019, Section 3.2) hold the features of the target class only as far as the attack succeeded;
and training with augmentation shows the images shifted and mirrored, where a perturbation may act no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.batches import choose_batch_size, load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.settings import Augmentation

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision


def counts(predicted: Tensor, labels: Tensor, source_labels: Tensor) -> dict[str, int]:
    """How the images (N,) are taken, given their label and the class they had before the attack, all int64 (N,).

    images: all. targeted: those whose label is another class than before. reached: those of `targeted` that are taken
    for their label. kept: all images that are taken for the class they had before.
    """
    targeted = labels != source_labels
    return {
        "images": len(labels),
        "targeted": int(targeted.sum()),
        "reached": int((targeted & (predicted == labels)).sum()),
        "kept": int((predicted == source_labels).sum()),
    }


def measure(
    run: Run, *, precision: Precision, augmentation: Mapping[str, Any], seed: int
) -> Sequence[Mapping[str, str | int]]:
    """Two rows, "none" and "augmented", with the counts of `counts` on the train split of "data" under "source".

    `augmentation` holds the fields of `Augmentation`; each image is shown under one draw of it. In an original data
    set the class before is the label.
    """
    data = run.dataset("data", "train")
    network = FrozenNetwork(run.network("source"), precision=precision)
    images = load_batches(data, run.device)
    generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation"))
    augment = Augmenter(Augmentation(**augmentation), len(data), generator, run.device)
    found = {name: torch.empty(len(data), dtype=torch.int64, device=run.device) for name in ("none", "augmented")}
    done = 0
    for rows, batch in images.batches(torch.arange(len(data)), choose_batch_size(run.device, data.image_shape)):
        with torch.no_grad():
            for name, pictures in (("none", batch), ("augmented", augment(batch, rows))):
                found[name][rows] = network(pictures).argmax(dim=1)
        done += len(rows)
        run.progress(done, len(data))
    labels = torch.from_numpy(data.labels)
    before = torch.from_numpy(data.provenance.get("source_label", data.labels))
    return [{"augmentation": name, **counts(predicted.cpu(), labels, before)} for name, predicted in found.items()]
