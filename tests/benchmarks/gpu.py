"""What half an hour on one GPU should answer, in order of worth: `python -m tests.benchmarks gpu`.

Each step is a process of its own, with a limit of time, whose output goes to a file as it comes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from robustfeatures.data.dataset import ImageDataset
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.settings import Data
from robustfeatures.engine.batches import InMemory, Streamed
from robustfeatures.engine.determinism import make_deterministic
from robustfeatures.engine.fast_path import set_fast_path
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.settings import Precision
from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.datasets import read_dataset, write_dataset
from robustfeatures.pipeline.store.sealed import MANIFEST, read_sealed
from robustfeatures.training.adversary import Attacker
from robustfeatures.training.loop import train
from robustfeatures.training.settings import Adversary, Training
from tests.benchmarks import work
from tests.benchmarks.timing import describe_machine, seconds
from tests.conftest import Workspace, workspace_in

CIFAR10 = Data(source="cifar10")
ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.1, steps=7)
TRAINING = Training(epochs=1, batch_size=128, learning_rate=0.01, weight_decay=5e-4, adversary=ADVERSARY)
PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float32")
# Images of a training epoch.
CIFAR10_IMAGES = 50_000


@dataclass(frozen=True)
class Step:
    """A command after `python`, and the minutes after which it is stopped."""

    name: str
    minutes: float
    command: tuple[str, ...]


def plan_steps(out: Path, raw: Path, made_up: tuple[str, ...]) -> tuple[Step, ...]:
    """The steps, the one of most worth first. `made_up` are the arguments that replace CIFAR-10."""
    common = ("--raw", str(raw), *made_up)
    own = ("-m", "tests.benchmarks.gpu")
    resnet18 = ("-m", "tests.benchmarks", "resnet18", "--device", "cuda", "--out", str(out), *common)
    return (
        Step("tests", 8, ("-m", "pytest", "-n4", "-q", "-m", "not chaos", "-k", "cuda", "tests/gpu")),
        Step("fast-path", 3, (*own, "fast-path", *common)),
        Step("resnet18", 7, resnet18),
        Step("smoke", 6, (*own, "smoke", *common)),
        Step("derived-set", 3, (*own, "derived-set", *common)),
        Step("adversarial-epoch", 3, (*own, "adversarial-epoch", *common)),
    )


def run_all(out: Path, raw: Path) -> None:
    """Run all steps, and write the output of each to `<out>/gpu-<number>-<name>.txt`.

    Raises:
        typer.Exit: there is no GPU, or a step has failed.
    """
    if not torch.cuda.is_available():
        typer.echo("tests.benchmarks gpu: torch finds no GPU here", err=True)
        raise typer.Exit(1)
    out.mkdir(parents=True, exist_ok=True)
    made_up: tuple[str, ...] = ()
    try:
        prepare_splits(CIFAR10, raw)
    except UserError as error:
        typer.echo(f"random images stand in for CIFAR-10: {error}")
        made_up = ("--made-up",)
    typer.echo(describe_machine(torch.device("cuda")))
    steps = enumerate(plan_steps(out, raw, made_up), start=1)
    failed = [step.name for number, step in steps if not run_step(step, number, out)]
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def run_step(step: Step, number: int, out: Path) -> bool:
    """Run a step and say how it ended; whether it did all in time."""
    path = out / f"gpu-{number}-{step.name}.txt"
    began = time.monotonic()
    with path.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-u", *step.command], stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            ended = "done" if process.wait(60 * step.minutes) == 0 else "failed"
        except subprocess.TimeoutExpired:
            # Snakemake has started others.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ended = f"stopped after {step.minutes:g} minutes"
    typer.echo(f"{step.name}: {ended}, {time.monotonic() - began:.0f} s: {path}")
    return ended == "done"


def both_ways(setting: work.Setting, do: Callable[[], Any]) -> dict[str, Any]:
    """The seconds of the plain way and of the fast one, each at its second call, and what they made."""
    found: dict[str, Any] = {}
    for name, fast in (("plain", False), ("fast", True)):
        set_fast_path(fast)
        do()
        made: list[Any] = []
        found[f"{name}, s"] = seconds(lambda made=made: made.append(do()), setting.device)  # type: ignore[misc]
        found[name] = made[0]
    set_fast_path(False)
    return found


def count_different(one: list[Tensor], other: list[Tensor]) -> int:
    """How many numbers are not the same to the bit."""
    return sum(int((a != b).sum()) for a, b in zip(one, other, strict=True))


def attack_blocks(network: FrozenNetwork, setting: work.Setting, steps: int) -> list[Tensor]:
    """Targeted L2 PGD on all images, in blocks."""
    attack = work.build_attack(network, steps)
    size = setting.batch_size
    goal = (setting.labels + 1) % 10
    return [attack(*block) for block in zip(setting.images.split(size), goal.split(size), strict=True)]


def train_epoch(setting: work.Setting, images: InMemory | Streamed) -> list[Tensor]:
    """The weights of a ResNet-18 after one epoch of adversarial training."""
    network = setting.network("resnet18")
    attacker = Attacker(network, ADVERSARY, setting.precision)
    train(network, images, setting.labels, TRAINING, seed=0, precision=setting.precision, perturbation=attacker)
    return list(network.state_dict().values())


def read_epoch(streamed: Streamed, device: torch.device) -> list[Tensor]:
    """The sums of all batches of images on disk."""
    order = torch.randperm(len(streamed), generator=torch.Generator().manual_seed(0))
    streamed = Streamed(streamed.dataset, device)
    return [images.double().sum() for _, images in streamed.batches(order, 128)]


def compare_fast_path(setting: work.Setting) -> pd.DataFrame:
    """Attack, training and reading, the plain way and the fast one: their bits and their times."""
    rows = []
    for precision in PRECISIONS:
        chosen = replace(setting, precision=precision)
        network = FrozenNetwork(chosen.network("resnet18"), precision=precision)
        ways = {
            "targeted PGD, 20 steps": partial(attack_blocks, network, chosen, 20),
            "adversarial training": partial(train_epoch, chosen, InMemory(chosen.images)),
        }
        rows += [{"what": f"{what}, {precision}", **both_ways(chosen, do)} for what, do in ways.items()]
    with tempfile.TemporaryDirectory() as folder:
        images = np.random.default_rng(0).integers(0, 256, (min(3000, len(setting.images)), 3, 224, 224), np.uint8)
        labels = np.zeros(len(images), np.int64)
        write_dataset(Path(folder) / "data.zarr", {"test": ImageDataset(images, labels, {}, ("a",))})
        stored = Streamed(read_dataset(Path(folder) / "data.zarr", "test", in_memory=False), setting.device)
        reading = both_ways(setting, partial(read_epoch, stored, setting.device))
        rows.append({"what": f"reading {len(images)} images of 224x224", **reading})
    return pd.DataFrame(
        {
            "what": row["what"],
            "plain, s": row["plain, s"],
            "fast, s": row["fast, s"],
            "different numbers": count_different(row["plain"], row["fast"]),
        }
        for row in rows
    )


def measure_both(setting: work.Setting, work_of: Callable[[work.Setting], object], share: float) -> pd.DataFrame:
    """Seconds of some work in each precision, the plain way and the fast one, and for all of CIFAR-10."""
    rows = []
    for precision in PRECISIONS:
        set_fast_path(False)
        # One batch, in which the libraries of the GPU are loaded.
        work_of(replace(setting, precision=precision, images=setting.images[:128], labels=setting.labels[:128]))
        for fast in (False, True):
            set_fast_path(fast)
            if setting.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            taken = seconds(partial(work_of, replace(setting, precision=precision)), setting.device)
            peak = torch.cuda.max_memory_allocated() if setting.device.type == "cuda" else 0
            row = {"precision": precision, "gpu_fast_path": fast, "s": taken, "s for CIFAR-10": taken / share}
            rows.append({**row, "peak memory, GB": peak / 1e9})
            typer.echo(str(rows[-1]))
    set_fast_path(False)
    return pd.DataFrame(rows)


def derive(setting: work.Setting) -> None:
    """D_det: 100 steps of PGD towards the next class."""
    attack_blocks(FrozenNetwork(setting.network("resnet18"), precision=setting.precision), setting, 100)


def build_smoke(device: str) -> tuple[float, dict[str, bytes], Counter[str]]:
    """Build the smoke study: its seconds, its tables and claims by name, and the devices of its payloads."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = workspace_in(Path(folder) / "work")
        workspace.edit("config.yaml", "study: digits", "study: smoke")
        # Its jobs are small: with `auto` they would use processors. On a GPU most of their time is the start of CUDA,
        # so eight share it.
        cores, gpus = (8, 1) if device == "cuda" else (2, 0)
        config = (f"device={device}", f"gpus_per_job={gpus}", "jobs_per_gpu=8", "rows_per_job=30")
        began = time.monotonic()
        workspace.snakemake("--cores", str(cores), "--config", *config)
        taken = time.monotonic() - began
        results = workspace.folder / "results" / "smoke"
        tables = {str(path.relative_to(results)): path.read_bytes() for path in sorted(results.rglob("*.csv"))}
        return taken, tables, _count_devices(workspace)


