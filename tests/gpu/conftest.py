"""The checks of attacks, trainings, resumption, precision and determinism on a GPU; without one they are skipped.

Most are those of other folders with another `device`. `pytest -m processor tests/gpu` runs them on the
processor.
"""

from __future__ import annotations

import pytest
import torch

from robustfeatures.engine.determinism import make_deterministic


@pytest.fixture(scope="session", params=[pytest.param("cpu", marks=pytest.mark.processor), "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where tests compute."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    # As in a job.
    make_deterministic()
    return torch.device(request.param)
