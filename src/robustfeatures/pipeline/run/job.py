"""One job: it makes the payload of a planned recipe, publishes it, and writes its reference."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import StoppedError, UserError
from robustfeatures.files import ABSENT, read_json, read_rows
from robustfeatures.models.own_files import declare_file
from robustfeatures.pipeline.plan.identity import clear_caches, differences, identify_science, identity_digest
from robustfeatures.pipeline.plan.reach import own_file_name
from robustfeatures.pipeline.plan.remote_payloads import fetch_key
from robustfeatures.pipeline.plan.tasks import Task, read_task
from robustfeatures.pipeline.run import gpus
from robustfeatures.pipeline.run.blocks import Blocks, Share
from robustfeatures.pipeline.run.copying import copy_network
from robustfeatures.pipeline.run.device_models import DeviceModels
from robustfeatures.pipeline.run.machine import describe_machine, prepare_torch
from robustfeatures.pipeline.run.progress import Progress
from robustfeatures.pipeline.store.checkouts import note_needed
from robustfeatures.pipeline.store.content import Hashes, content_digest
from robustfeatures.pipeline.store.format import check_store
from robustfeatures.pipeline.store.lease import HeldError, in_turn
from robustfeatures.pipeline.store.references import Artifacts, read_reference, write_batch, write_part, write_reference
from robustfeatures.pipeline.store.store import Store, discard

if TYPE_CHECKING:
    import torch

    from robustfeatures.data.dataset import ImageDataset
    from robustfeatures.models.network import Network
    from robustfeatures.pipeline.plan.recipe import Stage
    from robustfeatures.pipeline.store.lease import Lease
    from robustfeatures.pipeline.study.parameters import Parameters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Environment:
    """Where a job runs: the store, the folder of downloads, device, threads, terminal. No recipe depends on it.

    device: "cpu" for processors alone; else a planned job takes the device of its plan.
    gpus: the UUIDs of the GPUs that the jobs of this machine share; empty if a scheduler gives each job its own.
    mix_gpu_models: whether parts of one result may come from several GPU models.
    gpu_fast_path: explained in `engine/fast_path.py`.
    """

    store: Store
    raw: Path
    device: str
    threads: int
    terminal: bool = False
    gpus: tuple[str, ...] = ()
    jobs_per_gpu: int = 1
    mix_gpu_models: bool = False
    gpu_fast_path: bool = True


class Job:
    """A running job, as its stage sees it. It is also the `Run` that the science receives."""

    def __init__(
        self,
        scratch: Path,
        environment: Environment,
        inputs: Mapping[str, Path],
        blocks: Blocks,
        progress: Progress,
        planned_device: str | None = None,
        own_files: Sequence[Path] = (),
    ) -> None:
        """`inputs` are the payloads by their roles; `own_files` are the user's files with networks.

        `planned_device` is where the blocks are made, by default here.
        """
        self.scratch = scratch
        self.inputs = inputs
        self.store = environment.store
        self.raw = environment.raw
        self.blocks = blocks
        self.progress: Callable[[int, int], None] = progress
        self.own_files = own_files
        self.computing_seconds = 0.0
        # Further costs to record beside the result; they are in no digest.
        self.costs: dict[str, float] = {}
        self._device = environment.device
        self._planned_device = planned_device or environment.device

    @cached_property
    def device(self) -> torch.device:
        """The device to compute on."""
        import torch

        return torch.device(self._device)

    @cached_property
    def planned_device(self) -> torch.device:
        """The kind of device for which a set is cut into blocks. A job that joins blocks may have no such device."""
        import torch

        return torch.device(self._planned_device)

    @property
    def roles(self) -> Collection[str]:
        """The roles of all inputs, in the order of the recipe."""
        return self.inputs.keys()

    def dataset(self, role: str, split: str) -> ImageDataset:
        """One split of the data set in that role. Its images are read from disk when they are indexed."""
        from robustfeatures.pipeline.store.datasets import read_dataset

        return read_dataset(self.inputs[role], split, in_memory=False)

    def rows(self, role: str) -> list[dict[str, str]]:
        """The rows of the measurement in that role, by column."""
        return read_rows(self.inputs[role])

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
        UserError: the task was never planned, the code of an artifact has changed since, the store or an input is
            missing, another job makes an artifact for too long, or the stage found an error that the user can fix.
    """
    artifacts, name = Artifacts.of(tracked)
    task = read_task(artifacts, name)
    check_store(environment.store.root)
    planned = _planned_device(task, environment)
    # Parts are joined without a GPU.
    used = replace(environment, device=planned if task.parts == 1 else "cpu")
    with _gpus(task.gpu, used):
        in_turn(task.artifacts, lambda artifact, patience: _build(artifacts, task, artifact, used, patience, planned))
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
    check_store(environment.store.root)
    environment = replace(environment, device=_planned_device(task, environment))

    def make(artifact: str, patience: float) -> None:
        record = read_plan(artifacts, artifact)
        inputs, key = _find_inputs(artifacts, record)
        if environment.store.manifest(key) is None and not fetch_key(key, artifacts, environment.store):
            payloads = _find_payloads(environment.store, inputs)
            kept[key] = compute(artifact, record, payloads, key, share, environment, patience=patience)

    with _gpus(task.gpu, environment):
        in_turn(task.artifacts, make)
    write_part(artifacts.parts(name, share.parts)[share.part - 1], kept)


