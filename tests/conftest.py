"""What the tests share: a small trained network, the workflow in a folder of its own, the smoke study built once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from torch import Tensor

from robustfeatures.data.digits import load
from robustfeatures.data.settings import Data
from robustfeatures.engine.batches import InMemory
from robustfeatures.models import create
from robustfeatures.models.network import Network
from robustfeatures.pipeline.plan.prepare import plan_run
from robustfeatures.pipeline.run.memory import keep_freed_memory
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import read_config
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Training
from tests.forking import run_module, run_snakemake

REPOSITORY = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "config.yaml", "workflow", "profiles", "envs", "src")
# After those with the marker `slow`, their tests take longest. What takes long begins first.
LONGEST = tuple(REPOSITORY / "tests" / name for name in ("slurm", "faults", "workflow", "documentation"))

# As in a job.
torch.set_num_threads(1)
keep_freed_memory()


def pytest_xdist_auto_num_workers() -> int:
    """The processes of `pytest -n auto`: one per core, but at least four, because many tests wait for a process."""
    return max(4, len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def is_short(item: pytest.Item) -> tuple[bool, bool]:
        long = any(item.path.is_relative_to(folder) for folder in LONGEST)
        return item.get_closest_marker("slow") is None, not long

    items.sort(key=is_short)


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where tests compute. Those of `tests/gpu` compute elsewhere too."""
    return torch.device("cpu")


@dataclass(frozen=True)
class Digits:
    """The digits as tensors, in the order of their source."""

    images: Tensor
    labels: Tensor


@pytest.fixture(scope="session")
def digits(device: torch.device) -> Digits:
    raw = load(Data(source="digits", validation=0.15, test=0.25), Path())["all"]
    images, labels = torch.from_numpy(np.asarray(raw.images)).float() / 255, torch.from_numpy(raw.labels)
    return Digits(images.to(device), labels.to(device))


QUICK = Training(epochs=6, batch_size=64, learning_rate=0.2, weight_decay=5e-4)


@pytest.fixture(scope="session")
def network(digits: Digits) -> Network:
    """A network that is right on most digits; tests must leave it as it is."""
    torch.manual_seed(0)
    trained = create("small-cnn", num_classes=10, image_shape=(1, 8, 8))
    trained.set_normalisation(digits.images.mean().cpu(), digits.images.std().cpu())
    trained.to(digits.images.device)
    train(trained, InMemory(digits.images[:1000]), digits.labels[:1000], QUICK, seed=0)
    return trained


Stamp = tuple[int, int]


def stamp(path: Path) -> Stamp:
    """What differs after a file was written again, even with the same bytes."""
    facts = path.stat()
    return facts.st_ino, facts.st_mtime_ns


@contextmanager
def hurried() -> Iterator[None]:
    """Runs its processes before those of other tests, where the user may raise a priority. Children inherit it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class Workspace:
    """A copy of the workflow that a test may edit and run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "results" / "store"
        # What is set beside for `command`.
        self.environment: dict[str, str] = {}

    def snakemake(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = run_snakemake(self.folder, ["--cores", "2", *arguments], {**os.environ, "PATH": path})
        if check:
            assert_done(done)
        return done

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`robustfeatures` with the code of this copy."""
        own = {"PYTHONPATH": str(self.folder / "src"), "PATH": "/usr/bin:/bin", **self.environment}
        return run_module("robustfeatures", self.folder, [*arguments], {**os.environ, **own})

    def plan(self) -> None:
        """Write down the plan of the configured study for its jobs, as `snakemake -n` does, in this process.

        The code of the copy must be that of the repository.
        """
        config = read_config(read_yaml(self.folder / "config.yaml"))
        artifacts = Artifacts(self.folder / "results" / "artifacts")
        store = Store(self.folder / config.store)
        plan_run(config, self.folder / "workflow" / "studies", artifacts, store, is_local=True, uses_conda=False)

    def build(self) -> None:
        """Make every payload of the configured study with the code of this copy, in one process and without Snakemake.

        Tables, figures, claims and the page are left to Snakemake.
        """
        environment = {**os.environ, "PYTHONPATH": f"{self.folder / 'src'}:{REPOSITORY}"}
        assert_done(run_module("tests.in_process", self.folder, [], environment))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new))

    def payloads(self) -> dict[str, Stamp]:
        """Each payload's key with the stamp of its manifest, so that one built again counts too."""
        return {path.parent.name: stamp(path) for path in self.store.glob("*/manifest.json")}

    def last_checkpoint(self) -> float:
        """When a training last saved a checkpoint; 0 without one."""
        times = [0.0]
        for path in self.store.glob(".partial/*/checkpoint*.pt"):
            # The next one renames it.
            with suppress(FileNotFoundError):
                times.append(path.stat().st_mtime)
        return max(times)


def assert_done(done: subprocess.CompletedProcess[str]) -> None:
    """Raise AssertionError, with the end of what it printed, if a process has failed."""
    if done.returncode:
        raise AssertionError(f"{' '.join(done.args)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def workspace_in(folder: Path) -> Workspace:
    folder.mkdir(exist_ok=True)
    for part in PARTS:
        if (REPOSITORY / part).is_dir():
            # Compiled modules are copied too: a copy keeps the times of the sources, so that they stay valid.
            shutil.copytree(REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copy(REPOSITORY / part, folder / part)
    return Workspace(folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A fresh copy of the workflow with nothing built, set to the smoke study."""
    fresh = workspace_in(tmp_path / "work")
    fresh.edit("config.yaml", "study: digits", "study: smoke")
    return fresh


# Makes a folder: its name, and what fills it.
MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> MakeOnce:
    """Makes a folder once for all test processes; tests must leave it as it is."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        with FileLock(shared / f"{name}.lock"):
            if not (shared / name).exists():
                (shared / f"{name}-unfinished").mkdir()
                fill(shared / f"{name}-unfinished")
                (shared / f"{name}-unfinished").rename(shared / name)
        return shared / name

    return make


@pytest.fixture(scope="session")
def smoke(make_once: MakeOnce) -> Workspace:
    """The workflow with the smoke study built; tests must leave it as it is."""

    def fill(folder: Path) -> None:
        built = workspace_in(folder / "work")
        built.edit("config.yaml", "study: digits", "study: smoke")
        built.build()
        built.snakemake()

    return Workspace(make_once("smoke", fill) / "work")


@pytest.fixture
def copy_of_smoke(smoke: Workspace, tmp_path: Path) -> Callable[[], Workspace]:
    """Makes a copy of the built smoke study."""

    def copy() -> Workspace:
        shutil.copytree(smoke.folder, tmp_path / "copy", symlinks=True)
        return Workspace(tmp_path / "copy")

    return copy


@pytest.fixture
def built(copy_of_smoke: Callable[[], Workspace]) -> Workspace:
    return copy_of_smoke()
