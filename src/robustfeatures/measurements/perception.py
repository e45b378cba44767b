"""Measures of visible properties of gradients, perturbations and interpolations (at-odds-2019, Section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset


def class_means(dataset: ImageDataset) -> Tensor:
    """Return the mean image of each class (K, C, H, W), float64; every class needs at least one image."""
    sums = torch.zeros(dataset.num_classes, *dataset.image_shape, dtype=torch.float64)
    labels = torch.from_numpy(dataset.labels)
    for rows in dataset.blocks():
        sums.index_add_(0, labels[rows], torch.from_numpy(dataset.float_images(rows)).double())
    counts = torch.bincount(labels, minlength=dataset.num_classes)
    means: Tensor = sums / counts.view(-1, 1, 1, 1)
    return means


def alignment(directions: Tensor, others: Tensor) -> Tensor:
    """Return the cosine (N,) between `directions` and `others`, both (N, C, H, W); NaN if either is zero."""
    a, b = directions.flatten(1), others.flatten(1)
    cosines: Tensor = (a * b).sum(dim=1) / (_l2_lengths(a) * _l2_lengths(b))
    return cosines


def low_frequency_share(directions: Tensor, cutoff: float) -> Tensor:
    """Return the share (N,) of the energy of directions (N, C, H, W) at frequencies up to `cutoff` times the highest.

    A frequency is the length of its vector in the discrete Fourier transform; the highest along an axis is half a cycle
    per pixel. For white noise the result is the share of such frequencies. It is NaN if a direction is zero.
    """
    energy = torch.fft.fft2(directions).abs().square().sum(dim=1)
    vertical, horizontal = (torch.fft.fftfreq(side, dtype=torch.float64) for side in directions.shape[-2:])
    low = (vertical[:, None].square() + horizontal.square()).sqrt() <= cutoff / 2
    share: Tensor = energy[:, low.to(energy.device)].sum(dim=1) / energy.sum(dim=(1, 2))
    return share


def density(directions: Tensor) -> Tensor:
    """Return |v|_1 / (sqrt(d) |v|_2), (N,), of directions v (N, C, H, W).

    It is 1 if all entries have the same magnitude, and 1 / sqrt(d) if all entries but one are zero.
    """
    flat = directions.flatten(1)
    ratio: Tensor = flat.abs().sum(dim=1) / (flat.shape[1] ** 0.5 * _l2_lengths(flat))
    return ratio


def _l2_lengths(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    return lengths


def interpolate_probabilities(model: nn.Module, first: Tensor, last: Tensor, points: int) -> Tensor:
    """Return class probabilities (T, N, K) at `points` equidistant images from `first` to `last`, both (N, C, H, W)."""
    with torch.no_grad():
        return torch.stack(
            [model(torch.lerp(first, last, share)).softmax(dim=1) for share in torch.linspace(0, 1, points).tolist()]
        )


def transition_width(probabilities: Tensor) -> Tensor:
    """Return the share (N,) of a path on which a probability (T, N) lies between 0.1 and 0.9.

    The probability is interpolated linearly between the T points. A linear rise from 0 to 1 has a width of 0.8; a jump
    between two neighbouring points has a width below 1 / (T - 1).
    """
    before, after = probabilities[:-1], probabilities[1:]
    low, high = torch.minimum(before, after), torch.maximum(before, after)
    inside = (high.clamp(max=0.9) - low.clamp(min=0.1)).clamp(min=0)
    resting = ((low >= 0.1) & (high <= 0.9)).to(probabilities.dtype)
    share = torch.where(high > low, inside / (high - low).clamp_min(1e-300), resting)
    return share.mean(dim=0)


def detour(probabilities: Tensor) -> Tensor:
    """Return the total variation (N,) of a probability (T, N) minus its net change; 0 if it is monotonic."""
    steps = probabilities.diff(dim=0)
    return steps.abs().sum(dim=0) - steps.sum(dim=0).abs()
