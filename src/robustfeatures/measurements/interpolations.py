"""Adversarial examples with a large radius, and interpolations to them (at-odds-2019, Figures 3, 4, 8 and 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from robustfeatures.engine.batches import choose_batch_size
from robustfeatures.measurements.perception import (
    alignment,
    class_means,
    detour,
    interpolate_probabilities,
    low_frequency_share,
    transition_width,
)

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Row = dict[str, str | int | float]


def measure(run: Run, *, examples: Mapping[str, str], cutoff: float, points: int) -> Sequence[Row]:
    """Return one row per network and test image of the input "data".

    `examples` maps the input of each network to the input with the adversarial examples against this network. Columns:

    reached: the predicted class of the adversarial example.
    alignment: the cosine between the perturbation and the difference of mean images, class reached minus label.
    width, detour: `transition_width` and `detour` of the probability of the class reached, at `points` points on the
        line from the image to the example.

    alignment, width and detour are NaN if the class reached is the label.
    """
    test = run.dataset("data", "test")
    means = class_means(run.dataset("data", "train")).to(run.device)
    size = choose_batch_size(run.device, test.image_shape)
    rows: list[Row] = []
    for number, (name, role) in enumerate(sorted(examples.items())):
        network, attacked = run.network(name), run.dataset(role, "test")
        for places in torch.split(torch.arange(len(test)), size):
            images, adversarial = (
                torch.from_numpy(dataset.float_images(places.numpy())).to(run.device) for dataset in (test, attacked)
            )
            labels = torch.from_numpy(test.labels)[places].to(run.device)
            probabilities = interpolate_probabilities(network, images, adversarial, points).double()
            reached = probabilities[-1].argmax(dim=1)
            path = probabilities[:, torch.arange(len(labels)), reached]
            unchanged = (reached == labels).cpu()
            perturbation = (adversarial - images).double()
            directions = means[reached] - means[labels]
            columns = {
                "image": places,
                "label": labels,
                "reached": reached,
                "low_frequency": low_frequency_share(perturbation, cutoff),
                "alignment": alignment(perturbation, directions).cpu().masked_fill(unchanged, torch.nan),
                "width": transition_width(path).cpu().masked_fill(unchanged, torch.nan),
                "detour": detour(path).cpu().masked_fill(unchanged, torch.nan),
            }
            rows += [
                {"model": name, **dict(zip(columns, values, strict=True))}
                for values in zip(*(column.tolist() for column in columns.values()), strict=True)
            ]
        run.progress(number + 1, len(examples))
    return rows