def _build(
    artifacts: Artifacts, task: Task, artifact: str, environment: Environment, patience: float, planned_device: str
) -> None:
    store = environment.store
    record = read_plan(artifacts, artifact)
    inputs, key = _find_inputs(artifacts, record)
    if store.manifest(key) is None and not fetch_key(key, artifacts, store):
        with store.lease(key, patience=patience) as lease:
            if store.manifest(key) is None:
                contents = {role: found["content"] for role, found in inputs.items()}
                same = task.copied_from.get(artifact)
                if same and copy_network(artifacts.find(same), record["identity"], contents, store, lease):
                    artifacts.count_arrival(key, "copied")
                else:
                    payloads = _find_payloads(store, inputs)
                    compute(artifact, record, payloads, key, Share(1, 1), environment, lease, planned_device, patience)
                    artifacts.count_arrival(key, "computed")
            discard(lease.scratch)
    else:
        log.info("%s: found in the store under %s", artifact, key)
    manifest = store.manifest(key)
    if manifest is None:
        raise UserError(f"{store.payload(key)}: the payload vanished as soon as it was published; run again")
    write_reference(artifacts.reference(artifact), record, manifest)
    note_needed(store.root, artifacts.root, task.study, manifest["key"])


def _planned_device(task: Task, environment: Environment) -> str:
    """ "cuda" for a job that the plan gives a GPU, else "cpu"."""
    return "cuda" if task.gpu and environment.device != "cpu" else "cpu"


def _gpus(count: int, environment: Environment) -> AbstractContextManager[None]:
    """The GPUs of a job: none, `count` of those that the jobs of this machine share, or those that a scheduler gave."""
    if environment.device == "cpu":
        gpus.hide_gpus()
        return nullcontext()
    if not environment.gpus:
        return nullcontext()
    return gpus.take_gpus(count, environment.gpus, environment.jobs_per_gpu)


