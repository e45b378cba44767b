"""A job without a workflow, and the digits and their network as payloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.data.dataset import ImageDataset, write_dataset
from robustfeatures.models.network import Network
from robustfeatures.models.saving import save_network
from tests.conftest import Digits

SHAPE = (1, 8, 8)


@pytest.fixture
def job() -> Any:
    """What a measurement asks of its job."""
    return SimpleNamespace(device=torch.device("cpu"), progress=lambda done, total: None)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a network as a model's payload."""

    def save(network: Network, name: str, architecture: str = "small-cnn", classes: int = 10) -> Path:
        path = tmp_path / f"{name}.safetensors"
        names = tuple(map(str, range(classes)))
        save_network(network, path, architecture=architecture, width=None, class_names=names, image_shape=SHAPE)
        return path

    return save


def split_of(digits: Digits, rows: slice, labels: np.ndarray | None = None) -> ImageDataset:
    """These digits, labelled anew where `labels` are given, with the class they have as `source_label`."""
    own = digits.labels[rows].numpy()
    return ImageDataset(
        images=digits.images[rows].numpy(),
        labels=own if labels is None else labels,
        provenance={"source_index": np.arange(len(own)), **({} if labels is None else {"source_label": own})},
        class_names=tuple(map(str, range(10))),
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes splits as a data set's payload."""

    def write(name: str, **splits: ImageDataset) -> Path:
        write_dataset(tmp_path / f"{name}.zarr", splits)
        return tmp_path / f"{name}.zarr"

    return write
