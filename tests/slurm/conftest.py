"""One Slurm for all tests of this folder that run in the same test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, UnavailableError, running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        with running() as started:
            yield started
    except UnavailableError as reason:
        pytest.skip(str(reason))
