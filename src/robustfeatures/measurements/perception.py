"""Numbers for what the eye sees in gradients, perturbations and interpolations (at-odds-2019, Section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from robustfeatures.data.dataset import ImageDataset


def class_means(dataset: ImageDataset) -> Tensor:
    """The mean image of each class (K, C, H, W), float64; every class needs an image."""
    sums = torch.zeros(dataset.num_classes, *dataset.image_shape, dtype=torch.float64)
    labels = torch.from_numpy(dataset.labels)
    for rows in dataset.blocks():
        sums.index_add_(0, labels[rows], torch.from_numpy(dataset.float_images(rows)).double())
    counts = torch.bincount(labels, minlength=dataset.num_classes)
    means: Tensor = sums / counts.view(-1, 1, 1, 1)
    return means


def alignment(directions: Tensor, others: Tensor) -> Tensor:
    """The cosine (N,) between directions (N, C, H, W) and others of the same shape; nan where one of both is zero."""
    one, other = directions.flatten(1), others.flatten(1)
    cosines: Tensor = (one * other).sum(dim=1) / (_length(one) * _length(other))
    return cosines


def low_frequency_share(directions: Tensor, cutoff: float) -> Tensor:
    """The share (N,) of the energy of directions (N, C, H, W) at frequencies up to `cutoff` times the highest.

    Frequencies are lengths in the plane, of the discrete Fourier transform; the highest along an axis is half a cycle
    per pixel. Of white noise the share is that of the frequencies so low; nan where a direction is zero.
    """
    energy = torch.fft.fft2(directions).abs().square().sum(dim=1)
    vertical, horizontal = (torch.fft.fftfreq(side, dtype=torch.float64) for side in directions.shape[-2:])
    low = (vertical[:, None].square() + horizontal.square()).sqrt() <= cutoff / 2
    share: Tensor = energy[:, low.to(energy.device)].sum(dim=1) / energy.sum(dim=(1, 2))
    return share


def density(directions: Tensor) -> Tensor:
    """|v|_1 / (sqrt(d) |v|_2) of directions (N, C, H, W), (N,): 1 if all pixels are as large, 1 / sqrt(d) if one is."""
    flat = directions.flatten(1)
    found: Tensor = flat.abs().sum(dim=1) / (flat.shape[1] ** 0.5 * _length(flat))
    return found


def _length(vectors: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    return found


def probabilities_between(model: nn.Module, first: Tensor, last: Tensor, points: int) -> Tensor:
    """Class probabilities (T, N, K) at `points` even steps along the line from `first` to `last`, (N, C, H, W) both."""
    with torch.no_grad():
        return torch.stack(
            [model(torch.lerp(first, last, share)).softmax(dim=1) for share in torch.linspace(0, 1, points).tolist()]
        )


def transition_width(probabilities: Tensor) -> Tensor:
    """The share (N,) of the way on which a probability (T, N) lies between one and nine tenths.

    A way of T - 1 pieces on which it changes evenly; a jump between two neighbouring points has a width below 1 / (T -
    1), an even rise from 0 to 1 has 0.8.
    """
    before, after = probabilities[:-1], probabilities[1:]
    low, high = torch.minimum(before, after), torch.maximum(before, after)
    inside = (high.clamp(max=0.9) - low.clamp(min=0.1)).clamp(min=0)
    resting = ((low >= 0.1) & (high <= 0.9)).to(probabilities.dtype)
    share = torch.where(high > low, inside / (high - low).clamp_min(1e-300), resting)
    return share.mean(dim=0)


def detour(probabilities: Tensor) -> Tensor:
    """How far a probability (T, N) goes beyond its change from first to last value, (N,); 0 if it never turns."""
    steps = probabilities.diff(dim=0)
    return steps.abs().sum(dim=0) - steps.sum(dim=0).abs()
