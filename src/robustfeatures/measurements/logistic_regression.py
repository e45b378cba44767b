"""The classes that a logistic regression of the pixels predicts: the simple classifier of two-pathways-2021.

Section 4.3 compares networks with a multi-class logistic regression. `training/performance_correlation.py` says how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

if TYPE_CHECKING:
    from robustfeatures.engine.run import Run


def measure(run: Run, *, split: str) -> Sequence[Mapping[str, int]]:
    """Fit to the train split of the input "data". Return a row per image of a split of the input "predicted".

    A row has the `image`, counted from 0, and its `prediction`.
    """
    data = run.dataset("data", "train")
    new_images = run.dataset("predicted", split).float_images()
    predictions = predict_by_logistic_regression(data.float_images(), data.labels, new_images)
    return [{"image": image, "prediction": int(prediction)} for image, prediction in enumerate(predictions)]


def predict_by_logistic_regression(
    images: NDArray[np.float32], labels: NDArray[np.int64], new_images: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Fit a logistic regression to images (N, C, H, W) and labels (N,), and predict the classes (M,) of `new_images`.

    scikit-learn's logistic regression of the pixels, with its default penalty, has no randomness. It runs in float64,
    so that rounding, which depends on the number of threads, has little influence on where the solver stops. The mean
    image is subtracted, which the intercept makes up for. On 45 000 photographs L-BFGS has not converged after 1000
    iterations; Newton's method converges.
    """
    mean = images.mean(axis=0, dtype=np.float64)
    classifier = LogisticRegression(solver="newton-cg").fit(_flatten(images - mean), labels)
    predictions: NDArray[np.int64] = classifier.predict(_flatten(new_images - mean))
    return predictions


def _flatten(images: NDArray[np.float64]) -> NDArray[np.float64]:
    return images.reshape(len(images), -1)
