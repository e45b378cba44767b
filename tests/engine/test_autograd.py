"""Gradients for scipy, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from robustfeatures.engine.autograd import with_gradient


def test_value_and_gradient_of_a_function() -> None:
    function = with_gradient(lambda point: (point[0] * point[1]).exp() + (point**3).sum())
    point = np.array([0.3, -1.2, 0.7])
    value, gradient = function(point)
    assert value == pytest.approx(np.exp(-0.36) + 0.3**3 - 1.2**3 + 0.7**3, rel=1e-14)
    np.testing.assert_allclose(gradient, approx_fprime(point, lambda at: function(at)[0], 1e-7), rtol=1e-5)
    assert gradient.dtype == np.float64
