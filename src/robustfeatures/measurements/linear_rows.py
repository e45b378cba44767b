"""The rows that describe a linear classifier of two classes, and the images that it classifies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from robustfeatures.errors import UserError
from robustfeatures.measurements.linear import Array, LinearClassifier, TrainingProblem, accuracy

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run

Row: TypeAlias = dict[str, str | int | float]

# The attacks on a linear classifier: in the Linf ball and [0, 1], and in the whole ball.
CLIPPED, UNCLIPPED = "clipped", "not clipped"
NO_ATTACK = "none"


def load_two_classes(run: Run, split: str) -> tuple[Array, Array]:
    """Load a split of the input "data": images (N, D) in [0, 1], and labels (N,), -1 for the first class, else 1.

    Raises:
        UserError: the data set does not have two classes.
    """
    data = run.dataset("data", split)
    if data.num_classes != 2:
        raise UserError(f"data: the data set has {data.num_classes} classes; a linear classifier needs two")
    return data.float_images().astype(np.float64).reshape(len(data), -1), (2 * data.labels - 1).astype(np.float64)


def load_problem(run: Run, *, eps: float, decay: float, clipped: bool = True) -> TrainingProblem:
    """Load the problem that the training of the network `linear` on the train split solves."""
    images, labels = load_two_classes(run, "train")
    data = run.dataset("data", "train")
    per_pixel = images.shape[1] // data.image_shape[0]
    mean, std = (np.repeat(values, per_pixel) for values in data.channel_statistics())
    return TrainingProblem(images, labels, eps, decay, mean, std, clipped)


def describe_classifier(
    classifier: LinearClassifier,
    run: Run,
    problem: TrainingProblem,
    *,
    training: str,
    solver: str,
    eps: float,
    pixels: int,
) -> Iterator[Row]:
    """Yield the rows of a classifier: accuracies on both splits, l1 norm, and the objective of its training problem.

    Accuracies are under no attack, and at `eps` under both attacks; `total` is their number of images. `pixels` is the
    number of pixels that it was trained on.
    """
    about: Row = {"training": training, "solver": solver, "pixels": pixels, "pixel": -1, "total": 0}
    for split in ("train", "test"):
        images, labels = load_two_classes(run, split)
        for attack, radius in ((NO_ATTACK, 0.0), (CLIPPED, eps), (UNCLIPPED, eps)):
            value = accuracy(classifier, images, labels, radius, clipped=attack == CLIPPED)
            measured: Row = {"quantity": "accuracy", "split": split, "eps": radius, "attack": attack, "value": value}
            yield {**about, **measured, "total": len(labels)}
    for quantity, value in (
        ("l1_norm", float(np.abs(classifier.weights).sum())),
        ("objective", problem.objective(classifier)),
    ):
        yield {**about, "quantity": quantity, "split": "train", "eps": problem.eps, "attack": "", "value": value}


def describe_pixels(values: Array, quantity: str, *, training: str, solver: str) -> Iterator[Row]:
    """Yield one row per pixel with its weight, or its correlation with the label."""
    for pixel, value in enumerate(values):
        yield {
            "training": training,
            "solver": solver,
            "pixels": len(values),
            "quantity": quantity,
            "split": "train",
            "eps": 0.0,
            "attack": "",
            "pixel": pixel,
            "total": 0,
            "value": float(value),
        }