def _find_inputs(artifacts: Artifacts, record: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """The references of the inputs by role, and the key of the payload."""
    inputs = {role: read_reference(artifacts.find(name)) for role, name in record["inputs"].items()}
    return inputs, identity_digest(record["identity"], {role: input_["content"] for role, input_ in inputs.items()})


def read_plan(artifacts: Artifacts, artifact: str) -> dict[str, Any]:
    """The recipe of an artifact, from the plan that `prepare` wrote.

    Raises:
        UserError: it was never planned, or its code has changed since.
    """
    try:
        record: dict[str, Any] = read_json(artifacts.plan(artifact))
    except (*ABSENT, ValueError) as error:
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
    lease: Lease | None = None,
    planned_device: str | None = None,
    patience: float | None = None,
) -> list[str]:
    """Compute a payload and publish it, or compute only a share of its blocks; returns the names of these blocks.

    A payload needs its `lease`, a share of its blocks does not. `planned_device` is the kind of device that makes the
    blocks, by default that of `environment`; with another one this job only joins them. `patience` are the seconds to
    wait for a block that another job makes.

    Raises:
        HeldError: another job still makes a block after this time.
        UserError: there is no such device here, the code of the artifact changed meanwhile, or the stage found an error
            that the user can fix.
    """
    from pydantic import TypeAdapter

    from robustfeatures.pipeline.plan.recipe import STAGES

    began = time.monotonic()
    store = environment.store
    stage = STAGES[record["stage"]]
    own_files = [Path(entry) for entry in record["code_entries"] if own_file_name(entry)]
    for path in own_files:
        declare_file(path)
    parameters: Parameters = TypeAdapter(stage.parameters).validate_python(record["parameters"], strict=False)
    payloads = {role: input_.payload for role, input_ in inputs.items()}
    models = _open_device(stage, environment)
    scratch = store.scratch(key)
    blocks = Blocks(store, key, share, models, can_make=planned_device in (None, environment.device), patience=patience)
    progress = Progress(record["stage"], record["label"], scratch / blocks.report, terminal=environment.terminal)
    job = Job(scratch, environment, payloads, blocks, progress, planned_device, own_files)
    folder = scratch
    if lease is not None:
        log.info("%s: computing %s", artifact, key)
        folder = lease.fresh
        folder.mkdir()
    try:
        import_module(stage.module).make(parameters, folder, job)
    except StoppedError as error:
        raise StoppedError(f"{artifact}: {error}") from error
    except HeldError as error:
        raise HeldError(f"{artifact}: {error}") from error
    except UserError as error:
        raise UserError(f"{artifact}: {error}") from error
    clear_caches()
    _check_code(record)
    if lease is not None:
        _publish(job, lease, record, {role: input_.content for role, input_ in inputs.items()}, began, environment)
    else:
        progress.path.unlink(missing_ok=True)
    return blocks.finished


def _open_device(stage: Stage, environment: Environment) -> DeviceModels:
    """Prepare torch for a stage that uses it, and name the device that the job computes on.

    Raises:
        UserError: there is no such device here.
    """
    models = DeviceModels(may_mix=environment.mix_gpu_models)
    if stage.uses_torch:
        # Imported here, because it loads torch.
        from robustfeatures.pipeline.run.devices import name_device, open_device

        prepare_torch(environment.threads, gpu_fast_path=environment.gpu_fast_path)
        models.own = name_device(open_device(environment.device))
    return models


def _publish(
    job: Job,
    lease: Lease,
    record: Mapping[str, Any],
    inputs: Mapping[str, str],
    began: float,
    environment: Environment,
) -> None:
    """Publish what the stage wrote. `inputs` are content digests by role; `began` is a time of the monotonic clock."""
    from robustfeatures.pipeline.plan.recipe import STAGES

    hashes: Hashes = {}
    with job.blocks.read():
        content = content_digest(lease.fresh / STAGES[record["stage"]].payload, hashes)
    seconds = time.monotonic() - began
    facts = {
        "content": content,
        "identity": record["identity"],
        "inputs": inputs,
        "built": {
            "started": (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            # The digest above has hashed the shards, so that they are not read again.
            **_costs(job, hashes),
            "device": "; ".join(job.blocks.models.names),
            "threads": environment.threads,
            "gpu_fast_path": environment.gpu_fast_path,
            **describe_machine(),
        },
    }
    job.store.publish(lease, facts, hashes)


def _costs(job: Job, hashes: Hashes) -> dict[str, float]:
    """The seconds inside training, attack or evaluation, and what else the stage counted."""
    # A block that was made before, or by another job, took its time there.
    computing = max(job.computing_seconds, job.blocks.check(job.blocks.finished, hashes))
    return {name: round(cost, 3) for name, cost in {"computing_seconds": computing, **job.costs}.items()}


def _find_payloads(store: Store, references: Mapping[str, dict[str, Any]]) -> dict[str, Input]:
    return {role: find_input(store, found["stage"], found) for role, found in references.items()}


def find_input(store: Store, stage: str, found: Mapping[str, Any]) -> Input:
    """The input of a stage that a reference or a manifest names, its bytes found as they were published.

    Raises:
        UserError: the payload is not there, holds something else, or is damaged.
    """
    from robustfeatures.pipeline.plan.recipe import STAGES

    (path,) = store.verified(found["key"], found["content"], [STAGES[stage].payload])
    return Input(path, found["content"])
