"""Processes of `run_together` that are forked from one that has imported torch: for each the import takes seconds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from types import SimpleNamespace

import pytest

from robustfeatures.pipeline.run import processes


@contextmanager
def forked_together(*modules: str) -> Iterator[None]:
    """Inside, `run_together` forks its processes from one that has imported these modules and no GPU's driver."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", *modules])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "multiprocessing", SimpleNamespace(get_context=lambda method: context))
        yield
    # The next server imports the modules of other tests.
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
