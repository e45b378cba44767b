"""Measure all of it, print the table, and write it down beside the description of the machine."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
import typer

from robustfeatures.attacks.evaluating.settings import PGD
from robustfeatures.data.preparation import prepare_splits
from robustfeatures.data.settings import Data
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.precision import has_bfloat16
from robustfeatures.engine.settings import Precision
from robustfeatures.pipeline.run.memory import keep_freed_memory
from robustfeatures.training.loop import train as fit
from robustfeatures.training.settings import Adversary, Training
from tests.benchmarks import work
from tests.benchmarks.agreement import agreement
from tests.benchmarks.evaluation import compared as compared_evaluations
from tests.benchmarks.growth import measure
from tests.benchmarks.phase_diagram import phase_diagram
from tests.benchmarks.theory_training import clusters, patches
from tests.benchmarks.timing import matrix_rate

Benchmark = Literal["resnet18", "digits", "reading", "growth", "evaluation", "agreement", "theory"]
# Of the agreement, where the accuracy of a network trained in the standard way falls from most to little.
RADII = (0.1, 0.15, 0.2)
# Multiples of the smallest radius of the digits study, and half as large.
EIGHT_RADII = ([0.25 * step for step in range(1, 9)], [0.125 * step for step in range(1, 9)])
STANDARD = Training(epochs=25, batch_size=64, learning_rate=0.2, weight_decay=5e-4)
ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.1, steps=7)
DIGITS_ADVERSARY = Adversary(norm="l2", eps=0.75, step_size=0.15, steps=7)


@dataclass(frozen=True)
class Size:
    """How much is measured on a device: images of the attack and its steps, images of a training, matrix side."""

    attacked: int
    steps: int
    trained: int
    matrix: int
    aims: Mapping[str, float]


SIZES = {
    "cpu": Size(128, 20, 128, 2048, {"foolbox": 3.0, "plain": 2.0, "memory map": 0.8}),
    "cuda": Size(50_000, 100, 50_000, 8192, {"foolbox": 5.0, "plain": 5.0, "memory map": 0.8}),
}


@dataclass(frozen=True)
class Report:
    """How it was measured, the table in Markdown, and what stands below it."""

    how: str
    table: str
    said: list[str]


def setting(
    data: Data, count: int, device: torch.device, precision: Precision, raw: Path, split: str = "train"
) -> work.Setting:
    """`count` images of a split, drawn with a fixed seed."""
    part = prepare_splits(data, raw)[split]
    rows = np.random.default_rng(0).permutation(len(part.labels))[:count]
    images = torch.from_numpy(part.images[rows]).float() / 255
    return work.Setting(device, precision, images.to(device), torch.from_numpy(part.labels[rows]).to(device))


def row(what: str, times: dict[str, float]) -> list[dict[str, object]]:
    """One line per comparison: how many times faster than each other way."""
    ours = times["ours"]
    typer.echo(f"{what}: {times}", err=True)
    return [
        {
            "what": what,
            "against": name,
            "theirs, s": taken,
            "ours, s": ours,
            "ratio": taken / ours,
        }
        for name, taken in times.items()
        if name != "ours"
    ]


def large(photographs: work.Setting, size: Size, rounds: int) -> list[dict[str, object]]:
    """Attacks, inversion and training with a ResNet-18."""
    few = replace(photographs, images=photographs.images[:16], labels=photographs.labels[:16])
    some = replace(photographs, images=photographs.images[: size.trained], labels=photographs.labels[: size.trained])
    attacked = replace(
        photographs, images=photographs.images[: size.attacked], labels=photographs.labels[: size.attacked]
    )
    name = f"targeted L2 PGD, ResNet-18, {size.attacked} images, {size.steps} steps"
    return [
        *row(name, work.targeted_attack(attacked, "resnet18", size.steps, 2)),
        *row("gradients of ResNet-18, one block of images, 2 steps", work.compilation(attacked, "resnet18", 2, rounds)),
        *row("inversion, ResNet-18, 16 images, 100 steps", work.inversion(few, "resnet18", 100, 1)),
        *row(
            f"adversarial training, ResNet-18, {size.trained} images, 1 epoch",
            work.training(some, "resnet18", 2, adversary=ADVERSARY, size=128),
        ),
        *row(
            f"standard training, ResNet-18, {size.trained} images, 1 epoch",
            work.training(some, "resnet18", 4 * rounds, adversary=None, size=128),
        ),
    ]


def small(digits: work.Setting, rounds: int) -> list[dict[str, object]]:
    """The same with the network of the digits study."""
    return [
        *row(
            "adversarial training, digits network, 1 epoch",
            work.training(digits, "small-cnn", rounds, adversary=DIGITS_ADVERSARY, size=64, width=16),
        ),
        *row(
            "standard training, digits network, 1 epoch",
            work.training(digits, "small-cnn", rounds, adversary=None, size=64, width=16),
        ),
        *row("inversion, digits network, 100 steps", work.inversion(digits, "small-cnn", 100, rounds, width=16)),
    ]


def reading(rounds: int) -> list[dict[str, object]]:
    """Batches from zarr beside batches from a memory map."""
    found = []
    for shape, batch in (((20_000, 3, 32, 32), 256), ((3_000, 3, 224, 224), 64)):
        times = work.streaming(shape, batch, rounds)
        for order in ("in order", "shuffled"):
            pair = {"memory map": times[f"map, {order}"], "ours": times[f"zarr, {order}"]}
            name = f"reading {shape[0]} images of {shape[2]}x{shape[3]} from zarr, {order}"
            found += row(name, pair)
    return found


def theory(rounds: int) -> list[dict[str, object]]:
    """Sweeps of the toy models, all cells or networks at once, beside one after another."""
    # Once, for one after another takes minutes.
    simulated, exact = phase_diagram(1000, 100, 1000, 1)
    return [
        *row("phase diagram of the toy linear model, 1000 cells, 100 examples, 1000 steps, simulated", simulated),
        *row("the same, closed form", exact),
        *row("ten networks on clusters, d 3072, 1000 points, 100 steps", clusters(rounds)),
        *row("adversarial training on patch data, 50 steps", patches(rounds)),
    ]


def growth() -> str:
    """Seconds of planning for studies of three sizes, as a table."""
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(Path(folder), recipes) for recipes in (100, 1_000, 10_000)]
    return str(pd.DataFrame(found).round(2).astype({"recipes": int}).to_markdown(index=False))


def evaluation(train: work.Setting, test: work.Setting) -> tuple[pd.DataFrame, list[str]]:
    """The work of an evaluation of the network of the digits study, trained as there."""
    network = train.network("small-cnn", width=16)
    fit(network, InMemory(train.images), train.labels, STANDARD, seed=0)
    attack = PGD(kind="pgd", steps=50, relative_step_sizes=(0.1,))
    found = [compared_evaluations(network.eval(), test.images, test.labels, attack, radii) for radii in EIGHT_RADII]
    return pd.concat([table for table, _ in found]), [line for _, said in found for line in said]


def device_name(device: torch.device) -> str:
    """The model of the GPU or of the processor, as far as the system says."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def machine(device: torch.device) -> str:
    """What the numbers were measured on."""
    found = f"{device_name(torch.device('cpu'))}, {os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()})"
    if device.type == "cuda":
        found = f"{device_name(device)}; {found}"
    return f"{found}; torch {torch.__version__}, {torch.get_num_threads()} threads"


