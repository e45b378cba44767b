"""Grey images: the gradient of their convolution, and a layout that torch cannot tell from the other by itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from robustfeatures.engine.grey import GreyConvolution
from robustfeatures.engine.precision import lay_out
from robustfeatures.engine.prepared import Prepared
from robustfeatures.models import create


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(3, 1, 1, 1), (5, 1, 2, 1), (3, 2, 1, 1), ((3, 5), (2, 1), (0, 2), 1), (3, 1, 2, 2), (1, 1, 0, 1)],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradient_is_autograds(
    kernel: int | tuple[int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int,
    layout: torch.memory_format,
) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(1, 7, kernel, stride, padding, dilation, dtype=torch.float64).requires_grad_(False)
    images = torch.rand(4, 1, 9, 11, dtype=torch.float64, requires_grad=True)
    expected = plain(images)
    weights = torch.randn_like(expected).contiguous(memory_format=layout)
    found = GreyConvolution(plain)(images)
    assert torch.equal(found, expected)
    (gradient,) = torch.autograd.grad((found * weights).sum(), images)
    (reference,) = torch.autograd.grad((expected * weights).sum(), images)
    assert reference.abs().max() > 0
    torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("channels", "precision", "used"), [(1, "float32", 1), (3, "float32", 0), (1, "bfloat16", 0)])
def test_where_it_is_used(channels: int, precision: str, used: int) -> None:
    network = create("mnist-cnn", num_classes=3, image_shape=(channels, 8, 8), width=2)
    before = torch.get_rng_state()
    prepared = Prepared(network, precision=precision)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(isinstance(module, GreyConvolution) for module in prepared.modules()) == used


def test_grey_images_are_convolved_in_the_layout_that_was_asked_for() -> None:
    convolution = nn.Conv2d(1, 4, 3)
    with torch.no_grad():
        before = convolution(torch.ones(2, 1, 6, 6))
        assert before.stride() == (64, 16, 4, 1)
        lay_out(convolution, torch.channels_last)
        after = convolution(torch.ones(2, 1, 6, 6))
    assert after.stride() == (64, 1, 16, 4)
    torch.testing.assert_close(after, before)
