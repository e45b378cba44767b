"""Augmentation against torchvision's functions and by counting what is drawn."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from robustfeatures.engine.vision import import_torchvision as load_torchvision
from robustfeatures.training.augmentation import Augmenter, crop, jitter_colours, resize_crop, rotate
from robustfeatures.training.settings import Augmentation
from tests.conftest import Digits


def augmenter(settings: Augmentation, count: int, seed: int = 0) -> Augmenter:
    return Augmenter(settings, count, torch.Generator().manual_seed(seed), torch.device("cpu"))


def test_crops_are_whole_shifts_and_all_are_drawn(digits: Digits) -> None:
    images = digits.images[:200]
    found = augmenter(Augmentation(crop_padding=1), 200)(images, torch.arange(200))
    padded = functional.pad(images, (1, 1, 1, 1))
    shifts = [padded[:, :, rows : rows + 8, columns : columns + 8] for rows in range(3) for columns in range(3)]
    matches = torch.stack([(found == other).flatten(1).all(dim=1) for other in shifts])
    assert matches.any(dim=0).all()
    assert matches.any(dim=1).all()


def test_crops_of_colour_images_equal_slices() -> None:
    images = torch.rand(5, 3, 8, 8)
    offsets = torch.tensor([[0, 0], [8, 8], [4, 4], [1, 7], [6, 2]])
    padded = functional.pad(images, (4,) * 4)
    expected = torch.stack([padded[i, :, r : r + 8, c : c + 8] for i, (r, c) in enumerate(offsets.tolist())])
    assert torch.equal(crop(images, offsets, 4), expected)


def test_half_of_the_images_are_mirrored() -> None:
    images = torch.rand(2000, 1, 2, 3)
    found = augmenter(Augmentation(flip=True), 2000)(images, torch.arange(2000))
    mirrored = (found == images.flip(3)).flatten(1).all(dim=1)
    assert torch.equal(found[~mirrored], images[~mirrored])
    # Four standard deviations of 2000 fair coins.
    assert abs(mirrored.double().mean().item() - 0.5) < 4 * 0.5 / math.sqrt(2000)


def test_what_happens_to_an_image_depends_on_its_row_alone() -> None:
    settings = Augmentation(crop_padding=2, flip=True, smallest_crop=0.3, rotation=10.0, colour_jitter=0.3)
    images, rows = torch.rand(40, 3, 8, 8), torch.randperm(40)
    whole = augmenter(settings, 40)(images, torch.arange(40))
    torch.testing.assert_close(augmenter(settings, 40)(images[rows], rows), whole[rows])
    assert not torch.equal(augmenter(settings, 40, seed=1)(images, torch.arange(40)), whole)


def test_no_two_changes_share_a_draw() -> None:
    """Each draw of an image, redrawn alone, changes one of the augmentations and no other."""
    flip, crop = Augmentation(flip=True), Augmentation(smallest_crop=0.3)
    rotation, jitter = Augmentation(rotation=10.0), Augmentation(colour_jitter=0.3)
    torch.manual_seed(0)
    images, rows = torch.rand(20, 3, 8, 8), torch.arange(20)
    effects = []
    for settings in (flip, crop, rotation, jitter):
        drawn = augmenter(settings, 20)
        before, uniform = drawn(images, rows), drawn.uniform
        for column in range(uniform.shape[1]):
            drawn.uniform = uniform.clone()
            drawn.uniform[:, column] = torch.rand(20)
            if not torch.equal(drawn(images, rows), before):
                effects.append((settings, column))
    assert [column for _, column in effects] == list(range(9))
    assert [settings for settings, _ in effects] == [flip] + [crop] * 4 + [rotation] + [jitter] * 3


@pytest.mark.parametrize("size", [(16, 16), (12, 24), (24, 12)])
def test_rotation_is_torchvisions(size: tuple[int, int]) -> None:
    images = torch.rand(1, 3, *size)
    theirs = load_torchvision().transforms.functional.rotate
    bilinear = load_torchvision().transforms.InterpolationMode.BILINEAR
    expected = [theirs(images, angle, interpolation=bilinear) for angle in (20.0, -20.0)]
    # 1 turns by the whole angle; torchvision turns the other way round.
    found = rotate(images, torch.ones(1), 20.0)
    assert min((found - other).abs().max().item() for other in expected) < 1e-5


def test_a_crop_of_the_whole_image_changes_nothing_and_a_part_is_enlarged() -> None:
    images = torch.rand(1, 1, 8, 8)
    log_ratio_zero = 0.5
    whole = resize_crop(images, torch.tensor([[1.0, log_ratio_zero, 0.3, 0.9]]), 0.25)
    torch.testing.assert_close(whole, images)
    # A quarter of the area at the upper left, enlarged by two.
    quarter = resize_crop(images, torch.tensor([[0.0, log_ratio_zero, 0.0, 0.0]]), 0.25)
    expected = functional.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)[:, :, :8, :8]
    torch.testing.assert_close(quarter[:, :, :7, :7], expected[:, :, :7, :7])


def test_a_crop_has_no_dark_edge_where_images_are_rotated_too() -> None:
    """Rotation leaves black corners. By an angle of 0 it leaves none."""
    settings = Augmentation(smallest_crop=0.25, rotation=20.0)
    drawn = augmenter(settings, 2)
    # The smallest crop, at the upper left; the first image is not turned, the second by the whole angle.
    drawn.uniform[:, 1:5] = torch.tensor([0.0, 0.5, 0.0, 0.0])
    drawn.uniform[:, 5] = torch.tensor([0.5, 1.0])
    straight, turned = drawn(torch.ones(2, 1, 8, 8), torch.arange(2))
    torch.testing.assert_close(straight, torch.ones(1, 8, 8))
    assert turned[0, 0, 0] < 0.5
    torch.testing.assert_close(turned[0, 2:6, 2:6], torch.ones(4, 4))


@pytest.mark.parametrize("size", [(16, 16), (12, 24)])
@pytest.mark.parametrize("smallest", [0.08, 0.9])
def test_crops_keep_their_area_and_ratio(size: tuple[int, int], smallest: float) -> None:
    """The corners of a crop are read from two images whose values are their own coordinates."""
    height, width = size
    rows = torch.linspace(0.0, 1.0, height)[:, None].expand(size)
    columns = torch.linspace(0.0, 1.0, width).expand(size)
    uniform = torch.rand(500, 4, generator=torch.Generator().manual_seed(0))
    images = torch.stack([rows, columns])[None].expand(500, 2, *size)
    found = resize_crop(images, uniform, smallest)
    # Between the centres of two pixels in the middle, values grow by the share of the side that the crop has.
    middle = found[:, :, height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1]
    down = (middle[:, 0, 1, 0] - middle[:, 0, 0, 0]) * (height - 1)
    across = (middle[:, 1, 0, 1] - middle[:, 1, 0, 0]) * (width - 1)
    area = down * across
    assert smallest - 1e-3 < area.min() < smallest + 0.1 * (1 - smallest)
    assert area.max() < 1 + 1e-3
    assert max(down.max(), across.max()) < 1 + 1e-3
    ratio = across * width / (down * height)
    if size == (16, 16):
        assert 0.75 - 1e-3 < ratio.min() <= ratio.max() < 4 / 3 + 1e-3
    else:
        # The image's own ratio is 2, so a large crop cannot be nearer to a square.
        nearest = area.clamp_min(0.5) * 2
        assert (ratio < torch.maximum(torch.tensor(4 / 3), nearest) + 1e-2).all()


@pytest.mark.parametrize("column", [0, 1, 2])
def test_jitter_is_torchvisions(column: int) -> None:
    images = torch.rand(2, 3, 8, 8)
    functions = load_torchvision().transforms.functional
    adjust = (functions.adjust_brightness, functions.adjust_contrast, functions.adjust_saturation)[column]
    factors = torch.ones(2, 3)
    factors[:, column] = torch.tensor([0.6, 1.4])
    expected = torch.stack([adjust(image, factor) for image, factor in zip(images, (0.6, 1.4), strict=True)])
    # torchvision's weights of the grey value have four digits.
    torch.testing.assert_close(jitter_colours(images, factors), expected, atol=2e-3, rtol=0)
