"""Derived sets that select: which images, with which labels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.derived import misclassified, transferring
from robustfeatures.derived.derivation import Derivation
from robustfeatures.derived.settings import Method, Misclassified, Transferring
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network
from tests.conftest import Digits
from tests.measurements.conftest import split_of

ERRORS = Misclassified(kind="errors")


def derived(module: ModuleType, network: Network, original: ImageDataset, method: Method) -> Derivation:
    found: Derivation = module.derive(FrozenNetwork(network), original, method, seed=0, device=torch.device("cpu"))
    return found


def images_of(found: Derivation) -> NDArray[Any]:
    return found.images(np.arange(len(found)), lambda steps: None)


def test_errors_are_the_misclassified_images_with_the_networks_labels(network: Network, digits: Digits) -> None:
    original = split_of(digits, slice(1000, 1797))
    with torch.no_grad():
        predicted = network(digits.images[1000:1797]).argmax(1).numpy()
    found = derived(misclassified, network, original, ERRORS)
    wrong = np.flatnonzero(predicted != original.labels)
    assert 5 < len(wrong) < 400
    np.testing.assert_array_equal(found.provenance["source_index"], wrong)
    np.testing.assert_array_equal(found.labels, predicted[wrong])
    np.testing.assert_array_equal(found.provenance["source_label"], original.labels[wrong])
    assert (found.labels != found.provenance["source_label"]).all()
    np.testing.assert_array_equal(images_of(found), original.float_images(wrong))


def test_a_source_without_errors_is_refused(network: Network, digits: Digits) -> None:
    with torch.no_grad():
        predicted = network(digits.images[:50]).argmax(1).numpy()
    with pytest.raises(UserError, match=r"^method\.errors: the source classifies all 50 images right$"):
        derived(misclassified, network, split_of(digits, slice(0, 50), predicted), ERRORS)


YES, NO = (Transferring(kind="transferring", transfers=transfers) for transfers in (True, False))


def test_examples_are_split_by_whether_the_network_takes_them_for_their_label(network: Network, digits: Digits) -> None:
    """No image is lost or changed, and the provenance stays."""
    wanted = ((digits.labels[1000:1797] + torch.arange(797) % 2) % 10).numpy()
    original = split_of(digits, slice(1000, 1797), wanted)
    with torch.no_grad():
        predicted = network(digits.images[1000:1797]).argmax(1).numpy()
    transfer, rest = (derived(transferring, network, original, method) for method in (YES, NO))
    np.testing.assert_array_equal(transfer.provenance["source_index"], np.flatnonzero(predicted == wanted))
    np.testing.assert_array_equal(rest.provenance["source_index"], np.flatnonzero(predicted != wanted))
    assert min(len(transfer), len(rest)) > 200
    for half in (transfer, rest):
        rows = half.provenance["source_index"]
        np.testing.assert_array_equal(half.labels, wanted[rows])
        np.testing.assert_array_equal(images_of(half), original.float_images(rows))
        assert half.provenance.keys() == original.provenance.keys()


@pytest.mark.parametrize(("method", "found", "shift"), [(YES, "none", 1), (NO, "all", 0)])
def test_a_half_without_examples_is_refused(
    network: Network, digits: Digits, method: Transferring, found: str, shift: int
) -> None:
    with torch.no_grad():
        predicted = network(digits.images[:50]).argmax(1).numpy()
    given = split_of(digits, slice(0, 50), (predicted + shift) % 10)
    with pytest.raises(UserError, match=rf"^method\.transfers: {found} of the 50 images transfer to the source$"):
        derived(transferring, network, given, method)
