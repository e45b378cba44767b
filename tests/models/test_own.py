"""Modules of one's own as networks: how they are split, and what is refused."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robustfeatures.attacks import pgd
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.models.own import to_network

SHAPE = (3, 16, 16)
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))


class Convolutional(nn.Module):
    """Two convolutions with batch norms, a skip connection, and a classifier inside a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images)
        hidden = torch.relu(hidden + self.second(hidden))
        logits: Tensor = self.classifier(self.pool(hidden).flatten(1))
        return logits


class Untraceable(Convolutional):
    def forward(self, images: Tensor) -> Tensor:
        if images.mean() > 5:
            raise AssertionError
        return super().forward(images)


@pytest.fixture
def module() -> Convolutional:
    torch.manual_seed(0)
    made = Convolutional()
    with torch.no_grad():
        for each in (made.first[1], made.second[1]):
            each.running_mean.uniform_(-1, 1)
            each.running_var.uniform_(0.5, 2)
    return made.eval()


def converted(module: nn.Module, layer: str | None = None, **changes: object) -> Network:
    given = {"name": "mine.py:net", "num_classes": 10, "image_shape": SHAPE} | changes
    return to_network(copy.deepcopy(module), layer=layer, **given).eval()  # type: ignore[arg-type]


def hidden(module: Convolutional, images: Tensor) -> Tensor:
    """The values before the pooling, computed here."""
    first = module.first(images)
    return torch.relu(first + module.second(first))


@pytest.mark.parametrize("layer", [None, "pool", "classifier.1", "classifier.2", "classifier"])
def test_logits_and_representation(module: Convolutional, layer: str | None) -> None:
    pooled = module.pool(hidden(module, IMAGES)).flatten(1)
    expected = {
        None: module.classifier[:3](pooled),
        "pool": pooled,
        "classifier.1": module.classifier[:2](pooled),
        "classifier.2": module.classifier[:3](pooled),
        "classifier": module.classifier(pooled),
    }[layer]
    network = converted(module, layer)
    for one in (network, FrozenNetwork(network)):
        torch.testing.assert_close(one(IMAGES), module(IMAGES), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one.representation(IMAGES), expected, rtol=1e-4, atol=1e-5)
    frozen = FrozenNetwork(network)
    assert not any(isinstance(one, nn.BatchNorm2d) for one in frozen.network.features.modules())
    assert sorted(network.original_names) == sorted(module.state_dict())  # type: ignore[arg-type]
    state = network.state_dict()
    for raw, ours in network.original_names.items():  # type: ignore[union-attr]
        assert torch.equal(state[ours], module.state_dict()[raw])


def test_a_module_that_torch_fx_cannot_trace_is_attacked_as_it_is(
    module: Convolutional, caplog: pytest.LogCaptureFixture
) -> None:
    untraceable = Untraceable()
    untraceable.load_state_dict(module.state_dict())
    with caplog.at_level(logging.INFO):
        network = converted(untraceable)
    assert "torch.fx cannot trace the network, so attacks run it as it is" in caplog.text
    frozen = FrozenNetwork(network)
    torch.testing.assert_close(frozen(IMAGES), module(IMAGES))
    images = IMAGES.clone().requires_grad_()
    (found,) = torch.autograd.grad(frozen(images).sum(), images)
    (expected,) = torch.autograd.grad(module(images).sum(), images)
    torch.testing.assert_close(found, expected)
    with pytest.raises(UserError, match=r"torch\.fx cannot trace it up to the layer 'pool'"):
        converted(untraceable, "pool")


def test_a_network_of_this_package_stays_as_it_is() -> None:
    own = create("small-cnn", num_classes=10, image_shape=SHAPE)
    assert to_network(own, layer=None, name="mine.py:net", num_classes=10, image_shape=SHAPE) is own


class SmallOrLarge(nn.Module):
    """Decides by the size of an image, which torch.fx does not know."""

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, 0] if images.shape[2] > 4 else images[:, 0, -1]


def test_a_network_of_this_package_is_checked_too() -> None:
    own = Network(SmallOrLarge(), nn.Linear(16, 10), 3)
    with pytest.raises(UserError, match=r"^architecture: mine.py:net: fails as a frozen copy for attacks: TraceError"):
        to_network(own, layer=None, name="mine.py:net", num_classes=10, image_shape=SHAPE)


