"""Augmentation of batches on their device; the seed draws the changes of each image in each epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from robustfeatures.training.settings import Augmentation

# The weights of red, green and blue in the grey value of a pixel (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)
# The aspect ratios of a crop, as in torchvision's RandomResizedCrop.
RATIOS = (3 / 4, 4 / 3)


class Augmenter:
    """The random changes of one epoch; the change of an image depends on its row, not on its batch."""

    def __init__(self, settings: Augmentation, count: int, generator: torch.Generator, device: torch.device) -> None:
        """Draw the changes of `count` images with `generator` (on the CPU), and copy them to the device once."""
        self.settings = settings
        largest_offset = 2 * settings.crop_padding
        self.offsets = torch.randint(0, largest_offset + 1, (count, 2), generator=generator).to(device)
        # The columns: flip; area, aspect ratio, x and y of the crop; angle; brightness, contrast, saturation.
        self.uniform = torch.rand((count, 9), generator=generator).to(device)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        """Augment the images (n, C, H, W) in [0, 1] of these rows (n,)."""
        settings, uniform = self.settings, self.uniform[rows]
        if settings.crop_padding:
            images = crop(images, self.offsets[rows], settings.crop_padding)
        if settings.flip:
            images = torch.where(uniform[:, 0, None, None, None] < 0.5, images.flip(3), images)
        if settings.smallest_crop is not None:
            images = resize_crop(images, uniform[:, 1:5], settings.smallest_crop)
        if settings.rotation:
            images = rotate(images, uniform[:, 5], settings.rotation)
        if settings.colour_jitter:
            images = jitter_colours(images, 1 + settings.colour_jitter * (2 * uniform[:, 6:9] - 1))
        return images


def crop(images: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """Pad each image with `padding` zeros, then crop it to its old size at its offset (n, 2), 0 to 2 * `padding`."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    index = torch.arange(count, device=images.device)[:, None, None]
    crops: Tensor = padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2).contiguous()


def resize_crop(images: Tensor, uniform: Tensor, smallest: float) -> Tensor:
    """Crop each image at random, to a share of its area from `smallest` to 1, and resize it to its old size.

    `uniform` (n, 4) are random numbers in [0, 1]: area, aspect ratio, x and y of the crop.
    """
    area = smallest + (1 - smallest) * uniform[:, 0]
    low, high = map(math.log, RATIOS)
    # affine_grid uses coordinates from -1 to 1 along both sides, so oblong images need their aspect ratio.
    aspect = images.shape[2] / images.shape[3]
    # No side of the crop is longer than the image's, so that the crop keeps its area.
    ratio = (torch.exp(low + (high - low) * uniform[:, 1]) * aspect).clamp(area, 1 / area)
    width, height = (area * ratio).sqrt(), (area / ratio).sqrt()
    across, down = (1 - width) * (2 * uniform[:, 2] - 1), (1 - height) * (2 * uniform[:, 3] - 1)
    none = torch.zeros_like(width)
    # The interpolation reads up to half a pixel outside the image.
    return _sample(images, [[width, none, across], [none, height, down]], outside="border")


def rotate(images: Tensor, uniform: Tensor, degrees: float) -> Tensor:
    """Rotate each image by -`degrees` to `degrees`, as `uniform` (n,) in [0, 1] says; the corners become black."""
    angle = math.radians(degrees) * (2 * uniform - 1)
    cosine, sine = angle.cos(), angle.sin()
    aspect = images.shape[2] / images.shape[3]
    none = torch.zeros_like(angle)
    return _sample(images, [[cosine, -sine * aspect, none], [sine / aspect, cosine, none]], outside="zeros")


def _sample(images: Tensor, rows: list[list[Tensor]], outside: str) -> Tensor:
    """Sample each image by bilinear interpolation; `rows` are those of the matrices of `affine_grid`, each (n,)."""
    matrices = torch.stack([torch.stack(row, 1) for row in rows], 1)
    grid = functional.affine_grid(matrices, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode=outside, align_corners=False)


def jitter_colours(images: Tensor, factors: Tensor) -> Tensor:
    """Scale brightness, contrast and saturation by `factors` (n, 3), in this order, and clip to [0, 1] after each.

    Contrast scales the distance to the mean grey value of the image. Saturation scales the distance to the grey value
    of the pixel; it does not change grey images.
    """
    brightness, contrast, saturation = factors[:, :, None, None, None].unbind(1)
    images = (images * brightness).clamp(0, 1)
    mean = to_grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images = (mean + contrast * (images - mean)).clamp(0, 1)
    pixel = to_grey(images)
    return (pixel + saturation * (images - pixel)).clamp(0, 1)


def to_grey(images: Tensor) -> Tensor:
    """Return the grey values (n, 1, H, W) of images (n, 1 or 3, H, W)."""
    if images.shape[1] == 1:
        return images
    # Python numbers, because a tensor of weights would be copied to the device, and the host would wait.
    red, green, blue = images.unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]