def rates(photographs: work.Setting, size: Size, seconds: float) -> list[str]:
    """How near the attack, which took `seconds`, comes to the machine's matrix products."""
    network = photographs.network("resnet18")
    used = size.steps * size.attacked / 8 * work.operations(network, photographs.images[:8]) / seconds
    found = {
        kind: matrix_rate(photographs.device, getattr(torch, kind), size.matrix) for kind in ("float32", "bfloat16")
    }
    return [
        *(f"Matrix product, {kind}: {rate / 1e9:.1f} GFLOP/s." for kind, rate in found.items()),
        f"The attack computes {used / 1e9:.1f} GFLOP/s in {photographs.precision}: "
        f"{100 * used / max(found.values()):.0f} % of the faster of the two.",
    ]


def report(what: Benchmark, digits: Data, photographs: Data, there: torch.device, raw: Path, count: int) -> Report:
    """What is printed of the benchmarks that are no ratios of times."""
    if what == "growth":
        how = "Seconds for the smoke study with more and more seeds; the store holds a payload for each recipe."
        return Report(how, growth(), [])
    if what == "evaluation":
        train, test = (setting(digits, 2000, there, "float32", raw, split) for split in ("train", "test"))
        shown, said = evaluation(train, test)
        how = "L2 PGD on a network trained in the standard way on the digits, at eight radii."
    else:
        few = setting(photographs, count, there, "float32", raw, "test")
        shown, said = agreement(few.images, few.labels, RADII)
        shown = shown.round(2)
        how = (
            f"With `--count {count}`: accuracy in percent under L2 attacks, CIFAR-10 test images, the ResNet-18 in "
            "AutoAttack's examples."
        )
    return Report(how, str(shown.to_markdown(index=False)), said)


