"""Networks: the public factory, normalisation inside, and a round trip through safetensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robustfeatures import load_model
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.pipeline.store.networks import save_network


@pytest.mark.parametrize(("width", "shape"), [(None, (1, 8, 8)), (4, (3, 32, 32))])
def test_the_small_network(width: int | None, shape: tuple[int, int, int]) -> None:
    network = create("small-cnn", num_classes=7, image_shape=shape, width=width)
    images = torch.rand(3, *shape)
    filters = width or 16
    # Two 3x3 convolutions without bias, two batch norms, one linear layer.
    parameters = 9 * shape[0] * filters + 9 * filters * 2 * filters + 2 * 3 * filters + 2 * filters * 7 + 7
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network.representation(images).shape == (3, 2 * filters)
    assert network(images).shape == (3, 7)
    torch.testing.assert_close(network.eval()(images), network.head(network.representation(images)))


def test_the_representation_is_narrower_than_the_input() -> None:
    network = create("small-cnn", num_classes=10, image_shape=(1, 8, 8))
    assert network.representation(torch.rand(1, 1, 8, 8)).numel() < 64


def test_normalisation_is_inside_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = create("small-cnn", num_classes=10, image_shape=(3, 8, 8))
    images = torch.rand(200, 3, 8, 8) * torch.tensor([0.2, 0.5, 1.0]).view(3, 1, 1)
    network.set_normalisation(images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3)))
    seen: list[torch.Tensor] = []
    network.features.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(images)
    torch.testing.assert_close(seen[0].mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(seen[0].std(dim=(0, 2, 3)), torch.ones(3), rtol=0, atol=1e-4)
    paths = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    for path in paths:
        save_network(
            network, path, architecture="small-cnn", width=None, class_names=tuple("0123456789"), image_shape=(3, 8, 8)
        )
    assert paths[0].read_bytes() == paths[1].read_bytes()
    loaded = load_model(paths[0])
    assert not loaded.training
    assert torch.equal(loaded(images[:50]), network.eval()(images[:50]))


def test_unknown_architecture() -> None:
    with pytest.raises(UserError, match=r"architecture: 'smal-cnn' is unknown \(did you mean 'small-cnn'\?\)"):
        create("smal-cnn", num_classes=10, image_shape=(1, 8, 8))


def test_load_model_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        load_model(tmp_path / "model.safetensors")
