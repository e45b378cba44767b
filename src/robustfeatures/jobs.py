"""One job: from a planned recipe to a published payload and its reference."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.progress import Progress
from robustfeatures.recipes.code import ROOT, code_digest, forget_sources
from robustfeatures.store.content import content_digest
from robustfeatures.store.files import read_json
from robustfeatures.store.references import Artifacts, read_reference, store_key, write_reference
from robustfeatures.store.store import Store, discard

if TYPE_CHECKING:
    import torch

    from robustfeatures.recipes.parameters import Parameters

log = logging.getLogger(__name__)

# What a result is likely to depend on, recorded beside it.
PACKAGES = ("torch", "numpy", "zarr", "scikit-learn", "safetensors", "snakemake")


@dataclass(frozen=True)
class Surroundings:
    """Where a job runs, none of which is part of a recipe: the store, the raw downloads, device, threads, terminal."""

    store: Store
    raw: Path
    device: str
    threads: int
    terminal: bool = False


class Job:
    """What a stage may ask of the job that runs it."""

    def __init__(self, scratch: Path, surroundings: Surroundings, progress: Progress) -> None:
        self.scratch = scratch
        self.raw = surroundings.raw
        self.progress = progress
        self.computing_seconds = 0.0
        self._device = surroundings.device

    @cached_property
    def device(self) -> torch.device:
        """The device to compute on."""
        import torch

        if self._device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self._device == "cuda" and not torch.cuda.is_available():
            raise UserError("config.yaml: device: cuda, but torch finds no GPU here")
        return torch.device(self._device)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time inside as training, attack or evaluation."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.computing_seconds += time.monotonic() - began


def build(reference: Path, surroundings: Surroundings) -> None:
    """Make the artifact that `reference` names: find its payload in the store, or compute and publish it.

    Raises:
        UserError: the recipe was never planned, its code has changed since, an input is missing, or the stage found
            something that the user can mend.
    """
    store = surroundings.store
    artifacts, artifact = Artifacts.of(reference)
    record = _planned(artifacts, artifact, reference)
    inputs = {role: read_reference(artifacts.reference(name)) for role, name in record["inputs"].items()}
    key = store_key(record, {role: input_["content"] for role, input_ in inputs.items()})
    if store.manifest(key) is None:
        with store.lease(key) as scratch:
            if store.manifest(key) is None:
                try:
                    _compute(record, inputs, key, scratch, surroundings)
                except UserError as error:
                    raise UserError(f"{artifact}: {error}") from error
            discard(scratch)
    else:
        log.info("%s: found in the store under %s", artifact, key)
    manifest = store.manifest(key)
    if manifest is None:
        raise UserError(f"{store.payload(key)}: the payload vanished as soon as it was published; run again")
    write_reference(reference, record, manifest)


def _planned(artifacts: Artifacts, artifact: str, reference: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = read_json(artifacts.plan(artifact))
    except (OSError, ValueError) as error:
        raise UserError(f"{reference}: no study that was unfolded here plans this artifact") from error
    _check_code(record)
    return record


def _check_code(record: dict[str, Any]) -> None:
    if code_digest(record["code_entries"]) != record["code"]:
        raise UserError(
            f"{record['stage']}/{record['label']}: the code of this stage changed after the plan was made; "
            "run snakemake again"
        )


def _compute(
    record: dict[str, Any],
    inputs: dict[str, dict[str, Any]],
    key: str,
    scratch: Path,
    surroundings: Surroundings,
) -> None:
    from pydantic import TypeAdapter

    from robustfeatures.recipes.recipe import STAGES

    started = datetime.now(UTC)
    began = time.monotonic()
    stage = STAGES[record["stage"]]
    parameters: Parameters = TypeAdapter(stage.parameters).validate_python(record["parameters"], strict=False)
    payloads = {role: _payload(surroundings.store, input_) for role, input_ in inputs.items()}
    if stage.uses_torch:
        _prepare_torch(surroundings.threads)
    progress = Progress(record["stage"], record["label"], scratch, terminal=surroundings.terminal)
    job = Job(scratch, surroundings, progress)
    fresh = scratch / "payload"
    discard(fresh)
    fresh.mkdir()
    import_module(stage.module).make(parameters, payloads, fresh, job)
    forget_sources()
    _check_code(record)
    surroundings.store.publish(
        key,
        fresh,
        {
            "content": content_digest(fresh / stage.payload),
            "inputs": {role: input_["content"] for role, input_ in inputs.items()},
            "built": {
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - began, 3),
                "computing_seconds": round(job.computing_seconds, 3),
                "device": str(job.device) if stage.uses_torch else "cpu",
                "threads": surroundings.threads,
                **_machine(),
            },
        },
    )


def _payload(store: Store, reference: dict[str, Any]) -> Path:
    from robustfeatures.recipes.recipe import STAGES

    (path,) = store.verified(reference["key"], [STAGES[reference["stage"]].payload])
    return path


def _prepare_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        # Only where it matters: the call imports torch's compiler, which takes a second.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # Filling what is written at once anyway only costs time.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stub
        torch.backends.cudnn.benchmark = False
        # Results are float32 throughout; TF32 has ten bits of mantissa.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


def _machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "git_commit": _git_commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    found = subprocess.run(  # noqa: S603
        [git, "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None
