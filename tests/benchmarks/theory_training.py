"""Trainings of the toy models beside the plain way: one network at a time, by autograd on the points themselves."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from robustfeatures.theory.feature_averaging import Task, cluster_indices, draw_initial_weights, gradient_descent
from robustfeatures.theory.ideal_radii import K_CLASSES, TWO_CLASSES
from robustfeatures.theory.patch_data import Patches, draw
from robustfeatures.theory.patch_network import activation, clip, logits
from robustfeatures.theory.patch_training import draw_initial_weights as draw_patch_weights
from robustfeatures.theory.patch_training import train_step
from robustfeatures.theory.settings import PatchConstants
from tests.benchmarks.timing import side_by_side

CPU = torch.device("cpu")
SAMPLES, DIMENSION, NEURONS, STEPS, RATE = 1000, 3072, 5, 100, 1e-3
CLUSTERS = (2, 4, 6, 10, 16)
PATCHES = PatchConstants(
    classes=5,
    dimension=100,
    patches=64,
    robust_patches=1,
    alpha=1.0,
    beta=0.35,
    spread=0.05,
    noise=0.01,
    width=8,
    exponent=3,
    threshold=1.0,
    samples=50,
    learning_rate=1.0,
    ascent_rate=2.0,
    radius=0.55,
)
PATCH_STEPS = 50


def clusters(rounds: int) -> dict[str, float]:
    """Ten networks on the points of one seed at the paper's size, 100 steps: together, and one after another."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(SAMPLES, DIMENSION, generator=generator)
    tasks = [Task(kind, count, NEURONS, count // 2) for count in CLUSTERS for kind in (TWO_CLASSES, K_CLASSES)]
    starts = [draw_initial_weights(task, DIMENSION, 1e-5, generator, noise.dtype) for task in tasks]

    def plain() -> None:
        for task, (weights, biases) in zip(tasks, starts, strict=True):
            descend_on_points(noise, task, weights, biases)

    ways = {
        "ours": lambda: gradient_descent(noise, tasks, starts, learning_rate=RATE, steps=STEPS),
        "plain loop": plain,
    }
    return side_by_side(ways, CPU, rounds)


def descend_on_points(noise: Tensor, task: Task, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient descent by autograd; a network of k classes has no biases."""
    places = cluster_indices(SAMPLES, task.clusters)
    points = noise.clone()
    points[torch.arange(SAMPLES), places] += math.sqrt(DIMENSION)
    labels, output_weights = task.labels(places), task.output_weights(noise)
    for _ in range(STEPS):
        weights, biases = weights.detach().requires_grad_(), biases.detach().requires_grad_()
        loss = cross_entropy((points @ weights.T + biases).relu() @ output_weights, labels)
        for_weights, for_biases = torch.autograd.grad(loss, (weights, biases))
        weights = weights - RATE * for_weights
        if task.kind == TWO_CLASSES:
            biases = biases - RATE * for_biases
    return weights.detach(), biases.detach()


def patches(rounds: int) -> dict[str, float]:
    """Fifty steps of adversarial training on patch data: gradients in closed form, and by autograd."""
    data = draw(PATCHES, PATCHES.samples, torch.Generator().manual_seed(0))
    first = draw_patch_weights(PATCHES, torch.Generator().manual_seed(1))

    def ours() -> None:
        weights = first
        for _ in range(PATCH_STEPS):
            _, weights = train_step(weights, data, PATCHES, adversarial=True)

    def plain() -> None:
        weights = first
        for _ in range(PATCH_STEPS):
            weights = adversarial_step(weights, data)

    return side_by_side({"ours": ours, "plain loop": plain}, CPU, rounds)


def adversarial_step(weights: Tensor, data: Patches) -> Tensor:
    """One step of adversarial training by autograd."""
    relu = activation(PATCHES)
    points = data.points.detach().requires_grad_()
    own = logits(weights, points, relu).gather(1, data.labels[:, None]).sum()
    (ascent,) = torch.autograd.grad(own, points)
    moved = data.points + clip(-PATCHES.ascent_rate * ascent, PATCHES.radius)
    weights = weights.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(logits(weights, moved, relu), data.labels), weights)
    return (weights - PATCHES.learning_rate * gradient).detach()
