"""Run a benchmark, print its table, and write table and machine to a file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
import typer

from robustfeatures.attacks.evaluating.settings import PGD
from robustfeatures.data.settings import Data
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.determinism import make_deterministic
from robustfeatures.engine.precision import has_bfloat16
from robustfeatures.engine.settings import Precision
from robustfeatures.pipeline.run.memory import keep_freed_memory
from robustfeatures.training.loop import train as fit
from robustfeatures.training.settings import Adversary, Training
from tests.benchmarks import work
from tests.benchmarks.agreement import compare_attacks
from tests.benchmarks.evaluation import compare_evaluations
from tests.benchmarks.gpu import run_all
from tests.benchmarks.growth import measure
from tests.benchmarks.phase_diagram import phase_diagram
from tests.benchmarks.theory_training import clusters, patches
from tests.benchmarks.timing import describe_machine, matrix_rate

Benchmark = Literal["resnet18", "digits", "reading", "growth", "evaluation", "agreement", "theory", "gpu"]
ROUNDS = 3
# For `agreement`: the accuracy of a standard network falls from high to low between these radii.
RADII = (0.1, 0.15, 0.2)
# Multiples of the smallest radius of the digits study, and half of them.
EIGHT_RADII = ([0.25 * step for step in range(1, 9)], [0.125 * step for step in range(1, 9)])
STANDARD = Training(epochs=25, batch_size=64, learning_rate=0.2, weight_decay=5e-4)
ADVERSARY = Adversary(norm="l2", eps=0.5, step_size=0.1, steps=7)
DIGITS_ADVERSARY = Adversary(norm="l2", eps=0.75, step_size=0.15, steps=7)


@dataclass(frozen=True)
class Size:
    """The size of a benchmark on a device: images and steps of the attack, images of a training, side of the matrix."""

    attacked: int
    steps: int
    trained: int
    matrix: int
    aims: Mapping[str, float]


SIZES = {
    "cpu": Size(128, 20, 128, 2048, {"foolbox": 3.0, "plain": 2.0, "memory map": 0.8}),
    # All competitors run with the same flags here, in seven minutes on a GPU of 10 TFLOP/s.
    "cuda": Size(2048, 20, 4096, 8192, {"foolbox": 1.0, "plain": 1.0, "memory map": 0.8}),
}


@dataclass(frozen=True)
class Report:
    """How it was measured, the table in Markdown, and notes below the table."""

    method: str
    table: str
    notes: list[str]


def compare_times(what: str, times: dict[str, float]) -> list[dict[str, object]]:
    """Return one line per other implementation, with the ratio of its time to ours."""
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


def measure_resnet18(photographs: work.Setting, size: Size, rounds: int) -> list[dict[str, object]]:
    """Attacks, inversion and training with a ResNet-18."""
    few = replace(photographs, images=photographs.images[:16], labels=photographs.labels[:16])
    some = replace(photographs, images=photographs.images[: size.trained], labels=photographs.labels[: size.trained])
    attacked = replace(
        photographs, images=photographs.images[: size.attacked], labels=photographs.labels[: size.attacked]
    )
    name = f"targeted L2 PGD, ResNet-18, {size.attacked} images, {size.steps} steps"
    return [
        *compare_times(name, work.targeted_attack(attacked, "resnet18", size.steps, 2)),
        *compare_times(
            "gradients of ResNet-18, one block of images, 2 steps", work.compilation(attacked, "resnet18", 2, rounds)
        ),
        *compare_times("inversion, ResNet-18, 16 images, 100 steps", work.inversion(few, "resnet18", 100, 1)),
        *compare_times(
            f"adversarial training, ResNet-18, {size.trained} images, 1 epoch",
            work.training(some, "resnet18", 2, adversary=ADVERSARY, size=128),
        ),
        *compare_times(
            f"standard training, ResNet-18, {size.trained} images, 1 epoch",
            work.training(some, "resnet18", 4 * rounds, adversary=None, size=128),
        ),
    ]


def measure_digits_network(digits: work.Setting, rounds: int) -> list[dict[str, object]]:
    """Training and inversion with the network of the digits study."""
    return [
        *compare_times(
            "adversarial training, digits network, 1 epoch",
            work.training(digits, "small-cnn", rounds, adversary=DIGITS_ADVERSARY, size=64, width=16),
        ),
        *compare_times(
            "standard training, digits network, 1 epoch",
            work.training(digits, "small-cnn", rounds, adversary=None, size=64, width=16),
        ),
        *compare_times(
            "inversion, digits network, 100 steps", work.inversion(digits, "small-cnn", 100, rounds, width=16)
        ),
    ]


def measure_reading(rounds: int) -> list[dict[str, object]]:
    """Batches from zarr beside batches from a memory map."""
    found = []
    for shape, batch in (((20_000, 3, 32, 32), 256), ((3_000, 3, 224, 224), 64)):
        times = work.streaming(shape, batch, rounds)
        for order in ("in order", "shuffled"):
            pair = {"memory map": times[f"map, {order}"], "ours": times[f"zarr, {order}"]}
            name = f"reading {shape[0]} images of {shape[2]}x{shape[3]} from zarr, {order}"
            found += compare_times(name, pair)
    return found


def measure_theory(rounds: int) -> list[dict[str, object]]:
    """Sweeps of the toy models, all cells or networks at once, beside one after another."""
    # Once, for one after another takes minutes.
    simulated, exact = phase_diagram(1000, 100, 1000, 1)
    return [
        *compare_times(
            "phase diagram of the toy linear model, 1000 cells, 100 examples, 1000 steps, simulated", simulated
        ),
        *compare_times("the same, closed form", exact),
        *compare_times("ten networks on clusters, d 3072, 1000 points, 100 steps", clusters(rounds)),
        *compare_times("adversarial training on patch data, 50 steps", patches(rounds)),
    ]


def measure_growth() -> str:
    """Seconds of planning for studies of three sizes, as a table."""
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(Path(folder), recipes) for recipes in (100, 1_000, 10_000)]
    return str(pd.DataFrame(found).round(2).astype({"recipes": int}).to_markdown(index=False))


def measure_evaluation(train: work.Setting, test: work.Setting) -> tuple[pd.DataFrame, list[str]]:
    """Measure the work of an evaluation of the network of the digits study."""
    network = train.network("small-cnn", width=16)
    fit(network, InMemory(train.images), train.labels, STANDARD, seed=0)
    attack = PGD(kind="pgd", steps=50, relative_step_sizes=(0.1,))
    found = [compare_evaluations(network.eval(), test.images, test.labels, attack, radii) for radii in EIGHT_RADII]
    return pd.concat([table for table, _ in found]), [line for _, notes in found for line in notes]


def compare_with_matrix_rate(photographs: work.Setting, size: Size, seconds: float) -> list[str]:
    """Compare the rate of the attack, which took `seconds`, with the rate of matrix products."""
    network = photographs.network("resnet18")
    used = size.steps * size.attacked / 8 * work.count_operations(network, photographs.images[:8]) / seconds
    found = {
        kind: matrix_rate(photographs.device, getattr(torch, kind), size.matrix) for kind in ("float32", "bfloat16")
    }
    return [
        *(f"Matrix product, {kind}: {rate / 1e9:.1f} GFLOP/s." for kind, rate in found.items()),
        f"The attack computes {used / 1e9:.1f} GFLOP/s in {photographs.precision}: "
        f"{100 * used / max(found.values()):.0f} % of the faster of the two.",
    ]


def report_others(
    what: Benchmark, digits: Data, photographs: Data | None, torch_device: torch.device, raw: Path, count: int
) -> Report:
    """Run a benchmark whose result is not a ratio of times."""
    if what == "growth":
        method = "Seconds for the smoke study with more and more seeds; the store holds a payload for each recipe."
        return Report(method, measure_growth(), [])
    if what == "evaluation":
        train, test = (
            work.load_setting(digits, 2000, torch_device, "float32", raw, split) for split in ("train", "test")
        )
        table, notes = measure_evaluation(train, test)
        method = "L2 PGD on a network trained in the standard way on the digits, at eight radii."
    else:
        few = work.load_setting(photographs, count, torch_device, "float32", raw, "test")
        table, notes = compare_attacks(few.images, few.labels, RADII)
        table = table.round(2)
        method = (
            f"With `--count {count}`: accuracy in percent under L2 attacks, CIFAR-10 test images, the ResNet-18 in "
            "AutoAttack's examples."
        )
    return Report(method, str(table.to_markdown(index=False)), notes)


def report_ratios(
    what: Benchmark, digits: Data, photographs: Data | None, torch_device: torch.device, raw: Path, rounds: int
) -> Report:
    """Run a benchmark that compares our times with those of other implementations."""
    size, notes = SIZES[torch_device.type], []
    precision: Precision = "bfloat16" if what == "resnet18" and has_bfloat16(torch_device) else "float32"
    method = "All implementations took turns in one process; each time is the least of several."
    if what == "resnet18" and torch_device.type == "cuda":
        made_up = " The images are random." if photographs is None else ""
        method = (
            f"{method} ResNet-18 has width 64.{made_up} All ran in {precision}, channels-last and in batches of the "
            "same size, without TF32."
        )
    elif what != "theory":
        method = f"{method} Ours ran in {precision}, the others in float32."
    if what == "resnet18":
        images = work.load_setting(photographs, max(size.attacked, size.trained), torch_device, precision, raw)
        rows = measure_resnet18(images, size, rounds)
        notes = compare_with_matrix_rate(images, size, next(float(str(line["ours, s"])) for line in rows))
    elif what == "digits":
        rows = measure_digits_network(work.load_setting(digits, 1078, torch.device("cpu"), precision, raw), 10 * rounds)
    elif what == "reading":
        rows = measure_reading(10 * rounds)
    else:
        rows = measure_theory(rounds)
    # A network as small as that of the digits has no aim.
    aims = {} if what == "digits" else size.aims
    rows = [{**line, "aim": aims.get(str(line["against"]), "")} for line in rows]
    table = pd.DataFrame(rows).round({"theirs, s": 3, "ours, s": 3, "ratio": 2})
    return Report(method, str(table.to_markdown(index=False)), notes)


def main(
    what: Annotated[Benchmark, typer.Argument(help="What to measure.")],
    images: Annotated[str, typer.Option(help="An image folder in place of the CIFAR-10 download.")] = "",
    sha256: Annotated[str | None, typer.Option(help="The digest of that folder, from `robustfeatures fetch`.")] = None,
    made_up: Annotated[bool, typer.Option(help="Random images in place of the CIFAR-10 download.")] = False,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 2,
    rounds: int = ROUNDS,
    count: Annotated[int, typer.Option(help="Test images of `agreement`.")] = 256,
    raw: Path = Path("results/raw"),
    out: Path = Path("docs/benchmarks"),
) -> None:
    """Print and write down speeds, ours beside other ways, measured in turns in this process."""
    if what == "gpu":
        run_all(out, raw)
        return
    keep_freed_memory()
    make_deterministic()
    if device == "cuda":
        # Not everything that others call has a deterministic form.
        torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(threads if what in ("resnet18", "agreement") else 1)
    torch_device = torch.device(device)
    digits = Data(source="digits", validation=0.15, test=0.25)
    photographs = Data(source="folder", path=images, sha256=sha256) if images else Data(source="cifar10")
    photographs = None if made_up else photographs
    if what in ("growth", "evaluation", "agreement"):
        found = report_others(what, digits, photographs, torch_device, raw, count)
    else:
        found = report_ratios(what, digits, photographs, torch_device, raw, rounds)
    options = f"{' --made-up' if made_up else ''}{f' --rounds {rounds}' if rounds != ROUNDS else ''}"
    command = f"python -m tests.benchmarks {what} --device {device}{options}"
    lines = [
        f"# Benchmark {what}, {device}",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} by `{command}` on: {describe_machine(torch_device)}.",
        found.method,
        "",
        found.table,
        "",
        *found.notes,
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{what}-{device}.md").write_text("\n".join(lines).rstrip() + "\n")
    typer.echo("\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
