"""Weights trained elsewhere: the names they may have, normalisation, and refusals in one line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import save_file
from torch import Tensor

from robustfeatures import load_model
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.models.network import Network

CIFAR = (3, 32, 32)
KNOWN: dict[str, Any] = {"architecture": "resnet18", "num_classes": 10, "image_shape": CIFAR, "width": 4}


@pytest.fixture
def trained() -> Network:
    torch.manual_seed(0)
    return create("resnet18", num_classes=10, image_shape=CIFAR, width=4).eval()


def kuangliu(network: Network, prefix: str = "") -> dict[str, Tensor]:
    """The weights under the names of the common CIFAR ResNets."""
    return {
        prefix + name.replace("features.", "").replace("head.", "linear."): tensor
        for name, tensor in network.state_dict().items()
        if name not in ("mean", "std")
    }


def saved(folder: Path, content: object) -> Path:
    path = folder / "weights.pt"
    torch.save(content, path)
    return path


def test_the_names_are_those_of_the_common_cifar_resnet(trained: Network) -> None:
    names = set(kuangliu(trained))
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer4.1.bn2.bias", "linear.bias"} <= names
    assert {"layer2.0.shortcut.0.weight", "layer2.0.shortcut.1.running_var"} <= names
    assert not any(name.startswith("layer1.0.shortcut") for name in names)


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.model."])
@pytest.mark.parametrize("key", [None, "state_dict", "model", "net"])
def test_wrappings(trained: Network, tmp_path: Path, prefix: str, key: str | None) -> None:
    weights = kuangliu(trained, prefix)
    loaded = load_model(saved(tmp_path, weights if key is None else {key: weights, "epoch": 3}), **KNOWN)
    images = torch.rand(2, *CIFAR)
    assert not loaded.training
    assert torch.equal(loaded(images), trained(images))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
def test_own_names_keep_their_normalisation(trained: Network, tmp_path: Path, suffix: str) -> None:
    trained.set_normalisation(torch.rand(3), torch.rand(3) + 0.5)
    path = tmp_path / f"weights{suffix}"
    torch.save(trained.state_dict(), path)
    images = torch.rand(2, *CIFAR)
    assert torch.equal(load_model(path, **KNOWN)(images), trained(images))


def test_mean_and_std(trained: Network, tmp_path: Path) -> None:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    images = torch.rand(2, *CIFAR)
    normalised = (images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    expected = trained(normalised)
    assert not torch.allclose(expected, trained(images))
    path = saved(tmp_path, kuangliu(trained))
    torch.testing.assert_close(load_model(path, mean=mean, std=std, **KNOWN)(images), expected)
    # The library robustness saves them with the weights, and the network a second time inside its attacker.
    weights = kuangliu(trained, "module.model.") | kuangliu(trained, "module.attacker.model.")
    for name in ("module.normalizer.new_", "module.attacker.normalize.new_"):
        weights |= {f"{name}mean": torch.tensor(mean).view(3, 1, 1), f"{name}std": torch.tensor(std).view(3, 1, 1)}
    path = saved(tmp_path, {"model": weights})
    torch.testing.assert_close(load_model(path, **KNOWN)(images), expected)
    plain = load_model(path, mean=(0, 0, 0), std=(1, 1, 1), **KNOWN)
    assert torch.equal(plain(images), trained(images))


def test_safetensors(trained: Network, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(kuangliu(trained, "module."), path)
    images = torch.rand(2, *CIFAR)
    assert torch.equal(load_model(path, **KNOWN)(images), trained(images))
    path.write_bytes(path.read_bytes()[:-1])
    assert "not a whole safetensors file" in refusal(path, **KNOWN)


@pytest.mark.parametrize("names", [("mu", "sigma"), ("module.mu", "module.sigma"), ("normalize.mean", "normalize.std")])
def test_the_normalisation_of_robustbench(trained: Network, tmp_path: Path, names: tuple[str, str]) -> None:
    mean, std = torch.rand(3), torch.rand(3) + 0.5
    prefix = "model." if names[0].startswith("normalize") else names[0].removesuffix("mu")
    weights = kuangliu(trained, prefix) | {names[0]: mean.view(1, 3, 1, 1), names[1]: std.view(1, 3, 1, 1)}
    images = torch.rand(2, *CIFAR)
    expected = trained((images - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    torch.testing.assert_close(load_model(saved(tmp_path, {"state_dict": weights}), **KNOWN)(images), expected)


class Schedule:
    """An object that robustness and others save beside the network. Its class does not exist when the file is read."""

    def __init__(self) -> None:
        self.milestones = [50, 100]


class Shell:
    """A malicious pickle with a function that torch does not block by itself."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return subprocess.check_call, (["touch", str(self.marker)],)


