"""Heads of ReLU neurons on frozen features: the cosine between each neuron's weight and each class's feature.

feature-averaging-2025, Figure 1: "each element in the matrix located at position (i, j) is the average
cosine value of the angle between the weight vector of i-th neuron and the feature vector of the j-th feature". The
slides name no data set for this figure, and do not define features and heads for real images. This module applies the
definitions of their theory:

- x is the frozen representation. Its mean over the training images is subtracted, and x is scaled to a mean square
  length of D. The clusters of the theory have this length, because their centres have the length sqrt(D). The feature
  mu_j is the mean of x over class j. Without the subtraction every cosine would be near 1, because representations
  after ReLU share a large part between all classes.
- The outputs are f_c(x) = 1/m sum over r of ReLU(<w_(c,r), x> + b_(c,r)). They are trained with cross-entropy, by
  gradient descent on all images from small weights. One head has two classes: the first half of the K classes, and
  the second half. Its loss is the logistic loss of f_1 - f_-1. The other head has all K classes. There the slides have
  one neuron per class. One neuron may be dead from the start, so here f_c is a mean of m neurons as well.

With m = K/2 the 2-class head has K neurons, one row of the matrix each. A row of the K-class head is the mean over the
m neurons of a class. The second layer is fixed, so the weights of the first layer are the equivalent weights.

The theorems are about the lambda of w = w_0 + sum over j of lambda_j mu_j + sum over i of sigma_i xi_i, with
x_i = mu_j + xi_i for the images i of class j. The weights alone do not determine lambda here: the centred features are
linearly dependent (with equally many images their sum is 0), and there are more images than dimensions. Cosines do not
tell lambda either, because features of real images are not orthogonal. But each step of gradient descent adds a
multiple sigma_i of every x_i to w, so lambda_j is the sum of sigma_i over the images of class j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from robustfeatures.engine.batch_size import fit_batch_size
from robustfeatures.engine.batches import load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import derive_seed
from robustfeatures.errors import UserError

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.engine.run import Run
    from robustfeatures.engine.settings import Precision

TWO_CLASSES = "2-class"
K_CLASSES = "k-class"
FEATURES = "features"


def measure(
    run: Run,
    *,
    learning_rate: float,
    steps: int,
    initial_std: float,
    precision: Precision,
    seed: int,
) -> Sequence[Mapping[str, str | int | float]]:
    """Return one row per head, neuron and feature: columns head, neuron, feature, cosine, coefficient, accuracy.

    Neurons and features are numbered from 0; features are numbered like the classes. `coefficient` is lambda D, because
    features have lengths of the order of sqrt(D). `accuracy` (0 to 1) is the accuracy of the head on the test split.
    The rows of a third head, "features", hold the cosines between the features; their coefficient and accuracy are NaN.
    """
    network = FrozenNetwork(run.network("model"), precision=precision)
    classes = network.network.head.out_features
    if classes % 2:
        raise UserError(f"data: {classes} classes cannot be divided into two equal sides")
    raw = {
        split: compute_representations(network, run.dataset("data", split), run.device) for split in ("train", "test")
    }
    mean, scale = fit_standardisation(raw["train"][0])
    (train, train_labels), (test, test_labels) = (((each - mean) * scale, labels) for each, labels in raw.values())
    features = class_means(train, train_labels, classes)
    matrices, accuracy = {FEATURES: cosines(features, features)}, {FEATURES: float("nan")}
    coefficients = {FEATURES: torch.full((classes, classes), torch.nan)}
    for number, name in enumerate((TWO_CLASSES, K_CLASSES)):
        run.progress(number, 2)
        outputs = 2 if name == TWO_CLASSES else classes
        generator = torch.Generator().manual_seed(derive_seed(seed, name))
        head = Head(outputs, classes // 2, train.shape[1], initial_std, generator, run.device)
        sigma = head.fit(train, to_head_labels(train_labels, classes, outputs), learning_rate, steps)
        correct = head(test).argmax(dim=1) == to_head_labels(test_labels, classes, outputs)
        accuracy[name] = correct.double().mean().item()
        rows_of_neurons = (classes, -1, classes)
        matrices[name] = cosines(head.weights.detach(), features).view(rows_of_neurons).mean(dim=1)
        summed = train.shape[1] * sum_by_class(sigma, train_labels, classes)
        coefficients[name] = summed.view(rows_of_neurons).mean(dim=1)
    return [
        {
            "head": name,
            "neuron": neuron,
            "feature": feature,
            "cosine": float(matrix[neuron, feature]),
            "coefficient": float(coefficients[name][neuron, feature]),
            "accuracy": accuracy[name],
        }
        for name, matrix in matrices.items()
        for neuron in range(classes)
        for feature in range(classes)
    ]


def compute_representations(network: FrozenNetwork, data: ImageDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the representations g(x), float32 (N, D), and the labels (N,) of a split, on the device."""
    images = load_batches(data, device)

    @torch.no_grad()
    def represent(size: int) -> Tensor:
        batches = images.batches(torch.arange(len(data)), size)
        return torch.cat([network.representation(batch) for _, batch in batches])

    representations = fit_batch_size(network, device, data.image_shape).fit(represent)
    return representations, torch.from_numpy(data.labels).to(device)


