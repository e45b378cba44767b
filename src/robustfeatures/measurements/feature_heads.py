"""Heads of ReLU neurons on frozen features: what each neuron's weight has in common with each class's feature.

feature-averaging-2025, Figure 1 on CIFAR-10: "each element in the matrix located at position (i, j) is the average
cosine value of the angle between the weight vector of i-th neuron and the feature vector of the j-th feature". The
slides say no more of real images, so features and heads are those of their theory, carried over:

- x is the frozen representation, less its mean over the training images, scaled to a mean square length of D, as the
  clusters have whose centres have the length sqrt(D); the feature mu_j is the mean of x over class j. The mean is taken
  off because a representation after ReLU has a large part that all classes share, beside which every cosine is near 1.
- outputs f_c(x) = 1/m sum over r of ReLU(<w_(c,r), x> + b_(c,r)) under cross-entropy: for two classes, the first half
  of the K classes against the others, which is the logistic loss of f_1 - f_-1; and for all K classes. Gradient descent
  on all images, from small weights. The slides give f_c one neuron where c counts K classes; it may be dead from the
  start, so here it too is a mean of m.

With m = K/2 the 2-class head has K neurons, a row of the matrix each; of the K-class head a row is the mean over the m
neurons of a class. These weights are the equivalent ones: the second layer is fixed, so there is nothing to fold in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from robustfeatures.engine.batches import choose_batch_size, load_batches
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.randomness import derive_seed

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
    """One row per head, neuron and feature: columns head, neuron, feature, cosine, accuracy.

    Neurons and features are numbered from 0, features as the classes. `accuracy` (0 to 1, test split) is the head's on
    its own classes. A third head, "features", of accuracy NaN, holds the cosines of the features with one another.
    """
    network = FrozenNetwork(run.network("model"), precision=precision)
    classes = network.network.head.out_features
    raw = {split: representations(network, run.dataset("data", split), run.device) for split in ("train", "test")}
    mean, scale = standardisation(raw["train"][0])
    (train, train_labels), (test, test_labels) = (((each - mean) * scale, labels) for each, labels in raw.values())
    features = class_means(train, train_labels, classes)
    matrices, accuracy = {FEATURES: cosines(features, features)}, {FEATURES: float("nan")}
    for number, head in enumerate((TWO_CLASSES, K_CLASSES)):
        run.progress(number, 2)
        outputs = 2 if head == TWO_CLASSES else classes
        generator = torch.Generator().manual_seed(derive_seed(seed, head))
        trained = Head(outputs, classes // 2, train.shape[1], initial_std, generator, run.device)
        trained.descend(train, class_or_side(train_labels, classes, outputs), learning_rate, steps)
        right = trained(test).argmax(dim=1) == class_or_side(test_labels, classes, outputs)
        accuracy[head] = right.double().mean().item()
        found = cosines(trained.weights.detach(), features)
        matrices[head] = found if head == TWO_CLASSES else found.view(classes, -1, classes).mean(dim=1)
    return [
        {"head": head, "neuron": neuron, "feature": feature, "cosine": cosine, "accuracy": accuracy[head]}
        for head, matrix in matrices.items()
        for neuron, row in enumerate(matrix.tolist())
        for feature, cosine in enumerate(row)
    ]


def representations(network: FrozenNetwork, data: ImageDataset, device: torch.device) -> tuple[Tensor, Tensor]:
    """g(x), float32 (N, D), of a split, and its labels (N,), on the device."""
    images = load_batches(data, device)
    size = choose_batch_size(device, data.image_shape)
    with torch.no_grad():
        found = [network.representation(batch) for _, batch in images.batches(torch.arange(len(data)), size)]
    return torch.cat(found), torch.from_numpy(data.labels).to(device)


def standardisation(features: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (D,) to take off features (N, D), and the factor () that then makes their mean square length D."""
    mean = features.mean(dim=0)
    return mean, 1 / (features - mean).square().mean().sqrt()


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean (K, D) of the features (N, D) of each class."""
    membership = functional.one_hot(labels, classes).to(features)
    return (membership.T @ features) / membership.sum(dim=0)[:, None]


def class_or_side(labels: Tensor, classes: int, outputs: int) -> Tensor:
    """The labels (N,) themselves where there are as many outputs; else 0 for the first half of the classes, 1 after."""
    return labels if outputs == classes else (labels >= classes // 2).long()


def cosines(weights: Tensor, features: Tensor) -> Tensor:
    """The cosine (n, K) of the angle between each weight (n, D) and each feature (K, D)."""
    return functional.normalize(weights) @ functional.normalize(features).T


class Head:
    """f_c(x) of the module's docstring: `neurons` for each output, those of the first output first."""

    def __init__(
        self, outputs: int, neurons: int, dimension: int, std: float, generator: torch.Generator, device: torch.device
    ) -> None:
        """Weights are drawn from N(0, std^2); biases are 0."""
        drawn = std * torch.randn((outputs * neurons, dimension), generator=generator)
        self.weights = drawn.to(device).requires_grad_()
        self.biases = torch.zeros(outputs * neurons, device=device, requires_grad=True)
        self.outputs = outputs

    def __call__(self, features: Tensor) -> Tensor:
        """The outputs (N, C) of features (N, D)."""
        hidden = (features @ self.weights.T + self.biases).relu()
        return hidden.view(len(features), self.outputs, -1).mean(dim=2)

    def descend(self, features: Tensor, labels: Tensor, learning_rate: float, steps: int) -> None:
        """Gradient descent on the mean cross-entropy of all features (N, D) and labels (N,)."""
        optimiser = torch.optim.SGD([self.weights, self.biases], lr=learning_rate)
        for _ in range(steps):
            optimiser.zero_grad()
            torch.autograd.backward(functional.cross_entropy(self(features), labels))
            optimiser.step()
