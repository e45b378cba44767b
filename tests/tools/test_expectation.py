"""The expected time of a study, from a measured speed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

from robustfeatures.engine.settings import Precision
from robustfeatures.files import write_json
from robustfeatures.models.settings import Architecture
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.tasks import Task, make_tasks, plan_copies
from robustfeatures.pipeline.run import speed
from robustfeatures.pipeline.run.speed import Speed, measure_speed
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools import expectation
from robustfeatures.tools.expectation import expect, measure_in_processes
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"
LINE = re.compile(r"(\d+) jobs, expected to take ([\d.]+) h .* with (\d+) cores; the longest, (\S+), ([\d.]+) h\. (.*)")


def told(study: str, stage: str, label: str, folder: Path, speed: Speed, cores: int) -> tuple[Any, ...]:
    """What the line says of the jobs of one stage and label."""
    config = Config(study=study, threads_per_job=2, seeds_per_job=1)
    plan = unfold(config, STUDIES)
    tasks = [task for task in make_tasks(plan, config, 0) if task.name.startswith(f"{stage}/{label}-seed")]
    asked: list[Any] = []

    def measure(*arguments: Any) -> Speed:
        asked.append(arguments)
        return speed

    line = expect(plan, tasks, Artifacts(folder), config, cores=cores, device="cpu", measure=measure)
    assert line is not None
    found = LINE.fullmatch(line)
    assert found is not None, line
    return (*found.groups(), *asked)


def test_the_time_of_an_adversarial_training(tmp_path: Path) -> None:
    """The paper's: 150 epochs of 50 000 images, each an update and 7 steps of the attack, for three seeds."""
    speed = Speed(updates=1000.0, attack_steps=2000.0)
    hours = 150 * 50_000 * (1 / 1000 + 7 / 2000) / 3600
    count, total, cores, name, longest, measured, asked = told(
        "not-bugs-cifar10", "model", "cifar10-adversarial", tmp_path, speed, 4
    )
    assert (count, cores) == ("3", "4")
    assert name.startswith("model/cifar10-adversarial-seed")
    # Two of the three at once.
    assert float(total) == pytest.approx(1.5 * hours, abs=0.1)
    assert float(longest) == pytest.approx(hours, abs=0.1)
    assert asked == (Architecture(name="resnet50"), (3, 32, 32), "bfloat16", "cpu", 2, 2)
    assert measured.startswith(
        "Measured in each of 2 processes at once with 2 threads: resnet50, bfloat16, "
        "1000 images a second in training, 2000 in each step"
    )


@pytest.mark.parametrize("emulated", [True, False])
def test_who_emulates_bfloat16_is_told_the_faster_precision(emulated: bool, tmp_path: Path) -> None:
    speed = Speed(100.0, 200.0, emulated)
    *_, measured, _ = told("not-bugs-cifar10", "model", "cifar10-adversarial", tmp_path, speed, 2)
    assert ("This machine emulates bfloat16: with `precision: float32`" in measured) == emulated


def test_the_time_of_a_measurement_that_attacks(tmp_path: Path) -> None:
    """Three attacks of 50 steps at each of eight radii; before them and after each step, the images are classified."""
    forwards = 10_000 * 3 * (3 * 50 * 8 + 1)
    _, _, _, name, longest, *_ = told(
        "feature-averaging", "measurement", "cifar10-CIFAR-10-k-class", tmp_path, Speed(1.0, 2000.0), 2
    )
    assert name.startswith("measurement/cifar10-CIFAR-10-k-class")
    assert float(longest) == pytest.approx(forwards / 2 / 2000 / 3600, abs=0.1)


def test_several_gpus_share_a_training(tmp_path: Path) -> None:
    hours = []
    for name, gpus in (("one", ""), ("four", "\n    gpus_per_training: 4")):
        (tmp_path / f"{name}.yaml").write_text(
            (STUDIES / "smoke.yaml").read_text().replace("steps: 2}", f"steps: 2}}\n    epochs: 100000000{gpus}")
        )
        config = Config(study=name)
        plan = unfold(config, tmp_path)
        tasks = [task for task in make_tasks(plan, config, 1) if task.name.startswith("model/digits-adversarial")]
        line = expect(
            plan,
            tasks,
            Artifacts(tmp_path),
            config,
            cores=8,
            device="cuda",
            gpus=4,
            measure=lambda *_: Speed(100.0, 200.0),
        )
        assert line is not None
        found = LINE.fullmatch(line)
        assert found is not None, line
        hours.append(float(found[2]))
    assert hours[0] == pytest.approx(4 * hours[1], rel=0.01)


