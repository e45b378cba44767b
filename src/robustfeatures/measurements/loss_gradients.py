"""Loss gradients with respect to the input, of several networks on the same images (at-odds-2019, Figures 2 and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from robustfeatures.attacks.gradients import loss_gradients
from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.measurements.perception import alignment, class_means, density, low_frequency_share

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run
    from robustfeatures.models.network import Network

Row = dict[str, str | int | float]


def measure(run: Run, *, cutoff: float) -> Sequence[Row]:
    """Return one row per network and test image of the input "data"; all other inputs are networks.

    `alignment` is the cosine between the gradient and a difference of mean training images: the class with the largest
    logit except the label, minus the class of the label. None of the columns depends on the length of a gradient.
    """
    test = run.dataset("data", "test")
    means = class_means(run.dataset("data", "train")).to(run.device)
    names = sorted(set(run.roles) - {"data"})
    rows: list[Row] = []
    for number, name in enumerate(names):
        network = run.network(name)

        def measure_gradients(size: int, name: str = name, network: Network = network) -> list[Row]:
            found: list[Row] = []
            for places in torch.split(torch.arange(len(test)), size):
                images = torch.from_numpy(test.float_images(places.numpy())).to(run.device)
                labels = torch.from_numpy(test.labels)[places].to(run.device)
                gradients = loss_gradients(network, images, labels)
                with torch.no_grad():
                    runner_up = network(images).scatter(1, labels[:, None], -torch.inf).argmax(dim=1)
                columns = {
                    "image": places,
                    "alignment": alignment(gradients, means[runner_up] - means[labels]),
                    "low_frequency": low_frequency_share(gradients, cutoff),
                    "density": density(gradients),
                }
                found += [
                    {"model": name, **dict(zip(columns, values, strict=True))}
                    for values in zip(*(column.tolist() for column in columns.values()), strict=True)
                ]
            return found

        rows += fit_batch_size(network, run.device, test.image_shape).fit(measure_gradients)
        run.progress(number + 1, len(names))
    return rows
