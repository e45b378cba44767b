"""Augmentation of a batch on its device, drawn per epoch and example from the recipe's seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from robustfeatures.training.settings import Augmentation

# Weights of red, green and blue in the grey value of a pixel (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)
# The aspect ratios of a crop, as in torchvision's RandomResizedCrop.
RATIOS = (3 / 4, 4 / 3)


class Augmenter:
    """One epoch of random changes; what happens to an image depends on its row alone, not on its batch."""

    def __init__(self, settings: Augmentation, count: int, generator: torch.Generator, device: torch.device) -> None:
        """Draw for `count` images with `generator` (on the CPU); one copy to the device serves the whole epoch."""
        self.settings = settings
        reach = settings.crop_padding
        self.offsets = torch.randint(0, 2 * reach + 1, (count, 2), generator=generator).to(device)
        # In the order used: flip; crop's area, ratio, place (2); angle; brightness, contrast, saturation.
        self.uniform = torch.rand((count, 9), generator=generator).to(device)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        """The images (n, C, H, W) in [0, 1] of these rows (n,), changed."""
        settings, uniform = self.settings, self.uniform[rows]
        if settings.crop_padding:
            images = cropped(images, self.offsets[rows], settings.crop_padding)
        if settings.flip:
            images = torch.where(uniform[:, 0, None, None, None] < 0.5, images.flip(3), images)
        if settings.smallest_crop is not None or settings.rotation:
            images = moved(images, uniform[:, 1:6], settings.smallest_crop, settings.rotation)
        if settings.colour_jitter:
            images = jittered(images, 1 + settings.colour_jitter * (2 * uniform[:, 6:9] - 1))
        return images


def cropped(images: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Each image padded by `padding` zeros, then cut to its old size at its offset (n, 2) of 0 to 2 * `padding`."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    index = torch.arange(count, device=images.device)[:, None, None]
    found: Tensor = padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]]
    return found.permute(0, 3, 1, 2).contiguous()


def moved(images: Tensor, uniform: Tensor, smallest_crop: float | None, rotation: float) -> Tensor:
    """Each image cut to a random part, turned, and resized to its old size by bilinear interpolation."""
    area = 1.0 if smallest_crop is None else smallest_crop + (1 - smallest_crop) * uniform[:, 0]
    low, high = map(math.log, RATIOS)
    ratio = (
        torch.exp(low + (high - low) * uniform[:, 1]) if smallest_crop is not None else torch.ones_like(uniform[:, 1])
    )
    width, height = (area * ratio).sqrt().clamp_max(1.0), (area / ratio).sqrt().clamp_max(1.0)
    across, down = (1 - width) * (2 * uniform[:, 2] - 1), (1 - height) * (2 * uniform[:, 3] - 1)
    angle = math.radians(rotation) * (2 * uniform[:, 4] - 1)
    cosine, sine = angle.cos(), angle.sin()
    # Either side is 2 long there, whatever its pixels.
    aspect = images.shape[2] / images.shape[3]
    rows = [
        torch.stack([width * cosine, -height * sine * aspect, across], 1),
        torch.stack([width * sine / aspect, height * cosine, down], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    # What a turn uncovers is black, as in torchvision; a crop alone uncovers nothing, but samples half a pixel beyond.
    padding = "zeros" if rotation else "border"
    return functional.grid_sample(images, grid, padding_mode=padding, align_corners=False)


def jittered(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation scaled by `factors` (n, 3), in this order, clipped to [0, 1] after each.

    Contrast is the distance to the image's mean grey, saturation that to each pixel's own grey; grey images have none.
    """
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    images = (images * brightness).clamp(0, 1)
    mean = grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images = (mean + contrast * (images - mean)).clamp(0, 1)
    pixel = grey(images)
    return (pixel + saturation * (images - pixel)).clamp(0, 1)


def grey(images: Tensor) -> Tensor:
    """The grey values (n, 1, H, W) of images (n, 1 or 3, H, W)."""
    if images.shape[1] == 1:
        return images
    # By numbers: a tensor of them would be copied to the device, which waits for it.
    red, green, blue = images.unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]