def expect_three_trainings(folder: Path, *, cores: int, gpus: int, device: str) -> tuple[str, list[int]]:
    """The line for a study with three long trainings of two threads each, and how many processes were measured."""
    text = (STUDIES / "smoke.yaml").read_text().replace("steps: 2}", "steps: 2}\n    epochs: 100000000")
    (folder / "three.yaml").write_text(text.replace("seeds: [0]", "seeds: [0, 1, 2]"))
    config, artifacts = Config(study="three", threads_per_job=2, seeds_per_job=1), Artifacts(folder)
    plan = unfold(config, folder)
    tasks = make_tasks(plan, config, 1)
    asked: list[int] = []

    def measure(*arguments: Any) -> Speed:
        asked.append(arguments[-1])
        return Speed(100.0, 200.0)

    line = expect(plan, tasks, artifacts, config, cores=cores, device=device, gpus=gpus, measure=measure)
    assert line is not None
    return line, asked


@pytest.mark.parametrize(("cores", "gpus", "at_once"), [(8, 1, 1), (8, 2, 2), (8, 8, 3), (4, 8, 2), (1, 8, 1)])
def test_several_gpus_do_several_jobs_at_once(tmp_path: Path, cores: int, gpus: int, at_once: int) -> None:
    line, _ = expect_three_trainings(tmp_path, cores=cores, gpus=gpus, device="cuda")
    found = LINE.fullmatch(line)
    assert found is not None, line
    total, longest = float(found[2]), float(found[5])
    assert total == pytest.approx(3 / at_once * longest, rel=0.01)


def test_the_time_of_a_derived_set(tmp_path: Path) -> None:
    count, total, _, _, longest, *_ = told(
        "not-bugs-cifar10-fast", "derived", "cifar10-D_R-noise", tmp_path, Speed(1.0, 2000.0), 2
    )
    assert count == "1"
    assert float(total) == float(longest) == pytest.approx(200 * 50_000 / 2000 / 3600, abs=0.1)


def test_parts_share_the_time_of_a_derived_set(tmp_path: Path) -> None:
    """Of four parts one is finished: three jobs take a quarter of the hours each, two of them at once."""
    config = Config(study="not-bugs-cifar10-fast", threads_per_job=2, derived_parts=4)
    plan, artifacts = unfold(config, STUDIES), Artifacts(tmp_path)
    (task,) = [task for task in make_tasks(plan, config, 0) if task.name.startswith("derived/cifar10-D_R-noise-seed")]
    hours = 200 * 50_000 / 100 / 3600 / 4

    def said() -> str | None:
        speed = Speed(1.0, 100.0)
        return expect(plan, [task], artifacts, config, cores=4, device="cpu", measure=lambda *_: speed)

    parts = artifacts.parts(task.name, 4)
    write_json(parts[1], {"blocks": {}})
    line = said()
    assert line is not None
    found = LINE.fullmatch(line.replace("each part of ", ""))
    assert found is not None
    assert f"the longest, each part of {task.name}, " in line
    assert found[1] == "3"
    assert (float(found[2]), float(found[5])) == pytest.approx((3 / 2 * hours, hours), abs=0.1)
    for path in parts:
        write_json(path, {"blocks": {}})
    assert said() is None


