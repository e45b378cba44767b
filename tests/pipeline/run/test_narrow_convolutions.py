"""Convolutions of images narrower than the stride: which they are, and that training refuses them in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.run.narrow_convolutions import find_narrow_convolutions
from robustfeatures.pipeline.run.stages.model import make
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.store.store import Store
from robustfeatures.training.settings import Model, Training
from tests.pipeline.run.stages.jobs import job_in


def strided(sides: int) -> nn.Module:
    """`sides` convolutions that halve the image."""
    layers = [nn.Conv2d(1 if number == 0 else 4, 4, 3, stride=2, padding=1) for number in range(sides)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Named(nn.Module):
    """Hands on the images by name, and fails on one image."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, stride=2, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.convolution(input=images).squeeze().flatten(1)


@pytest.mark.parametrize(
    ("network", "shape", "expected"),
    [
        (lambda: strided(3), (1, 8, 8), []),
        (lambda: strided(5), (1, 8, 8), ["3", "4"]),
        # 16, 8 and 4 pixels high, but 2, 1 and 1 wide.
        (lambda: strided(3), (1, 16, 2), ["1", "2"]),
        # A shortcut of one pixel and a convolution without stride are right.
        (lambda: nn.Sequential(nn.Conv2d(1, 4, 1, stride=2), nn.Conv2d(4, 4, 3, padding=1)), (1, 4, 1), []),
        # The stride that counts is the one along the width.
        (lambda: nn.Conv2d(1, 4, 3, stride=(2, 1), padding=1), (1, 4, 1), []),
        (lambda: nn.Conv2d(1, 4, 3, stride=3, padding=1), (1, 4, 2), [""]),
        (lambda: nn.Conv2d(1, 4, 1, stride=2, padding=1), (1, 4, 1), [""]),
        (Named, (1, 4, 1), ["convolution"]),
        (lambda: create("resnet18", num_classes=10, image_shape=(3, 32, 32)), (3, 32, 32), []),
        (lambda: create("resnet18", num_classes=10, image_shape=(3, 8, 8)), (3, 8, 8), []),
        (lambda: create("resnet18", num_classes=10, image_shape=(3, 4, 4)), (3, 4, 4), ["features.layer4.0.conv1"]),
    ],
)
def test_what_is_found(network: Callable[[], nn.Module], shape: tuple[int, int, int], expected: list[str]) -> None:
    module = network().train()
    assert find_narrow_convolutions(module, shape) == expected
    assert module.training
    assert not any(each._forward_pre_hooks for each in module.modules())


def weight_gradient(stride: int, width: int, *, half: bool) -> torch.Tensor:
    torch.manual_seed(0)
    convolution = nn.Conv2d(32, 32, 3, stride=stride, padding=1, bias=False)
    images = torch.randn(16, 32, 4, width)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found = convolution(images)
    torch.autograd.backward((found.float() * torch.linspace(-1, 1, found.numel()).view_as(found)).sum())
    assert convolution.weight.grad is not None
    return convolution.weight.grad


@pytest.mark.parametrize(("stride", "width"), [(1, 1), (1, 4), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4)])
def test_torch_is_right_elsewhere(stride: int, width: int) -> None:
    exact = weight_gradient(stride, width, half=False)
    for _ in range(5):
        error = (weight_gradient(stride, width, half=True) - exact).abs().max()
        assert error < 0.01 * exact.abs().max()


@pytest.mark.parametrize(
    ("precision", "side", "is_refused"), [("bfloat16", 4, True), ("float32", 4, False), ("bfloat16", 8, False)]
)
def test_a_training_refuses_them(tmp_path: Path, precision: str, side: int, is_refused: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 1, side, side), dtype=np.uint8)
    names = ("even", "odd")
    data = ImageDataset(images, np.arange(8) % 2, {"source_index": np.arange(8)}, names)
    write_dataset(tmp_path / "data.zarr", {"train": data})
    training = Training(epochs=1, batch_size=8, learning_rate=0.01, weight_decay=0.0)
    architecture = Architecture(name="resnet18", width=4)
    parameters = Model(architecture=architecture, training=training, seed=0, probes=(), precision=precision)  # type: ignore[arg-type]
    (tmp_path / "scratch").mkdir()
    job = job_in(tmp_path, {"data": tmp_path / "data.zarr"}, Store(tmp_path / "store"))
    if is_refused:
        with pytest.raises(UserError, match=r"^precision: in bfloat16 .* for features.layer4.0.conv1, .*; set float32"):
            make(parameters, tmp_path, job)
        assert not (tmp_path / "model.safetensors").exists()
    else:
        make(parameters, tmp_path, job)
        assert (tmp_path / "model.safetensors").exists()
