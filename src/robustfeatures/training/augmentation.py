"""Augmentation of a batch on its device, drawn per epoch and batch from the recipe's seed."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Images of 8 pixels are moved by 1, of 32 by 4: an eighth of the side, as in the common CIFAR-10 recipe.
SHIFT_DIVISOR = 8


def shift(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image (N, C, H, W) moved by up to an eighth of its side in both directions, zeros coming in."""
    count, _, height, width = images.shape
    reach = max(1, height // SHIFT_DIVISOR)
    padded = functional.pad(images, (reach,) * 4)
    offsets = torch.randint(0, 2 * reach + 1, (2, count), generator=generator).to(images.device)
    rows = offsets[0][:, None] + torch.arange(height, device=images.device)
    columns = offsets[1][:, None] + torch.arange(width, device=images.device)
    index = torch.arange(count, device=images.device)[:, None, None]
    moved: Tensor = padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()
