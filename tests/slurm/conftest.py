"""One Slurm for all tests of this folder that run in the same test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, UnavailableError, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # They take longest and wait most, so that one test process begins with them while the others do the rest.
    items.sort(key=lambda item: not item.path.is_relative_to(Path(__file__).parent))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        with running() as started:
            yield started
    except UnavailableError as reason:
        pytest.skip(str(reason))
