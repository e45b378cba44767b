"""Derived sets that select, or lead away from the label: which images, with which labels."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.attacks.gradients import loss_gradients, pictured
from robustfeatures.data.dataset import ImageDataset, read_dataset, write_dataset
from robustfeatures.derived.settings import (
    Derived,
    Inversion,
    LossGradient,
    Method,
    TargetedAttack,
    Transferring,
    UntargetedAttack,
)
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network
from robustfeatures.models.saving import save_network
from robustfeatures.pipeline.run.stages.derived import make
from robustfeatures.pipeline.run.stages.selection import misclassified, transferring
from robustfeatures.pipeline.store.store import Store
from tests.conftest import Digits
from tests.measurements.conftest import split_of
from tests.pipeline.run.stages.jobs import job_in

JOB: Any = SimpleNamespace(device=torch.device("cpu"), computing=nullcontext)


def test_errors_are_the_misclassified_images_with_the_networks_labels(network: Network, digits: Digits) -> None:
    original = split_of(digits, slice(1000, 1797))
    with torch.no_grad():
        predicted = network(digits.images[1000:1797]).argmax(1).numpy()
    found = misclassified(FrozenNetwork(network), original, JOB)
    wrong = np.flatnonzero(predicted != original.labels)
    assert 5 < len(wrong) < 400
    np.testing.assert_array_equal(found.provenance["source_index"], wrong)
    np.testing.assert_array_equal(found.labels, predicted[wrong])
    np.testing.assert_array_equal(found.provenance["source_label"], original.labels[wrong])
    assert (found.labels != found.provenance["source_label"]).all()
    np.testing.assert_array_equal(found.float_images(), original.float_images(wrong))


def test_a_source_without_errors_is_refused(network: Network, digits: Digits) -> None:
    with torch.no_grad():
        predicted = network(digits.images[:50]).argmax(1).numpy()
    with pytest.raises(UserError, match=r"^method\.errors: the source classifies all 50 images right$"):
        misclassified(FrozenNetwork(network), split_of(digits, slice(0, 50), predicted), JOB)


YES, NO = (Transferring(kind="transferring", transfers=transfers) for transfers in (True, False))


def test_examples_are_split_by_whether_the_network_takes_them_for_their_label(network: Network, digits: Digits) -> None:
    """Nothing is lost, nothing is changed, and where each image came from is still known."""
    wanted = ((digits.labels[1000:1797] + torch.arange(797) % 2) % 10).numpy()
    original = split_of(digits, slice(1000, 1797), wanted)
    with torch.no_grad():
        predicted = network(digits.images[1000:1797]).argmax(1).numpy()
    transfer, rest = (transferring(FrozenNetwork(network), original, method, JOB) for method in (YES, NO))
    np.testing.assert_array_equal(transfer.provenance["source_index"], np.flatnonzero(predicted == wanted))
    np.testing.assert_array_equal(rest.provenance["source_index"], np.flatnonzero(predicted != wanted))
    assert min(len(transfer), len(rest)) > 200
    for half in (transfer, rest):
        rows = half.provenance["source_index"]
        np.testing.assert_array_equal(half.labels, wanted[rows])
        np.testing.assert_array_equal(half.float_images(), original.float_images(rows))
        assert half.provenance.keys() == original.provenance.keys()


@pytest.mark.parametrize(("method", "found", "shift"), [(YES, "none", 1), (NO, "all", 0)])
def test_a_half_without_examples_is_refused(
    network: Network, digits: Digits, method: Transferring, found: str, shift: int
) -> None:
    with torch.no_grad():
        predicted = network(digits.images[:50]).argmax(1).numpy()
    given = split_of(digits, slice(0, 50), (predicted + shift) % 10)
    with pytest.raises(UserError, match=rf"^method\.transfers: {found} of the 50 images transfer to the source$"):
        transferring(FrozenNetwork(network), given, method, JOB)


Reports = list[tuple[int, int]]


def derived(
    folder: Path, network: Network, original: ImageDataset, method: Method, reports: Reports | None = None
) -> ImageDataset:
    """A set derived from a test split, as its stage does it; `reports` takes what it says of how far it is."""
    write_dataset(folder / "original.zarr", {"test": original})
    save_network(
        network,
        folder / "model.safetensors",
        architecture="small-cnn",
        width=None,
        class_names=original.class_names,
        image_shape=original.image_shape,
    )
    job: Any = job_in(folder, Store(folder / "store"))
    if reports is not None:
        job.progress = lambda done, total: reports.append((done, total))
    inputs = {"data": folder / "original.zarr", "source": folder / "model.safetensors"}
    make(Derived(method=method, seed=0, splits=("test",)), inputs, folder, job)
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


def test_gradients_as_images(network: Network, digits: Digits, tmp_path: Path) -> None:
    original = split_of(digits, slice(1000, 1040))
    found = derived(tmp_path, network, original, LossGradient(kind="loss-gradient", deviations=2.0))
    gradients = loss_gradients(network, digits.images[1000:1040], digits.labels[1000:1040])
    # Folded batch norm rounds otherwise.
    np.testing.assert_allclose(found.float_images(), pictured(gradients, 2.0).numpy(), atol=1e-3)
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
    monkeypatch.setattr("robustfeatures.pipeline.run.stages.derived.batch_size", lambda device, shape: 25)
    reports: Reports = []
    method = UntargetedAttack(kind="untargeted-attack", norm="l2", eps=0.5, step_size=0.1, steps=2)
    derived(tmp_path, network, split_of(digits, slice(1000, 1040)), method, reports)
    assert reports == [(25, 80), (50, 80), (65, 80), (80, 80)]