def _count_devices(workspace: Workspace) -> Counter[str]:
    manifests = [read_sealed(path) for path in workspace.store.glob(f"*/{MANIFEST}")]
    # The rights of payloads keep them from being removed.
    for path in workspace.store.rglob("*/"):
        path.chmod(0o755)
    return Counter(str(manifest["built"]["device"]) for manifest in manifests)


def build_smoke_twice(device: str) -> None:
    """Print the seconds of both, and whether their tables are equal.

    Raises:
        typer.Exit: they are not.
    """
    builds = []
    for _ in range(2):
        taken, tables, devices = build_smoke(device)
        typer.echo(f"{taken:.0f} s, {len(tables)} tables, payloads by device: {dict(devices)}")
        builds.append(tables)
    first, second = builds
    different = [name for name in first if first[name] != second.get(name)]
    typer.echo(f"different tables: {different or 'none'}")
    if different or not first or first.keys() != second.keys():
        raise typer.Exit(1)


def main(
    what: Literal["fast-path", "smoke", "derived-set", "adversarial-epoch"],
    raw: Path = Path("results/raw"),
    made_up: Annotated[bool, typer.Option(help="Random images in place of CIFAR-10.")] = False,
    device: Literal["cpu", "cuda"] = "cuda",
    count: Annotated[int | None, typer.Option(help="The number of images.")] = None,
) -> None:
    """Run one step."""
    make_deterministic()
    if what == "smoke":
        build_smoke_twice(device)
        return
    images = count or {"fast-path": 3000, "derived-set": 5000, "adversarial-epoch": CIFAR10_IMAGES}[what]
    setting = work.load_setting(None if made_up else CIFAR10, images, torch.device(device), "float32", raw)
    share = images / CIFAR10_IMAGES
    tables: Mapping[str, Callable[[], pd.DataFrame]] = {
        "fast-path": lambda: compare_fast_path(setting),
        "derived-set": lambda: measure_both(setting, derive, share),
        "adversarial-epoch": lambda: measure_both(
            setting, lambda chosen: train_epoch(chosen, InMemory(chosen.images)), share
        ),
    }
    found = tables[what]()
    typer.echo(f"{describe_machine(setting.device)}\n\n{found.round(3).to_markdown(index=False)}")
    if what == "fast-path" and found["different numbers"].any():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
