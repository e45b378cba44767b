"""The derived set of errors: which images, with which labels."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robustfeatures.engine.prepared import Prepared
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network
from robustfeatures.stages.selection import misclassified
from tests.conftest import Digits
from tests.measurements.conftest import split_of

JOB: Any = SimpleNamespace(device=torch.device("cpu"), computing=nullcontext)


def test_errors_are_the_misclassified_images_with_the_networks_labels(network: Network, digits: Digits) -> None:
    original = split_of(digits, slice(1000, 1797))
    with torch.no_grad():
        predicted = network(digits.images[1000:1797]).argmax(1).numpy()
    found = misclassified(Prepared(network), original, JOB)
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
        misclassified(Prepared(network), split_of(digits, slice(0, 50), predicted), JOB)
