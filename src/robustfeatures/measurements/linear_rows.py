"""What is said of a two-class linear classifier, as rows, and the images it is said of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from robustfeatures.errors import UserError
from robustfeatures.measurements.linear import Array, Linear, Problem, accuracy

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Row: TypeAlias = dict[str, str | int | float]


def two_classes(run: Run, split: str) -> tuple[Array, Array]:
    """The images (N, D) in [0, 1] of a split of the input "data", and their labels: -1 for the first class, else 1.

    Raises:
        UserError: the data set has another number of classes.
    """
    data = run.dataset("data", split)
    if data.num_classes != 2:
        raise UserError(f"data: {data.num_classes} classes, where a linear classifier of two is measured")
    return data.float_images().astype(np.float64).reshape(len(data), -1), (2 * data.labels - 1).astype(np.float64)


def problem(run: Run, *, eps: float, decay: float) -> Problem:
    """The training of the network `linear` on the train split, as `measurements.linear` puts it."""
    images, labels = two_classes(run, "train")
    data = run.dataset("data", "train")
    per_pixel = images.shape[1] // data.image_shape[0]
    mean, std = (np.repeat(values, per_pixel) for values in data.channel_statistics())
    return Problem(images, labels, eps, decay, mean, std)


def rows_of(
    classifier: Linear, run: Run, *, training: str, solver: str, eps: float, decay: float, pixels: int
) -> Iterator[Row]:
    """Accuracy on both splits, clean and in the worst case of radius `eps`; l1 norm; the objective of its training.

    `pixels` says how many it was trained on.
    """
    about: Row = {"training": training, "solver": solver, "pixels": pixels}
    for split in ("train", "test"):
        images, labels = two_classes(run, split)
        for radius in (0.0, eps):
            share = accuracy(classifier, images, labels, radius)
            yield {**about, "quantity": "accuracy", "split": split, "eps": radius, "pixel": -1, "value": share}
    trained = problem(run, eps=eps if training == "adversarial" else 0.0, decay=decay)
    for quantity, value in (
        ("l1_norm", float(np.abs(classifier.weights).sum())),
        ("objective", trained.objective(classifier)),
    ):
        yield {**about, "quantity": quantity, "split": "train", "eps": trained.eps, "pixel": -1, "value": value}


def pixel_rows(values: Array, quantity: str, *, training: str, solver: str) -> Iterator[Row]:
    """One row per pixel: its weight, or its correlation with the label."""
    for pixel, value in enumerate(values):
        yield {
            "training": training,
            "solver": solver,
            "pixels": len(values),
            "quantity": quantity,
            "split": "train",
            "eps": 0.0,
            "pixel": pixel,
            "value": float(value),
        }