class WithBuffers(Convolutional):
    """Its forward pass uses buffers, a plain tensor and a new tensor in ordinary ways."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(3))
        self.register_buffer("scale", torch.ones(1, 3, 1, 1), persistent=False)
        self.plain = torch.full((1, 3, 1, 1), 0.5)

    def forward(self, images: Tensor) -> Tensor:
        shifted = (images - self.shift.view(1, 3, 1, 1)) * self.scale + self.plain  # type: ignore[operator]
        return super().forward(shifted + torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1))


def test_a_frozen_copy_follows_the_buffers() -> None:
    torch.manual_seed(0)
    network = converted(WithBuffers())
    frozen = FrozenNetwork(network)
    torch.testing.assert_close(frozen(IMAGES), network(IMAGES), rtol=1e-4, atol=1e-5)
    before = network(IMAGES)
    network.features.shift.add_(0.3)  # type: ignore[operator, union-attr]
    network.features.scale.mul_(2.0)  # type: ignore[operator, union-attr]
    frozen.refresh()
    assert not torch.allclose(network(IMAGES), before)
    torch.testing.assert_close(frozen(IMAGES), network(IMAGES), rtol=1e-4, atol=1e-5)


def test_a_constant_does_not_depend_on_the_mode() -> None:
    torch.manual_seed(0)
    module = WithBuffers().eval()
    torch.testing.assert_close(converted(module, "classifier.1")(IMAGES), module(IMAGES), rtol=1e-4, atol=1e-5)


class UntracedBuffer(Untraceable):
    """torch.fx cannot look into it in eval mode, and its buffer is not saved with the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if not self.training and images.mean() > 100:
            raise AssertionError
        return super().forward(images - self.shift)  # type: ignore[operator]


def test_a_frozen_copy_follows_the_buffers_of_what_is_not_traced() -> None:
    torch.manual_seed(0)
    module = UntracedBuffer()
    network = converted(module)
    (shift,) = (values for name, values in network.named_buffers() if name.endswith("shift"))
    frozen = FrozenNetwork(network)
    shift.add_(0.5)
    frozen.refresh()
    torch.testing.assert_close(frozen(IMAGES), network(IMAGES), rtol=1e-4, atol=1e-5)


def tied() -> nn.Module:
    first, second = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.Conv2d(3, 3, 3, padding=1, bias=False)
    second.weight = first.weight
    return nn.Sequential(first, nn.BatchNorm2d(3), second, nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(768, 10))


def of_batches() -> nn.Module:
    norm = nn.BatchNorm2d(3, track_running_stats=False)
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), norm, nn.Flatten(), nn.Linear(768, 10))


