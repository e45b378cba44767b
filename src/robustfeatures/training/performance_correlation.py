"""Performance correlation: how much of what a classifier gets right a simpler one explains.

Nakkiran et al. (2019), "SGD on Neural Networks Learns Functions of Increasing Complexity", Definition 1: for
predictions F, labels Y and the predictions L of the simple classifier, mu = I(F; Y) - I(F; Y | L). They have two
classes; two-pathways-2021, Section 4.3, takes several and the best simple classifier for a multi-class logistic
regression, and does not say in which unit. Here logarithms are to the base C, the number of classes: mu is at most 1,
and in bits for two classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma
from sklearn.linear_model import LogisticRegression

# Of the solver, L-BFGS, which needs some hundreds on flattened images.
MOST_ITERATIONS = 1000


def entropy(*columns: NDArray[np.int64]) -> float:
    """The joint entropy, in nats, of what the columns (N,) were drawn from.

    The estimator of Grassberger (2008), "Entropy Estimates from Insufficient Samplings", equations 28 and 30: H = ln N
    - 1/N sum_i n_i G(n_i), with G(n) = psi(n) + (-1)^n / 2 [psi((n + 1) / 2) - psi(n / 2)] and n_i the count of value
    i. Its bias is much smaller than that of the plug-in, also where most values are seen once or never, as among the
    C^3 of a conditional mutual information.
    """
    counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)[1].astype(float)
    alternating = np.where(counts % 2 == 0, 0.5, -0.5)
    gain = digamma(counts) + alternating * (digamma((counts + 1) / 2) - digamma(counts / 2))
    total = counts.sum()
    return float(np.log(total) - (counts * gain).sum() / total)


def performance_correlation(
    predictions: NDArray[np.int64], labels: NDArray[np.int64], simple: NDArray[np.int64], num_classes: int
) -> float:
    """mu = I(F; Y) - I(F; Y | L) to the base `num_classes`, of predictions, labels and simple predictions (N,).

    The same as I(F; L) + I(Y; L) - I((F, Y); L). Estimates of what is 0 scatter round it.
    """
    f, y, simpler = predictions, labels, simple
    nats = (
        entropy(f)
        + entropy(y)
        + entropy(simpler)
        - entropy(f, y)
        - entropy(f, simpler)
        - entropy(y, simpler)
        + entropy(f, y, simpler)
    )
    return float(nats / np.log(num_classes))


def simple_predictions(
    images: NDArray[np.float32], labels: NDArray[np.int64], asked: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The classes (M,) that a logistic regression fitted to images (N, C, H, W) and labels (N,) gives to others.

    scikit-learn's, on the pixels, with its standard penalty; nothing in it is drawn.
    """
    fitted = LogisticRegression(max_iter=MOST_ITERATIONS).fit(images.reshape(len(images), -1), labels)
    found: NDArray[np.int64] = fitted.predict(asked.reshape(len(asked), -1))
    return found
