"""Forward passes against torchvision's networks, changed to the CIFAR forms, with the same weights."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from robustfeatures import load_model
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.models import create
from tests.models.test_architectures import CIFAR, disturb_batch_norms


@pytest.fixture(scope="module")
def models() -> ModuleType:
    """torchvision's networks. The import takes seconds, in each process that finds the tests."""
    found: ModuleType = import_torchvision().models
    return found


@torch.no_grad()
def logits(network: nn.Module, images: Tensor) -> Tensor:
    output: Tensor = network(images)
    return output


def assert_same_logits(network: nn.Module, reference: nn.Module, images: Tensor) -> None:
    expected = logits(reference, images)
    # The logits must depend on the images, else anything would agree.
    assert (expected[0] - expected[1]).norm() > 1e-3 * expected[0].norm()
    torch.testing.assert_close(logits(network, images), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50"])
def test_resnets(models: ModuleType, architecture: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = getattr(models, architecture)(weights=None, num_classes=10)
    reference.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    reference.maxpool = nn.Identity()
    disturb_batch_norms(reference)
    torch.save(reference.state_dict(), tmp_path / "weights.pth")
    network = load_model(tmp_path / "weights.pth", architecture=architecture, num_classes=10, image_shape=CIFAR)
    assert_same_logits(network, reference, torch.rand(2, *CIFAR))


def test_resnet50_for_photographs(models: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = disturb_batch_norms(models.resnet50(weights=None, num_classes=9))
    torch.save({"state_dict": reference.state_dict()}, tmp_path / "weights.pth")
    shape = (3, 224, 224)
    network = load_model(tmp_path / "weights.pth", architecture="resnet50-imagenet", num_classes=9, image_shape=shape)
    assert_same_logits(network, reference, torch.rand(2, *shape))


def test_vgg16(models: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = models.vgg.make_layers(models.vgg.cfgs["D"], batch_norm=True)
    reference = nn.Sequential(OrderedDict(features=layers, flatten=nn.Flatten(), classifier=nn.Linear(512, 10)))
    torch.save(disturb_batch_norms(reference).state_dict(), tmp_path / "weights.pth")
    network = load_model(tmp_path / "weights.pth", architecture="vgg16", num_classes=10, image_shape=CIFAR)
    assert_same_logits(network, reference, torch.rand(2, *CIFAR))


def test_inception_v3(models: ModuleType) -> None:
    torch.manual_seed(0)
    reference = models.inception_v3(weights=None, num_classes=10, aux_logits=False, init_weights=False)
    reference.Conv2d_1a_3x3 = models.inception.BasicConv2d(3, 192, kernel_size=3, padding=1)
    for name in ("Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "maxpool2"):
        setattr(reference, name, nn.Identity())
    disturb_batch_norms(reference)
    network = create("inception-v3", num_classes=10, image_shape=CIFAR)
    # Both list their layers in the order of the paper's figures; the mean and std of ours come first.
    own = [name for name in network.state_dict() if name not in ("mean", "std")]
    network.load_state_dict(dict(zip(own, reference.state_dict().values(), strict=True)), strict=False)
    assert_same_logits(network.eval(), reference, torch.rand(2, *CIFAR))


def test_densenet121(models: ModuleType) -> None:
    torch.manual_seed(0)
    reference = models.DenseNet(num_init_features=64, num_classes=10)
    reference.features.conv0 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    for name in ("norm0", "relu0", "pool0"):
        setattr(reference.features, name, nn.Identity())
    disturb_batch_norms(reference)
    network = create("densenet121", num_classes=10, image_shape=CIFAR)
    own = [name for name in network.state_dict() if name not in ("mean", "std")]
    state = dict(zip(own, reference.state_dict().values(), strict=True))
    network.load_state_dict(_newest_first(state), strict=False)
    assert_same_logits(network.eval(), reference, torch.rand(2, *CIFAR))


def _newest_first(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """torchvision puts the new channels of a dense layer after the old ones; the CIFAR form puts them before."""
    changed = dict(state)
    inputs = {1: 64, 2: 128, 3: 256, 4: 512}
    for block, units in {1: 6, 2: 12, 3: 24, 4: 16}.items():
        order = torch.arange(inputs[block])
        for unit in range(units + 1):
            if unit < units:
                norm, conv = f"features.dense{block}.{unit}.bn1", f"features.dense{block}.{unit}.conv1"
            elif block < 4:
                norm, conv = f"features.trans{block}.bn", f"features.trans{block}.conv"
            else:
                norm, conv = "features.bn", "head"
            for part in ("weight", "bias", "running_mean", "running_var"):
                changed[f"{norm}.{part}"] = state[f"{norm}.{part}"][order]
            changed[f"{conv}.weight"] = state[f"{conv}.weight"][:, order]
            new = inputs[block] + 32 * unit + torch.arange(32)
            order = torch.cat([new, order])
    return changed