def test_a_network_that_is_copied_takes_no_time(tmp_path: Path) -> None:
    """The trainings of A6 give A2 its networks."""
    config, artifacts = Config(study="not-bugs-cifar10", seeds_per_job=1), Artifacts(tmp_path)
    plan = unfold(config, STUDIES)
    tasks = plan_copies(plan, make_tasks(plan, config, 0), artifacts, ())
    every = [task for task in tasks if task.name.startswith("model/cifar10-on-D_rand-on-D_rand-")]
    probed = [task for task in every if "-probed-" in task.name]
    assert len(every) == 2 * len(probed) == 6

    def told_of(tasks: Sequence[Task]) -> tuple[str, str]:
        line = expect(plan, tasks, artifacts, config, cores=2, device="cpu", measure=lambda *_: Speed(1000.0, 2000.0))
        found = LINE.fullmatch(line or "")
        assert found is not None, line
        return found[1], found[2]

    assert told_of(every) == ("6", told_of(probed)[1])
    assert told_of(probed)[0] == "3"


def test_short_studies_and_finished_jobs_are_not_measured(tmp_path: Path) -> None:
    def never(*arguments: Any) -> Speed:
        raise AssertionError(arguments)

    artifacts = Artifacts(tmp_path)
    for study in ("digits", "digits-full", "theory"):
        config = Config(study=study, seeds_per_job=8, rows_per_job=4)
        plan = unfold(config, STUDIES)
        assert (
            expect(plan, make_tasks(plan, config, 0), artifacts, config, cores=2, device="cpu", measure=never) is None
        )
    config = Config(study="not-bugs-cifar10-fast")
    plan = unfold(config, STUDIES)
    tasks = make_tasks(plan, config, 0)
    for task in tasks:
        write_json(artifacts.reference(task.name), {}, durable=False)
    assert expect(plan, tasks, artifacts, config, cores=2, device="cpu", measure=never) is None


def test_a_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LEAST_SECONDS", 0.2)
    wide, narrow = (
        measure_speed(Architecture(name="small-cnn", width=width), (1, 8, 8), "float32", "cpu", 1) for width in (256, 4)
    )
    assert 0 < wide.updates < narrow.updates
    assert 0 < wide.attack_steps < narrow.attack_steps


@pytest.mark.parametrize(("precision", "emulated"), [("float32", False), ("bfloat16", True)])
def test_a_speed_says_whether_it_is_emulated(
    precision: Precision, emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert measure_speed(Architecture(name="linear"), (1, 2, 2), precision, "cpu", 1).emulated == emulated


def test_a_speed_is_the_mean_of_processes_that_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds, all_there = iter([Speed(100.0, 300.0), Speed(50.0, 100.0, emulated=True)]), Barrier(2, timeout=60)

    def run(module: str, argument: str) -> str:
        all_there.wait()
        return json.dumps(asdict(next(speeds)))

    monkeypatch.setattr(expectation, "run_module", run)
    measured = measure_in_processes(Architecture(name="small-cnn"), (1, 8, 8), "float32", "cpu", 1, 2)
    assert measured == Speed(75.0, 200.0, emulated=True)


def test_a_speed_is_measured_in_other_processes() -> None:
    speed = measure_in_processes(Architecture(name="small-cnn"), (1, 8, 8), "float32", "cpu", 1, 2)
    assert min(speed.updates, speed.attack_steps) > 0


@pytest.mark.parametrize(
    ("cores", "device", "at_once"), [(1, "cpu", 1), (5, "cpu", 2), (64, "cpu", 3), (64, "cuda", 1)]
)
def test_as_many_processes_are_measured_as_jobs_run(cores: int, device: str, at_once: int, tmp_path: Path) -> None:
    """Three long trainings of two threads each, among short jobs; on GPUs, one process."""
    line, asked = expect_three_trainings(tmp_path, cores=cores, gpus=2, device=device)
    assert asked == [at_once]
    where = "one process" if at_once == 1 else f"each of {at_once} processes at once"
    assert f"Measured in {where} with " in line


def test_a_machine_that_cannot_be_measured_says_so(tmp_path: Path) -> None:
    config = Config(study="not-bugs-cifar10")
    plan = unfold(config, STUDIES)
    tasks = make_tasks(plan, config, 0)
    line = expect(plan, tasks, Artifacts(tmp_path), config, cores=2, device="no-such-device")
    assert line is not None
    assert line.startswith(f"{len(tasks)} jobs, some of them long; the speed of this machine could not be measured: ")
    assert "\n" not in line
