"""One job: it makes the payload of a planned recipe, publishes it, and writes its reference."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.identity import clear_caches, differences, identify_science, identity_digest
from robustfeatures.pipeline.plan.reach import ROOT
from robustfeatures.pipeline.plan.tasks import Task, read_task
from robustfeatures.pipeline.run import gpus
from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.memory import keep_freed_memory
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.content import content_digest
from robustfeatures.pipeline.store.references import Artifacts, read_reference, write_batch, write_part, write_reference
from robustfeatures.pipeline.store.store import Store, discard

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network
    from robustfeatures.pipeline.study.parameters import Parameters

log = logging.getLogger(__name__)

# The versions of these are recorded beside each result.
PACKAGES = ("torch", "numpy", "zarr", "scikit-learn", "safetensors", "snakemake")


@dataclass(frozen=True)
class Environment:
    """Where a job runs: the store, the folder of downloads, device, threads, terminal. No recipe depends on it.

    With `share_gpus` the jobs of one machine agree on which job has which GPU; a scheduler does that itself.
    """

    store: Store
    raw: Path
    device: str
    threads: int
    terminal: bool = False
    share_gpus: bool = False


class Job:
    """A running job, as its stage sees it. It is also the `Run` that the science receives."""

    def __init__(
        self,
        scratch: Path,
        environment: Environment,
        inputs: Mapping[str, Path],
        blocks: Blocks,
        progress: Progress,
    ) -> None:
        """`inputs` are the payloads by their roles."""
        self.scratch = scratch
        self.inputs = inputs
        self.store = environment.store
        self.raw = environment.raw
        self.blocks = blocks
        self.progress = progress
        self.computing_seconds = 0.0
        # Further costs to record beside the result; they are in no digest.
        self.costs: dict[str, float] = {}
        self._device = environment.device

    @cached_property
    def device(self) -> torch.device:
        """The device to compute on."""
        import torch

        if self._device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self._device == "cuda" and not torch.cuda.is_available():
            raise UserError("config.yaml: device: cuda, but torch finds no GPU here")
        return torch.device(self._device)

    @property
    def roles(self) -> Collection[str]:
        """The roles of all inputs, in the order of the recipe."""
        return self.inputs.keys()

    def dataset(self, role: str, split: str) -> ImageDataset:
        """One split of the data set in that role. Its images are read from disk when they are indexed."""
        from robustfeatures.pipeline.store.datasets import read_dataset

        return read_dataset(self.inputs[role], split, in_memory=False)

    def network(self, role: str) -> Network:
        """The network in that role, newly loaded, in eval mode, on the job's device."""
        from robustfeatures.pipeline.store.networks import load_network

        return load_network(self.inputs[role], self.device)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time inside as training, attack or evaluation."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.computing_seconds += time.monotonic() - began


def build(tracked: Path, environment: Environment) -> None:
    """Make the artifacts of a planned task: find each payload in the store, or compute it.

    `tracked` is the task's file that Snakemake tracks.

    Raises:
        UserError: the task was never planned, the code of an artifact has changed since, an input is missing, or the
            stage found an error that the user can fix.
    """
    artifacts, name = Artifacts.of(tracked)
    task = read_task(artifacts, name)
    with _gpu(task, environment):
        for artifact in task.artifacts:
            _build(artifacts, artifact, environment)
    if task.is_batch:
        write_batch(tracked, task.artifacts)


def build_part(tracked: Path, share: Share, environment: Environment) -> None:
    """Make one share of the blocks of a planned task's artifacts, and leave these blocks in the store.

    Raises:
        UserError: as `build`.
    """
    artifacts, name = Artifacts.of(tracked)
    kept: dict[str, list[str]] = {}
    task = read_task(artifacts, name)
    with _gpu(task, environment):
        for artifact in task.artifacts:
            record = read_plan(artifacts, artifact)
            inputs, key = _find_inputs(artifacts, record)
            if environment.store.manifest(key) is None:
                payloads = _find_payloads(environment.store, inputs)
                kept[key] = compute(artifact, record, payloads, key, share, environment)
    write_part(artifacts.parts(name, share.parts)[share.part - 1], kept)


def _build(artifacts: Artifacts, artifact: str, environment: Environment) -> None:
    store = environment.store
    record = read_plan(artifacts, artifact)
    inputs, key = _find_inputs(artifacts, record)
    if store.manifest(key) is None:
        with store.lease(key) as scratch:
            if store.manifest(key) is None:
                compute(artifact, record, _find_payloads(store, inputs), key, Share(1, 1), environment)
            discard(scratch)
    else:
        log.info("%s: found in the store under %s", artifact, key)
    manifest = store.manifest(key)
    if manifest is None:
        raise UserError(f"{store.payload(key)}: the payload vanished as soon as it was published; run again")
    write_reference(artifacts.reference(artifact), record, manifest)


