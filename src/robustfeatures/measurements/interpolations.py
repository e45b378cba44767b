"""Adversarial examples with a large radius, and the way to them (at-odds-2019, Figures 3, 4, 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from robustfeatures.engine.batches import choose_batch_size
from robustfeatures.measurements.perception import (
    alignment,
    class_means,
    detour,
    low_frequency_share,
    probabilities_between,
    transition_width,
)

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Row = dict[str, str | int | float]


def measure(run: Run, *, examples: Mapping[str, str], cutoff: float, points: int) -> Sequence[Row]:
    """One row per network and test image of the input "data".

    `examples` gives the inputs: by that of each network the one that holds the adversarial examples against it.

    `reached` is the class that the network sees in the example. `alignment` is the cosine between the perturbation and
    the way from the mean training image of the label's class to that of the class reached; `width` and `detour` are of
    the probability of the class reached at `points` on the line from the image to the example. All three are nan where
    the class reached is the label.
    """
    test = run.dataset("data", "test")
    means = class_means(run.dataset("data", "train")).to(run.device)
    size = choose_batch_size(run.device, test.image_shape)
    rows: list[Row] = []
    for number, (name, role) in enumerate(sorted(examples.items())):
        network, attacked = run.network(name), run.dataset(role, "test")
        for places in torch.split(torch.arange(len(test)), size):
            images, last = (
                torch.from_numpy(dataset.float_images(places.numpy())).to(run.device) for dataset in (test, attacked)
            )
            labels = torch.from_numpy(test.labels)[places].to(run.device)
            probabilities = probabilities_between(network, images, last, points).double()
            reached = probabilities[-1].argmax(dim=1)
            followed = probabilities[:, torch.arange(len(labels)), reached]
            stayed = (reached == labels).cpu()
            change = (last - images).double()
            ways = means[reached] - means[labels]
            columns = {
                "image": places,
                "label": labels,
                "reached": reached,
                "low_frequency": low_frequency_share(change, cutoff),
                "alignment": alignment(change, ways).cpu().masked_fill(stayed, torch.nan),
                "width": transition_width(followed).cpu().masked_fill(stayed, torch.nan),
                "detour": detour(followed).cpu().masked_fill(stayed, torch.nan),
            }
            rows += [
                {"model": name, **dict(zip(columns, values, strict=True))}
                for values in zip(*(column.tolist() for column in columns.values()), strict=True)
            ]
        run.progress(number + 1, len(examples))
    return rows
