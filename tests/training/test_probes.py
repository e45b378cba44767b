"""Probes: what they measure, and that a training with them is the same to the bit as one without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from robustfeatures.attacks import pgd
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.engine.batches import InMemory
from robustfeatures.measurements.logistic_regression import predict_by_logistic_regression
from robustfeatures.models.network import Network
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.run.job import Job
from robustfeatures.pipeline.run.stages import measurement
from robustfeatures.pipeline.run.stages.model import make
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.store.networks import load_network
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.parameters import Measurement
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.model import _build_probe_set
from robustfeatures.training.performance_correlation import performance_correlation
from robustfeatures.training.probes import ProbeSet
from robustfeatures.training.settings import Model, Probe, ProbeAttack
from tests.conftest import QUICK, Digits
from tests.pipeline.run.stages.jobs import job_in
from tests.runs import MemoryRun

TOWARDS_NEXT = ProbeAttack(norm="l2", eps=0.9, step_size=0.1, steps=10, targeted=True)
AWAY = replace(TOWARDS_NEXT, targeted=False)
PROBES = (
    Probe(name="train", input="data", split="train", images=50),
    Probe(name="shifted", input="data", split="test", label_shift=1, every=2),
    Probe(name="correlation", input="data", split="test", simple_classifier="simple", every=3),
    Probe(
        name="attack",
        input="data",
        split="test",
        label_shift=1,
        attack=TOWARDS_NEXT,
        transfer_to=("other",),
        images=100,
    ),
    Probe(name="robust", input="data", split="test", attack=AWAY, every=5),
)
EPOCHS = 3


@pytest.fixture(scope="module")
def data(digits: Digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def part(first: int, last: int) -> ImageDataset:
        images = (digits.images[first:last] * 255).round().to(torch.uint8).cpu().numpy()
        provenance = {"source_index": np.arange(first, last)}
        return ImageDataset(images, digits.labels[first:last].cpu().numpy(), provenance, tuple("0123456789"))

    path = tmp_path_factory.mktemp("data") / "data.zarr"
    write_dataset(path, {"train": part(0, 600), "test": part(600, 900)})
    return path


def train_in(
    folder: Path, inputs: Mapping[str, Path], probes: tuple[Probe, ...], device: torch.device, *, seed: int = 0
) -> Job:
    """A model trained in the folder, as its stage does it."""
    (folder / "scratch").mkdir(parents=True)
    job = job_in(folder, inputs, Store(folder / "store"), device.type)
    training = replace(QUICK, epochs=EPOCHS, schedule="one-cycle")
    parameters = Model(architecture=Architecture(name="small-cnn"), training=training, seed=seed, probes=probes)
    make(parameters, folder, job)
    return job


@pytest.fixture(scope="module")
def other(data: Path, device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    train_in(folder, {"data": data}, (), device, seed=1)
    return folder / "model.safetensors"


@pytest.fixture(scope="module")
def simple(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The predictions of a logistic regression, as their stage writes them."""
    folder = tmp_path_factory.mktemp("simple")
    job = job_in(folder, {"data": data, "predicted": data}, Store(folder / "store"))
    measurement.make(Measurement(module="measurements.logistic_regression", settings={"split": "test"}), folder, job)
    return folder / "rows.csv"


@pytest.fixture(scope="module")
def probed(
    data: Path, other: Path, simple: Path, device: torch.device, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Job]:
    folder = tmp_path_factory.mktemp("probed")
    return folder, train_in(folder, {"data": data, "other": other, "simple": simple}, PROBES, device)


def test_weights_are_the_same_to_the_bit(
    data: Path, probed: tuple[Path, Job], device: torch.device, tmp_path: Path
) -> None:
    train_in(tmp_path / "without", {"data": data}, (), device)
    folder, _ = probed
    assert (tmp_path / "without" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_pixels_are_normalised_by_the_training_images(digits: Digits, probed: tuple[Path, Job]) -> None:
    folder, _ = probed
    network = load_network(folder / "model.safetensors", torch.device("cpu"))
    shown = (digits.images[:600].cpu() * 255).round() / 255
    torch.testing.assert_close(network.mean.flatten(), shown.mean().view(1), atol=1e-5, rtol=0)
    torch.testing.assert_close(network.std.flatten(), shown.std(correction=0).view(1), atol=1e-5, rtol=0)


def test_no_draw_of_the_training_moves(digits: Digits) -> None:
    """A network with dropout draws from torch's own generator. An attack may too."""

    def dropping() -> Network:
        torch.manual_seed(0)
        features = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5))
        return Network(features, nn.Linear(32, 10), 1).to(digits.images.device)

    def run(*, with_probes: bool) -> Network:
        network = dropping()
        images, labels = InMemory(digits.images[:200]), digits.labels[:200]
        attack = Attacker(network, AWAY, "float32")

        def drawing(batch: torch.Tensor, wanted: torch.Tensor, seed: int) -> torch.Tensor:
            return attack((batch + 0.01 * torch.randn_like(batch)).clamp(0, 1), wanted, seed)

        probes = [ProbeSet("attacked", images, labels, attack=drawing), ProbeSet("train", images, labels)]
        train(network, images, labels, replace(QUICK, epochs=2), seed=0, probes=probes if with_probes else ())
        return network

    one, two = run(with_probes=True).state_dict(), run(with_probes=False).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_history_holds_every_measurement(probed: tuple[Path, Job]) -> None:
    folder, job = probed
    history = pd.read_csv(folder / "history.csv")
    epochs = {name: list(rows["epoch"]) for name, rows in history.groupby(["probe", "network"])}
    assert epochs == {
        ("train", "itself"): [1, 2, 3],
        ("shifted", "itself"): [2, 3],
        ("correlation", "itself"): [3],
        ("attack", "itself"): [1, 2, 3],
        ("attack", "other"): [1, 2, 3],
        ("robust", "itself"): [3],
    }
    assert dict(zip(history["probe"], history["images"], strict=True)) == {
        "train": 50,
        "shifted": 300,
        "correlation": 300,
        "attack": 100,
        "robust": 300,
    }
    assert (history[history["probe"] == "attack"]["images"] == 100).all()
    assert 0 < job.costs["probe_seconds"] < job.computing_seconds


