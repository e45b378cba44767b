"""Networks on disk: every architecture is loaded as it was saved, and wrong files are an error of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from robustfeatures import load_model
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.models.own_files import OwnFactory, check_own
from robustfeatures.models.registry import NETWORKS
from robustfeatures.pipeline.store.networks import save_network
from tests.models.test_architectures import CIFAR, NARROW, narrow


def saved(network: Network, path: Path, architecture: str, width: int | None) -> Path:
    names = tuple("abcdefg")
    save_network(network, path, architecture=architecture, width=width, class_names=names, image_shape=CIFAR)
    return path


@pytest.mark.parametrize("architecture", sorted(NETWORKS))
def test_round_trip(architecture: str, tmp_path: Path) -> None:
    network = narrow(architecture)
    images = torch.rand(4, *CIFAR)
    network.set_normalisation(torch.rand(3), torch.rand(3) + 0.5)
    # In train mode, so that the running statistics, too, are no longer those of a fresh network.
    network(images)
    path = saved(network, tmp_path / "model.safetensors", architecture, NARROW[architecture])
    torch.manual_seed(1)
    loaded = load_model(path)
    with torch.no_grad():
        assert torch.equal(loaded(images), network.eval()(images))


TIED = """from torch import nn

def net(*, num_classes, image_shape):
    block = nn.Conv2d(3, 3, 3, padding=1)
    return nn.Sequential(block, nn.ReLU(), block, nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))
"""


def test_weights_that_layers_share(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(TIED)
    check_own(OwnFactory("tied.py", "net"), tmp_path, "architecture.name")
    network, images = create("tied.py:net", num_classes=7, image_shape=CIFAR), torch.rand(4, *CIFAR)
    loaded = load_model(saved(network, tmp_path / "model.safetensors", "tied.py:net", None))
    with torch.no_grad():
        assert torch.equal(loaded(images), network.eval()(images))


def test_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = saved(create("linear", num_classes=7, image_shape=CIFAR), tmp_path / "model.safetensors", "linear", None)
    devices = ["cudaa"] if torch.cuda.is_available() else ["cudaa", "cuda"]
    for device in devices:
        with pytest.raises(UserError, match=rf"^load_model: device: '{device}' cannot be used here: "):
            load_model(path, device=device)


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        load_model(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_metadata_of_another_architecture(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    network = narrow("resnet18")
    message = refusal(saved(network, path, "resnet50", 8))
    assert "is no checkpoint of 'resnet50': weight 'layer1.0.conv1.weight' has shape (8, 8, 3, 3)" in message
    assert "weight 'conv1.weight' has shape (8, 3, 3, 3), not (16, 3, 3, 3)" in refusal(
        saved(network, path, "resnet18", 16)
    )
    assert "weight 'dense1.0.bn1.weight' is missing" in refusal(saved(network, path, "densenet121", 8))
    assert "architecture: 'resnet19' is unknown (did you mean" in refusal(saved(network, path, "resnet19", 8))
    assert "architecture.width: 'linear' has no width" in refusal(saved(network, path, "linear", 8))


def test_files_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {"weight": torch.zeros(2)}
    description = {"architecture": "linear", "class_names": ["a"], "image_shape": [1, 8, 8], "width": None}
    wrong = [None, {}, {"network": "{"}, {"network": "[]"}, {"network": "{}"}]
    wrong += [{"network": json.dumps(description | {"image_shape": shape})} for shape in (None, [8, 8], ["a", 8, 8])]
    for metadata in wrong:
        save_file(tensors, path, metadata=metadata)
        assert "does not say which network its weights are of" in refusal(path)
    save_file(tensors, path, metadata={"network": json.dumps(description)})
    assert "is no checkpoint of 'linear': weight 'mean' is missing" in refusal(path)
    for content in (b"", b"not safetensors", path.read_bytes()[:-1]):
        path.write_bytes(content)
        assert "not a whole safetensors file" in refusal(path)