def fit_standardisation(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (D,) of features (N, D), and the factor () that scales centred features to a mean square of 1."""
    mean = features.mean(dim=0)
    return mean, 1 / (features - mean).square().mean().sqrt()


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the mean feature (K, D) of each class, from features (N, D) and labels (N,)."""
    membership = functional.one_hot(labels, classes).to(features)
    return (membership.T @ features) / membership.sum(dim=0)[:, None]


def sum_by_class(sigma: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return lambda (n, K), the sum over each class of the coefficients (N, n) of images with labels (N,)."""
    return sigma.T @ functional.one_hot(labels, classes).to(sigma)


def to_head_labels(labels: Tensor, classes: int, outputs: int) -> Tensor:
    """Return the labels (N,) of a K-class head; for a 2-class head, 0 for the first half of the classes and 1 after."""
    return labels if outputs == classes else (labels >= classes // 2).long()


def cosines(weights: Tensor, features: Tensor) -> Tensor:
    """Return the cosine (n, K) of the angle between each weight (n, D) and each feature (K, D)."""
    return functional.normalize(weights) @ functional.normalize(features).T


class Head:
    """The head f_c(x) of the module's docstring, with `neurons` neurons for each output, ordered by output."""

    def __init__(
        self, outputs: int, neurons: int, dimension: int, std: float, generator: torch.Generator, device: torch.device
    ) -> None:
        """Draw the weights from N(0, std^2); the biases are 0."""
        weights = std * torch.randn((outputs * neurons, dimension), generator=generator)
        self.weights = weights.to(device).requires_grad_()
        self.biases = torch.zeros(outputs * neurons, device=device, requires_grad=True)
        self.outputs = outputs

    def __call__(self, features: Tensor) -> Tensor:
        """Return the outputs (N, C) for features (N, D)."""
        return self.outputs_of(self.responses(features))

    def responses(self, features: Tensor) -> Tensor:
        """Return the responses <w, x> + b (N, n) of the neurons, before the ReLU."""
        return features @ self.weights.T + self.biases

    def outputs_of(self, responses: Tensor) -> Tensor:
        """Return the outputs (N, C) for responses (N, n)."""
        return responses.relu().view(len(responses), self.outputs, -1).mean(dim=2)

    def fit(self, features: Tensor, labels: Tensor, learning_rate: float, steps: int) -> Tensor:
        """Minimise the mean cross-entropy of features (N, D) and labels (N,) by full-batch gradient descent.

        Returns sigma (N, n), the coefficients with which the weights hold each image: W = W_0 + sigma^T X.
        """
        optimiser = torch.optim.SGD([self.weights, self.biases], lr=learning_rate)
        sigma = torch.zeros(len(features), len(self.weights), device=features.device)
        for _ in range(steps):
            optimiser.zero_grad()
            responses = self.responses(features)
            responses.retain_grad()
            torch.autograd.backward(functional.cross_entropy(self.outputs_of(responses), labels))
            assert responses.grad is not None
            sigma -= learning_rate * responses.grad
            optimiser.step()
        return sigma