def parametrised(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        convolution = wrap(nn.Conv2d(3, 3, 3, padding=1))
        return nn.Sequential(convolution, nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(768, 10))

    return make


@pytest.mark.parametrize(
    "make",
    [
        tied,
        of_batches,
        parametrised(nn.utils.parametrizations.spectral_norm),
        parametrised(nn.utils.parametrizations.weight_norm),
    ],
    ids=["tied", "of batches", "spectral norm", "weight norm"],
)
def test_convolutions_that_cannot_be_folded(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    network = converted(make())
    network.train()
    for _ in range(3):
        network(torch.rand(8, *SHAPE) + 0.5)
    network.eval()
    torch.testing.assert_close(FrozenNetwork(network)(IMAGES), network(IMAGES), rtol=1e-4, atol=1e-5)


class View(Convolutional):
    def forward(self, images: Tensor) -> Tensor:
        flat = self.first(images).view(len(images), -1)
        logits: Tensor = self.classifier(flat[:, :32])
        return logits


class OwnDropout(Convolutional):
    def forward(self, images: Tensor) -> Tensor:
        dropped = nn.functional.dropout(self.first(images), 0.5, training=self.training)
        logits: Tensor = self.classifier(self.pool(dropped).flatten(1))
        return logits


def test_dropout_in_the_forward_pass_still_acts_in_training() -> None:
    """Without a named layer the module trains as it is. With one, torch.fx would record the mode it was traced in."""
    network = converted(OwnDropout()).train()
    assert not torch.equal(network(IMAGES), network(IMAGES))
    for training in (True, False):
        with pytest.raises(UserError, match="its own forward depends on the mode of training; use layers, such as nn"):
            converted(OwnDropout().train(training), "classifier.1")


class Flipped(Network):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + super().forward(images.flip(3))


def test_a_network_with_a_forward_of_its_own() -> None:
    torch.manual_seed(0)
    module = Flipped(nn.Flatten(), nn.Linear(768, 10), 3)
    with pytest.raises(UserError, match="more follows the last linear layer than logits"):
        converted(module)


class InPlace(Convolutional):
    """It changes the images that it gets, which are those of one batch alone."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.sub_(0.5).mul_(2))


@pytest.mark.parametrize("layer", [None, "pool"])
def test_a_module_that_works_in_place(layer: str | None) -> None:
    torch.manual_seed(0)
    module = InPlace().eval()
    network = converted(module, layer)
    torch.testing.assert_close(network(IMAGES), module(IMAGES.clone()))
    before, ball = IMAGES.clone(), {"norm": "l2", "eps": 0.5, "step_size": 0.1, "steps": 2}
    found = pgd(FrozenNetwork(network), IMAGES, torch.arange(4), **ball)
    torch.testing.assert_close(found, pgd(module, IMAGES, torch.arange(4), **ball))
    assert torch.equal(IMAGES, before)


class LogSoftmax(Convolutional):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).log_softmax(dim=1)


class ZeroHead(Convolutional):
    """The logits are all 0 before the first step, so tanh changes none of them yet."""

    def __init__(self) -> None:
        super().__init__()
        for parameter in self.classifier[3].parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        return 2 * torch.tanh(super().forward(images) / 2)


class ZeroHeadAndWeights(nn.Module):
    """The logits read a weight beside the layers, which a folded batch norm changes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        nn.init.constant_(self.convolution.weight, 0.1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 256, 10)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.convolution(images)) + self.convolution.weight.sum()
        logits: Tensor = self.head(hidden.flatten(1))
        return logits


class RootScale(nn.Linear):
    """A learned scale that may not be negative."""

    def __init__(self) -> None:
        super().__init__(768, 10)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * self.scale.sqrt()


class ExtraState(Convolutional):
    def get_extra_state(self) -> dict[str, int]:
        return {"steps": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


class Nan(Convolutional):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * torch.nan


@pytest.mark.parametrize(
    ("make", "layer", "problem"),
    [
        (LogSoftmax, None, "more follows the last linear layer than logits; return the module and the name of a layer"),
        (ZeroHead, None, "more follows the last linear layer than logits; return the module and the name of a layer"),
        (ZeroHeadAndWeights, None, "a frozen copy for attacks gives other logits"),
        (ExtraState, None, "has an extra state, which is not saved with the weights"),
        (Nan, None, "gives NaN or infinite logits"),
        (Convolutional, "pol", r"there is no layer 'pol' \(did you mean 'pool'\?\)"),
        (Convolutional, "second", "the logits need more than the layer 'second'"),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 7)),
            None,
            r"gives \(2, 7\) for 2 images, not logits of 10",
        ),
        (View, None, "a frozen copy for attacks, where images lie channels-last: use reshape or flatten: RuntimeError"),
        (lambda: nn.Linear(5, 10), None, r"fails on images \(2, 3, 16, 16\): RuntimeError: mat1 and mat2"),
        (lambda: nn.Sequential(nn.Conv2d(3, 10, 16), nn.Flatten()), None, "the network calls no linear layer"),
    ],
)
def test_what_is_refused(make: Callable[[], nn.Module], layer: str | None, problem: str) -> None:
    with pytest.raises(UserError, match=f"^architecture: mine.py:net: .*{problem}") as caught:
        converted(make(), layer)
    assert "\n" not in str(caught.value)


def test_a_head_that_starts_at_zero_stays_there() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), nn.Linear(16, 10))
    for parameter in module[3].parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(converted(module)(IMAGES), torch.zeros(4, 10))


def test_a_head_with_a_weight_that_may_not_be_drawn() -> None:
    module = nn.Sequential(nn.Flatten(), RootScale())
    torch.testing.assert_close(converted(module)(IMAGES), module(IMAGES))


def test_log_softmax_is_fine_with_a_named_layer() -> None:
    torch.manual_seed(0)
    module = LogSoftmax().eval()
    torch.testing.assert_close(converted(module, "classifier")(IMAGES), module(IMAGES))