def _gpu(task: Task, environment: Environment) -> AbstractContextManager[None]:
    """The GPU of a job, if the jobs of one machine share their GPUs."""
    if not environment.share_gpus:
        return nullcontext()
    return gpus.take_gpu() if task.gpu else gpus.hide_gpus()


def _find_inputs(artifacts: Artifacts, record: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """The references of the inputs by role, and the key of the payload."""
    inputs = {role: read_reference(artifacts.reference(name)) for role, name in record["inputs"].items()}
    return inputs, identity_digest(record["identity"], {role: input_["content"] for role, input_ in inputs.items()})


def read_plan(artifacts: Artifacts, artifact: str) -> dict[str, Any]:
    """The recipe of an artifact, from the plan that `prepare` wrote.

    Raises:
        UserError: it was never planned, or its code has changed since.
    """
    try:
        record: dict[str, Any] = read_json(artifacts.plan(artifact))
    except (OSError, ValueError) as error:
        reference = artifacts.reference(artifact)
        raise UserError(f"{reference}: no study that was unfolded here plans this artifact") from error
    _check_code(record)
    return record


def _check_code(record: dict[str, Any]) -> None:
    identity = record["identity"]
    changes = list(differences({**identity, **identify_science(tuple(record["code_entries"]))}, identity))
    if changes:
        raise UserError(
            f"{record['stage']}/{record['label']}: the code of this stage changed after the plan was made "
            f"({', '.join(changes)}); run snakemake again"
        )


@dataclass(frozen=True)
class Input:
    """An input: the file or folder of its payload, and the digest of what it holds."""

    payload: Path
    content: str


def compute(
    artifact: str,
    record: dict[str, Any],
    inputs: Mapping[str, Input],
    key: str,
    share: Share,
    environment: Environment,
) -> list[str]:
    """Compute a payload and publish it, or compute only a share of its blocks; returns the names of these blocks.

    Raises:
        UserError: the code of the artifact changed meanwhile, or the stage found an error that the user can fix.
    """
    from pydantic import TypeAdapter

    from robustfeatures.pipeline.plan.recipe import STAGES

    started = datetime.now(UTC)
    began = time.monotonic()
    store = environment.store
    stage = STAGES[record["stage"]]
    parameters: Parameters = TypeAdapter(stage.parameters).validate_python(record["parameters"], strict=False)
    payloads = {role: input_.payload for role, input_ in inputs.items()}
    if stage.uses_torch:
        _prepare_torch(environment.threads)
    scratch = store.scratch(key)
    blocks = Blocks(store, key, share)
    progress = Progress(record["stage"], record["label"], scratch / blocks.report, terminal=environment.terminal)
    job = Job(scratch, environment, payloads, blocks, progress)
    fresh = scratch / "payload"
    if blocks.is_whole:
        log.info("%s: computing %s", artifact, key)
        discard(fresh)
        fresh.mkdir()
    try:
        import_module(stage.module).make(parameters, fresh, job)
    except UserError as error:
        raise UserError(f"{artifact}: {error}") from error
    clear_caches()
    _check_code(record)
    if blocks.is_whole:
        # A block that was made before, or by another job, took its time there.
        computing = max(job.computing_seconds, blocks.check(blocks.finished))
        facts = {
            "content": content_digest(fresh / stage.payload),
            "identity": record["identity"],
            "inputs": {role: input_.content for role, input_ in inputs.items()},
            "built": {
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - began, 3),
                "computing_seconds": round(computing, 3),
                **{name: round(seconds, 3) for name, seconds in job.costs.items()},
                "device": str(job.device) if stage.uses_torch else "cpu",
                "threads": environment.threads,
                **_machine(),
            },
        }
        store.publish(key, fresh, facts)
    else:
        progress.path.unlink(missing_ok=True)
    return blocks.finished


def _find_payloads(store: Store, references: Mapping[str, dict[str, Any]]) -> dict[str, Input]:
    return {role: find_input(store, found["stage"], found) for role, found in references.items()}


def find_input(store: Store, stage: str, found: Mapping[str, Any]) -> Input:
    """The input of a stage that a reference or a manifest names, its bytes found as they were published.

    Raises:
        UserError: the payload is not there, or damaged.
    """
    from robustfeatures.pipeline.plan.recipe import STAGES

    (path,) = store.verified(found["key"], [STAGES[stage].payload])
    return Input(path, found["content"])


def _prepare_torch(threads: int) -> None:
    import torch

    from robustfeatures.engine.determinism import make_deterministic

    keep_freed_memory()
    torch.set_num_threads(threads)
    make_deterministic()


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


@cache
def _git_commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    found = subprocess.run(  # noqa: S603
        [git, "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None