@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_of_robustness(trained: Network, tmp_path: Path, zipped: bool) -> None:
    """Objects beside the tensors are skipped, and none of them is run."""
    mean, std = torch.rand(3), torch.rand(3) + 0.5
    weights = kuangliu(trained, "module.model.") | kuangliu(trained, "module.attacker.model.")
    for name in ("module.normalizer.new_", "module.attacker.normalize.new_"):
        weights |= {f"{name}mean": mean.view(3, 1, 1), f"{name}std": std.view(3, 1, 1)}
    path, marker = tmp_path / "cifar_l2_0_5.pt", tmp_path / "marker"
    extras = {"epoch": 150, "schedule": Schedule(), "amp": {"scaler": Shell(marker)}, "args": [Schedule(), Schedule]}
    torch.save({"model": weights, **extras}, path, _use_new_zipfile_serialization=zipped)
    message = refusal(path, **KNOWN)
    assert re.search(r"it holds [\w.]+, which is refused, because it could run code; save the state_dict", message)
    images = torch.rand(2, *CIFAR)
    expected = trained((images - mean.view(3, 1, 1)) / std.view(3, 1, 1))
    torch.testing.assert_close(load_model(path, format="robustness", **KNOWN)(images), expected)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists()


def test_a_checkpoint_of_robustness_that_is_refused_nevertheless(trained: Network, tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": kuangliu(trained), "extra": Command(tmp_path / "made")})
    assert "it holds posix.mkdir, which is refused" in refusal(path, format="robustness", **KNOWN)
    assert not (tmp_path / "made").exists()
    assert "holds no state_dict" in refusal(saved(tmp_path, {"model": Schedule()}), format="robustness", **KNOWN)


def test_weights_of_timm(tmp_path: Path) -> None:
    """A network of timm is timm's, with its names; only the library itself knows what it gives."""
    import_torchvision()
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    module = timm.create_model("resnet26", pretrained=False, num_classes=10).eval()
    with torch.no_grad():
        for name, tensor in module.named_buffers():
            if name.endswith("running_mean"):
                tensor.uniform_(-0.1, 0.1)
    path = tmp_path / "model.safetensors"
    save_file(module.state_dict(), path)
    known = {"architecture": "timm:resnet26", "num_classes": 10, "image_shape": (3, 64, 64)}
    network = load_model(path, mean=(0.5,) * 3, std=(0.2,) * 3, **known)
    images = torch.rand(2, 3, 64, 64)
    normalised = (images - 0.5) / 0.2
    with torch.no_grad():
        for one in (network, FrozenNetwork(network)):
            torch.testing.assert_close(one(images), module(normalised), rtol=1e-3, atol=1e-4)
        pooled = module.forward_head(module.forward_features(normalised), pre_logits=True)
        torch.testing.assert_close(network.representation(images), pooled, rtol=1e-4, atol=1e-5)
    assert "timm has no network 'resnet27x'" in refusal(
        path, **{**known, "architecture": "timm:resnet27x"}, named=False
    )


def test_timm_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("robustfeatures.models.registry.find_spec", lambda name: None)
    path = saved(tmp_path, {"weight": torch.zeros(1)})
    message = refusal(path, **{**KNOWN, "architecture": "timm:resnet26", "width": None}, named=False)
    assert "'timm:resnet26' needs the library timm: pip install 'robustfeatures[timm]'" in message


def test_weights_of_trades(tmp_path: Path) -> None:
    """A WRN under the names of TRADES, computed here from its weights alone."""
    torch.manual_seed(0)
    weights: dict[str, Tensor] = {"conv1.weight": torch.randn(16, 3, 3, 3) / 5}

    def norm(name: str, channels: int) -> None:
        weights[f"{name}.weight"] = torch.rand(channels) + 0.5
        weights[f"{name}.bias"] = torch.rand(channels) - 0.5
        weights[f"{name}.running_mean"] = torch.rand(channels) - 0.5
        weights[f"{name}.running_var"] = torch.rand(channels) + 0.5

    channels = 16
    for block, filters in enumerate((8, 16, 32), start=1):
        for unit in range(5):
            name = f"block{block}.layer.{unit}"
            norm(f"{name}.bn1", channels)
            weights[f"{name}.conv1.weight"] = torch.randn(filters, channels, 3, 3) / (9 * channels) ** 0.5
            norm(f"{name}.bn2", filters)
            weights[f"{name}.conv2.weight"] = torch.randn(filters, filters, 3, 3) / (9 * filters) ** 0.5
            if unit == 0:
                weights[f"{name}.convShortcut.weight"] = torch.randn(filters, channels, 1, 1) / channels**0.5
            channels = filters
    norm("bn1", 32)
    weights |= {"fc.weight": torch.randn(10, 32), "fc.bias": torch.randn(10)}
    idle = {name.replace("block1", "sub_block1"): torch.randn(1) for name in weights if name.startswith("block1")}

    def activated(images: Tensor, name: str) -> Tensor:
        parts = [weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.relu(F.batch_norm(images, *parts))

    images = torch.rand(2, *CIFAR)
    hidden = F.conv2d(images, weights["conv1.weight"], padding=1)
    for block in (1, 2, 3):
        for unit in range(5):
            name = f"block{block}.layer.{unit}"
            stride = 2 if block > 1 and unit == 0 else 1
            first = activated(hidden, f"{name}.bn1")
            inner = F.conv2d(first, weights[f"{name}.conv1.weight"], stride=stride, padding=1)
            inner = F.conv2d(activated(inner, f"{name}.bn2"), weights[f"{name}.conv2.weight"], padding=1)
            if unit == 0:
                hidden = F.conv2d(first, weights[f"{name}.convShortcut.weight"], stride=stride)
            hidden = hidden + inner
    pooled = activated(hidden, "bn1").mean(dim=(2, 3))
    expected = pooled @ weights["fc.weight"].T + weights["fc.bias"]

    network = load_model(
        saved(tmp_path, weights | idle), architecture="wrn-34-10", num_classes=10, image_shape=CIFAR, width=8
    )
    with torch.no_grad():
        torch.testing.assert_close(network.representation(images), pooled, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-3)


def refusal(path: Path, *, named: bool = True, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        load_model(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message or not named or options.get("mean") or options.get("std")
    return message


def test_another_architecture(trained: Network, tmp_path: Path) -> None:
    path = saved(tmp_path, kuangliu(trained))
    wanted = {**KNOWN, "architecture": "resnet50"}
    # Bottlenecks begin with a 1x1 convolution.
    message = refusal(path, **wanted)
    assert message == (
        f"{path} is no checkpoint of 'resnet50': weight 'layer1.0.conv1.weight' has shape (4, 4, 3, 3), "
        "not (4, 4, 1, 1)"
    )
    message = refusal(path, **{**KNOWN, "architecture": "densenet121"})
    assert "is no checkpoint of 'densenet121': weight 'dense1.0.bn1.weight' is missing" in message
    message = refusal(path, **{**KNOWN, "architecture": "vgg16"})
    assert "is no checkpoint of 'vgg16': weight 'features.0.weight' is missing" in message


def test_missing_left_over_and_misshapen_weights(trained: Network, tmp_path: Path) -> None:
    whole = kuangliu(trained)
    missing = {name: tensor for name, tensor in whole.items() if name != "layer1.0.conv1.weight"}
    message = refusal(saved(tmp_path, missing), **KNOWN)
    assert "is no checkpoint of 'resnet18': weight 'layer1.0.conv1.weight' is missing" in message
    message = refusal(saved(tmp_path, {**whole, "layer5.0.conv1.weight": torch.zeros(1)}), **KNOWN)
    assert "is no checkpoint of 'resnet18': weight 'layer5.0.conv1.weight' has no place in it" in message
    for odd in (whole["conv1.weight"].to(torch.complex64), whole["conv1.weight"].to_sparse()):
        message = refusal(saved(tmp_path, {**whole, "conv1.weight": odd}), **KNOWN)
        assert "weight 'conv1.weight' is no array of real numbers" in message
    message = refusal(saved(tmp_path, {**whole, "fc.weight": whole["linear.weight"]}), **KNOWN)
    assert "weight 'fc.weight' has no place in it" in message
    message = refusal(saved(tmp_path, whole), **{**KNOWN, "num_classes": 100})
    assert "weight 'head.weight' has shape (10, 32), not (100, 32)" in message


def test_counters_of_batches_may_be_absent(trained: Network, tmp_path: Path) -> None:
    old = {name: tensor for name, tensor in kuangliu(trained).items() if not name.endswith("num_batches_tracked")}
    assert len(old) < len(kuangliu(trained))
    images = torch.rand(2, *CIFAR)
    assert torch.equal(load_model(saved(tmp_path, old), **KNOWN)(images), trained(images))


def test_files_of_something_else(trained: Network, tmp_path: Path) -> None:
    for content in (b"", b"not a torch file\n", b"PK\x03\x04 not a zip file", bytes(range(256)) * 8):
        path = tmp_path / "weights.pt"
        path.write_bytes(content)
        assert "not a torch file of tensors alone" in refusal(path, **KNOWN)
    assert "not a torch file of tensors alone" in refusal(saved(tmp_path, trained), **KNOWN)
    for other in ({"epoch": 3}, [torch.zeros(1)], {}, torch.zeros(3)):
        assert "holds no state_dict" in refusal(saved(tmp_path, other), **KNOWN)
    assert "there is no such file" in refusal(tmp_path / "absent.pth", **KNOWN)


class Command:
    """A malicious pickle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_nothing_in_a_file_is_run(trained: Network, tmp_path: Path) -> None:
    path = saved(tmp_path, {"state_dict": kuangliu(trained), "extra": Command(tmp_path / "made")})
    assert "not a torch file of tensors alone" in refusal(path, **KNOWN)
    assert not (tmp_path / "made").exists()


def test_what_must_be_said(trained: Network, tmp_path: Path) -> None:
    path = saved(tmp_path, kuangliu(trained))
    for known in ({}, {"architecture": "resnet18"}, {"architecture": "resnet18", "num_classes": 10}):
        assert "give architecture=, num_classes=, image_shape=" in refusal(path, **known)
    assert "says itself which network it holds" in refusal(tmp_path / "model.safetensors", architecture="resnet18")
    assert "mean, std: give both, or neither" in refusal(path, mean=(0, 0, 0), **KNOWN)
    assert "std: 1 values for images of 3 channels" in refusal(path, mean=(0, 0, 0), std=(1,), **KNOWN)
    assert "std: 0 is not above 0" in refusal(path, mean=(0, 0, 0), std=(1, 0, 1), **KNOWN)