def ratios(what: Benchmark, digits: Data, photographs: Data, there: torch.device, raw: Path, rounds: int) -> Report:
    """The times of our way and of others."""
    size, said = SIZES[there.type], []
    precision: Precision = "bfloat16" if what == "resnet18" and has_bfloat16(there) else "float32"
    how = "The ways of a comparison took turns in one process; each time is the least of several."
    if what != "theory":
        how = f"{how} Ours ran in {precision}, the others in float32."
    if what == "resnet18":
        images = setting(photographs, max(size.attacked, size.trained), there, precision, raw)
        rows = large(images, size, rounds)
        said = rates(images, size, next(float(str(line["ours, s"])) for line in rows))
    elif what == "digits":
        rows = small(setting(digits, 1078, torch.device("cpu"), precision, raw), 10 * rounds)
    elif what == "reading":
        rows = reading(10 * rounds)
    else:
        rows = theory(rounds)
    # A network as small as that of the digits has no aim.
    aims = {} if what == "digits" else size.aims
    rows = [{**line, "aim": aims.get(str(line["against"]), "")} for line in rows]
    shown = pd.DataFrame(rows).round({"theirs, s": 3, "ours, s": 3, "ratio": 2})
    return Report(how, str(shown.to_markdown(index=False)), said)


def main(
    what: Annotated[Benchmark, typer.Argument(help="What to measure.")],
    images: Annotated[str, typer.Option(help="An image folder in place of the CIFAR-10 download.")] = "",
    sha256: Annotated[str, typer.Option(help="The digest of that folder, from `robustfeatures fetch`.")] = "",
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    rounds: int = 3,
    count: Annotated[int, typer.Option(help="Test images of `agreement`.")] = 256,
    raw: Path = Path("results/raw"),
    out: Path = Path("docs/benchmarks"),
) -> None:
    """Print and write down speeds, ours beside other ways, measured in turns in this process."""
    keep_freed_memory()
    torch.set_num_threads(threads if what in ("resnet18", "agreement") else 1)
    there = torch.device(device)
    digits = Data(source="digits", validation=0.15, test=0.25)
    photographs = Data(source="folder", path=images, sha256=sha256) if images else Data(source="cifar10")
    if what in ("growth", "evaluation", "agreement"):
        found = report(what, digits, photographs, there, raw, count)
    else:
        found = ratios(what, digits, photographs, there, raw, rounds)
    lines = [
        f"# Benchmark {what}, {device}",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} by `python -m tests.benchmarks {what} --device {device}` on: "
        f"{machine(there)}.",
        found.how,
        "",
        found.table,
        "",
        *found.said,
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{what}-{device}.md").write_text("\n".join(lines).rstrip() + "\n")
    typer.echo("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