def test_values_are_those_of_the_network_at_the_end(digits: Digits, probed: tuple[Path, Job], other: Path) -> None:
    folder, _ = probed
    history = pd.read_csv(folder / "history.csv")
    ended = history[history["epoch"] == EPOCHS]
    last = ended[ended["network"] == "itself"].set_index("probe")["value"]
    (transferred,) = ended[ended["network"] == "other"]["value"]
    network, transfer_model = load_network(folder / "model.safetensors"), load_network(other)
    images, labels = digits.images[600:900], digits.labels[600:900]
    predicted = network(images).argmax(1)
    assert last["shifted"] == pytest.approx((predicted == (labels + 1) % 10).float().mean().item(), abs=1e-6)
    simple = predict_by_logistic_regression(digits.images[:600].numpy(), digits.labels[:600].numpy(), images.numpy())
    correlation = performance_correlation(predicted.numpy(), labels.numpy(), simple, 10)
    assert last["correlation"] == pytest.approx(correlation)
    away = pgd(network, images, labels, norm="l2", eps=0.9, step_size=0.1, steps=10)
    # Batch norm is folded in the one and not in the other: an image at the border may change sides.
    assert last["robust"] == pytest.approx((network(away).argmax(1) == labels).float().mean().item(), abs=2 / 300)
    goal = (labels + 1) % 10
    towards = pgd(network, images, goal, norm="l2", eps=0.9, step_size=0.1, steps=10, targeted=True)
    # The probe has 100 of these 300: four standard errors of such a draw.
    for value, shown in ((last["attack"], network), (transferred, transfer_model)):
        assert value == pytest.approx((shown(towards).argmax(1) == goal).float().mean().item(), abs=0.2)
    assert last["attack"] > transferred


def test_a_probe_of_few_images_has_their_labels_and_their_simple_predictions(network: Network) -> None:
    """Every pixel of image i is i / 300, so that an image shows its row. The simple classifier is always right."""
    count, few = 300, 50
    rows = np.arange(count)
    labels = rows // 7 % 10
    pixels = np.broadcast_to(rows[:, None, None, None] / count, (count, 1, 8, 8)).astype(np.float32)
    data = ImageDataset(pixels, labels, {"source_index": rows}, tuple("0123456789"))
    simple = [{"prediction": str(label)} for label in labels]
    run = MemoryRun({"data": {"train": data}, "simple": simple})
    parameters = Model(architecture=Architecture(name="small-cnn"), training=QUICK, seed=0)
    probe = Probe(name="few", input="data", split="train", images=few, simple_classifier="simple")
    found = _build_probe_set(probe, parameters, network, run)
    ((_, shown),) = found.images.batches(torch.arange(few), few)
    chosen = (shown[:, 0, 0, 0] * count).round().long()
    assert len(set(chosen.tolist())) == few
    own = torch.from_numpy(labels)[chosen]
    assert torch.equal(found.labels, own)
    # Of a network that is right too, the simple classifier explains everything.
    expected = performance_correlation(own.numpy(), own.numpy(), own.numpy(), 10)
    assert found.measure(own, own) == pytest.approx(expected)


def test_each_batch_of_an_attacked_probe_has_a_seed_of_its_own(
    network: Network, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def attack(images: torch.Tensor, labels: torch.Tensor, seed: int) -> torch.Tensor:
        seeds.append(seed)
        return images

    monkeypatch.setattr("robustfeatures.training.probes.choose_batch_size", lambda *shape: 25)
    ProbeSet("attacked", InMemory(digits.images[:100]), digits.labels[:100], attack=attack).evaluate(network)
    assert len(seeds) == len(set(seeds)) == 4
