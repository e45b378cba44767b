"""Derived sets as their stage makes them: labels, images, and reports of progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.attacks import invert
from robustfeatures.attacks.gradients import loss_gradients, render_gradients
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.derived.settings import (
    Derived,
    Inversion,
    LossGradient,
    Method,
    TargetedAttack,
    UntargetedAttack,
)
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network
from robustfeatures.pipeline.run.stages.derived import make
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.pipeline.store.networks import save_network
from robustfeatures.pipeline.store.store import Store
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.pipeline.run.stages.jobs import job_in

Reports = list[tuple[int, int]]


def derived(
    folder: Path, network: Network, original: ImageDataset, method: Method, reports: Reports | None = None
) -> ImageDataset:
    """The set that the stage derives from a test split. `reports` collects the reports of progress."""
    write_dataset(folder / "original.zarr", {"test": original})
    save_network(
        network,
        folder / "model.safetensors",
        architecture="small-cnn",
        width=None,
        class_names=original.class_names,
        image_shape=original.image_shape,
    )
    inputs = {"data": folder / "original.zarr", "source": folder / "model.safetensors"}
    job: Any = job_in(folder, inputs, Store(folder / "store"))
    if reports is not None:
        job.progress = lambda done, total: reports.append((done, total))
    make(Derived(method=method, seed=0, splits=("test",)), folder, job)
    return read_dataset(folder / "data.zarr", "test")


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_examples_of_a_large_radius_keep_their_label(
    network: Network, digits: Digits, tmp_path: Path, norm: str
) -> None:
    original, eps = split_of(digits, slice(1000, 1100)), {"l2": 2.0, "linf": 0.4}[norm]
    attack = UntargetedAttack(
        kind="untargeted-attack", norm="l2" if norm == "l2" else "linf", eps=eps, step_size=eps / 10, steps=20
    )
    found = derived(tmp_path, network, original, attack)
    np.testing.assert_array_equal(found.labels, original.labels)
    assert (found.provenance["target"] == -1).all()
    change = (found.float_images() - original.float_images()).reshape(100, -1)
    assert np.linalg.norm(change, ord=2 if norm == "l2" else np.inf, axis=1).max() <= eps + 1e-5
    with torch.no_grad():
        predicted = network(torch.from_numpy(found.float_images())).argmax(1).numpy()
    # The network is right on most of these digits, and a radius that large leaves it hardly any.
    assert (predicted != original.labels).mean() > 0.9


@pytest.mark.parametrize(("given", "expected"), [(None, 0.25), (0.05, 0.05)])
def test_inversions_start_from_noise_of_the_deviation_given(
    network: Network, digits: Digits, tmp_path: Path, given: float | None, expected: float
) -> None:
    method = Inversion(kind="inversion", start="noise", step_size=1e-6, steps=1, noise_deviation=given)
    found = derived(tmp_path, network, split_of(digits, slice(1000, 1040)), method).float_images()
    # The step is too short to matter. Clipping at two deviations leaves 96 % of that of 1/4.
    assert found.std() == pytest.approx(expected, rel=0.05)
    assert found.mean() == pytest.approx(0.5, abs=0.02)


def test_an_inversion_goes_from_the_image_it_names_to_its_own(network: Network, digits: Digits, tmp_path: Path) -> None:
    original = split_of(digits, slice(1000, 1040))
    found = {}
    for steps, step_size in ((1, 1e-6), (30, 0.05)):
        folder = tmp_path / f"{steps} steps"
        folder.mkdir()
        method = Inversion(kind="inversion", start="images", step_size=step_size, steps=steps)
        found[steps] = derived(folder, network, original, method)
    # Here the rows of the split are the source indices.
    start = original.float_images(found[30].provenance["start_index"])
    assert np.abs(start - original.float_images()).max(axis=(1, 2, 3)).min() > 0.1
    np.testing.assert_allclose(found[1].float_images(), start, atol=1e-5)
    targets = torch.from_numpy(original.float_images())
    expected = invert(FrozenNetwork(network), torch.from_numpy(start), targets, step_size=0.05, steps=30)
    np.testing.assert_allclose(found[30].float_images(), expected.numpy(), atol=1e-4)
    np.testing.assert_array_equal(found[30].labels, original.labels)


def test_gradients_as_images(network: Network, digits: Digits, tmp_path: Path) -> None:
    original = split_of(digits, slice(1000, 1040))
    found = derived(tmp_path, network, original, LossGradient(kind="loss-gradient", deviations=2.0))
    gradients = loss_gradients(network, digits.images[1000:1040], digits.labels[1000:1040])
    # Folded batch norm rounds otherwise.
    np.testing.assert_allclose(found.float_images(), render_gradients(gradients, 2.0).numpy(), atol=1e-3)
    np.testing.assert_array_equal(found.labels, original.labels)


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        (Inversion(kind="inversion", start="noise", step_size=0.1, steps=4), 4),
        (TargetedAttack(kind="targeted-attack", target="next", norm="l2", eps=0.5, step_size=0.1, steps=3), 3),
        (UntargetedAttack(kind="untargeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=5), 5),
        (LossGradient(kind="loss-gradient"), 1),
    ],
)
def test_how_far_a_batch_is_shows_after_every_step(
    network: Network, digits: Digits, tmp_path: Path, method: Method, steps: int
) -> None:
    reports: Reports = []
    derived(tmp_path, network, split_of(digits, slice(1000, 1040)), method, reports)
    assert reports == [(40 * done, 40 * steps) for done in range(1, steps + 1)]


def test_several_batches_count_on(
    network: Network, digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustfeatures.engine.batch_size.choose_batch_size", lambda device, shape: 25)
    reports: Reports = []
    method = UntargetedAttack(kind="untargeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=2)
    derived(tmp_path, network, split_of(digits, slice(1000, 1040)), method, reports)
    assert reports == [(25, 80), (50, 80), (65, 80), (80, 80)]
