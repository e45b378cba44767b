"""How often the attack behind a derived set succeeds on its source network, without and with augmentation.

D_rand and D_det (not-bugs-2019, Section 3.2) hold features of the target class only if the attack succeeds. Training
with augmentation shifts and mirrors the images, which may undo the perturbation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.training.augmentation import Augmenter
from robustfeatures.training.settings import Augmentation

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision


def count_predictions(predicted: Tensor, labels: Tensor, source_labels: Tensor) -> dict[str, int]:
    """Count predictions, given the labels and the classes before the attack, all int64 (N,).

    images: all images.
    targeted: images whose label differs from the class before the attack.
    reached: images of `targeted` that are predicted as their label.
    kept: images that are predicted as the class before the attack.
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
    """Return two rows, "none" and "augmented", with the counts of the network "source" on the train split of "data".

    `augmentation` holds the fields of `Augmentation`; each image is augmented once. In an original data set, the class
    before the attack is the label.
    """
    data = run.dataset("data", "train")
    network = FrozenNetwork(run.network("source"), precision=precision)
    images = load_batches(data, run.device)
    generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation"))
    augment = Augmenter(Augmentation(**augmentation), len(data), generator, run.device)
    predictions = {name: torch.empty(len(data), dtype=torch.int64, device=run.device) for name in ("none", "augmented")}

    @torch.no_grad()
    def predict(size: int) -> None:
        done = 0
        for rows, batch in images.batches(torch.arange(len(data)), size):
            for name, inputs in (("none", batch), ("augmented", augment(batch, rows))):
                predictions[name][rows] = network(inputs).argmax(dim=1)
            done += len(rows)
            run.progress(done, len(data))

    fit_batch_size(network, run.device, data.image_shape).fit(predict)
    labels = torch.from_numpy(data.labels)
    source_labels = torch.from_numpy(data.provenance.get("source_label", data.labels))
    return [
        {"augmentation": name, **count_predictions(predicted.cpu(), labels, source_labels)}
        for name, predicted in predictions.items()
    ]
