"""Where the jobs of a plan compute: nvidia-smi and torch are asked once; stand-ins answer for both."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.devices import Devices, Probe, choose_devices, probe_torch
from robustfeatures.pipeline.plan.prepare import RunPlan, plan_run
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from tests.conftest import Workspace
from tests.nvidia_smi import pretend_gpus
from tests.tools.made import STUDIES, Made

UUIDS = ["GPU-1", "GPU-2"]
REASON = "the driver is too old"


def works() -> tuple[list[str], str]:
    return UUIDS, ""


def fails() -> tuple[list[str], str]:
    return [], REASON


def never() -> tuple[list[str], str]:
    raise AssertionError("torch was asked")


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(tmp_path, monkeypatch, "GPU-1", "GPU-2")


def choose(probe: object = never, *, is_local: bool = True, uses_conda: bool = False, **settings: object) -> Devices:
    config = Config(study="digits", **settings)  # type: ignore[arg-type]
    return choose_devices(config, is_local=is_local, uses_conda=uses_conda, probe=probe)  # type: ignore[arg-type]


@pytest.mark.usefixtures("two_gpus")
def test_torch_and_nvidia_smi_agree() -> None:
    for device in ("auto", "cuda"):
        assert choose(works, device=device) == Devices(1, ("GPU-1", "GPU-2"))


@pytest.mark.usefixtures("two_gpus")
def test_torch_cannot_use_what_nvidia_smi_finds() -> None:
    said = f"nvidia-smi finds 2 GPUs, but torch can use none: {REASON}; all jobs use processors"
    assert choose(fails, device="auto") == Devices(0, warning=said)
    error = f"config.yaml: device: cuda, and nvidia-smi finds 2 GPUs, but torch can use none: {REASON}"
    assert choose(fails, device="cuda") == Devices(1, error=error)


@pytest.mark.usefixtures("two_gpus")
def test_an_environment_that_is_not_there_yet_is_not_asked() -> None:
    found = choose(device="auto", uses_conda=True)
    assert found.gpus_per_job == 0
    assert found.warning is not None
    assert "envs/cpu.yaml" in found.warning
    assert choose(device="cuda", uses_conda=True) == Devices(1, ("GPU-1", "GPU-2"))


@pytest.mark.usefixtures("two_gpus")
def test_who_asks_for_no_gpu_gets_none() -> None:
    assert choose(device="cpu") == Devices(0)
    assert choose(device="cuda", gpus_per_job=0) == Devices(0)
    # The scheduler's GPUs are only asked for.
    assert choose(device="cpu", gpus_per_job=1) == Devices(1)


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert choose(device="auto") == Devices(0)
    assert choose(device="auto", gpus_per_job=1) == Devices(0)
    assert choose(device="cuda").error == (
        "config.yaml: device: cuda, but nvidia-smi finds no GPU on this machine; set device: auto, or name your GPUs "
        "in CUDA_VISIBLE_DEVICES"
    )


def test_a_scheduler_gives_each_job_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that plans need not have one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("robustfeatures.pipeline.plan.devices.version", {"torch": "2.13.0"}.get)
    assert choose(device="cuda", is_local=False) == Devices(1)
    assert choose(device="auto", is_local=False) == Devices(0)


def test_a_cpu_build_of_torch_is_told_before_a_scheduler_gets_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs have the torch of the machine that plans, or with conda that of an environment."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("robustfeatures.pipeline.plan.devices.version", {"torch": "2.13.0+cpu"}.get)
    said = choose(device="cuda", is_local=False).warning
    assert said is not None
    assert said.startswith("torch 2.13.0+cpu is the CPU build, and the jobs of the cluster use it")
    assert choose(device="cuda", is_local=False, uses_conda=True) == Devices(1)
    assert choose(device="auto", is_local=False) == choose(device="cpu", is_local=False) == Devices(0)


FAKE = """
from types import SimpleNamespace as Facts
__version__, version = {version!r}, Facts(cuda={cuda!r}, hip={hip!r})
def is_available():
    import warnings
    {warn}
    return {count} > 0
cuda = Facts(
    is_available=is_available,
    device_count=lambda: {count},
    get_device_properties=lambda number: Facts(name=("A100", "A100 MIG 1g.5gb")[number], uuid=f"0{{number}}"),
)
device = None
"""


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"cuda": "13.0", "count": 2}, (["GPU-00", "MIG-01"], "")),
        ({"cuda": None}, ([], "torch 9.9 is built without CUDA")),
        ({"cuda": None, "hip": "7"}, ([], "torch 9.9 is built for AMD GPUs")),
        ({"cuda": "13.0"}, ([], "torch 9.9 for CUDA 13.0 sees no GPU")),
        ({"cuda": "13.0", "warn": "warnings.warn('the driver is too old\\nget another')"}, ([], REASON)),
    ],
)
def test_what_torch_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], found: tuple[list[str], str]
) -> None:
    """A module in place of torch, for the process that is asked."""
    text = FAKE.format(**{"version": "9.9", "hip": None, "count": 0, "warn": "", **facts})
    (tmp_path / "torch.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert probe_torch() == found


def test_a_torch_that_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: not found')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert probe_torch() == ([], "OSError: libcudart.so.13: not found")


def planned(folder: Path, probe: Probe = never, *, studies: Path = STUDIES, **settings: object) -> RunPlan:
    """The plan of a run of the smoke study on this machine, in a folder."""
    config = Config(study="smoke", **settings)  # type: ignore[arg-type]
    artifacts, store = Artifacts(folder / "artifacts"), Store(folder / "store")
    return plan_run(config, studies, artifacts, store, is_local=True, uses_conda=False, probe=probe)


@pytest.mark.usefixtures("two_gpus")
def test_a_study_asks_torch_once_while_it_is_planned(tmp_path: Path) -> None:
    calls = []

    def count() -> tuple[list[str], str]:
        calls.append(".")
        return works()

    # Small jobs need no GPU, so torch is not asked.
    small = planned(tmp_path, device="cuda")
    assert {task.gpu for task in small.tasks} == {0}
    assert small.devices == Devices(0)
    large = planned(tmp_path, count, device="auto", gpus_per_job=1)
    assert len(calls) == 1
    assert sum(task.gpu for task in large.tasks) == 12 + 8 + 11
    assert (large.most_gpus, large.devices.gpus) == (1, tuple(UUIDS))
    large.check_gpus()
    assert {task.gpu for task in planned(tmp_path, device="cpu").tasks} == {0}


@pytest.mark.usefixtures("two_gpus")
def test_only_a_run_that_needs_a_gpu_is_told_that_torch_finds_none(tmp_path: Path) -> None:
    told = planned(tmp_path, fails, device="auto", gpus_per_job=1)
    (line,) = told.lines
    assert line.endswith(f"torch can use none: {REASON}; all jobs use processors")
    told.check_gpus()
    refused = planned(tmp_path, fails, device="cuda", gpus_per_job=1)
    assert refused.lines == ()
    with pytest.raises(UserError, match=rf"^config\.yaml: device: cuda, .* torch can use none: {REASON}$"):
        refused.check_gpus()
    # Small jobs use processors, whatever the device.
    for small in (planned(tmp_path, device="cuda", gpus_per_job=0), planned(tmp_path, device="cuda")):
        assert small.lines == ()
        small.check_gpus()
    # Whose results are there needs none.
    replace(refused, most_gpus=0).check_gpus()


@pytest.mark.parametrize("limit", [(), ("--resources", "gpu=1")])
def test_a_run_on_gpus_begins_and_ends(
    workspace: Workspace, tmp_path: Path, two_gpus: None, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, ...]
) -> None:
    """The expected time and the last line ask Snakemake for the number of jobs that share the GPUs.

    The job of this run, which makes the data, uses none.
    """
    (tmp_path / "torch.py").write_text(FAKE.format(version="9.9", hip=None, cuda="13.0", count=2, warn=""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    data = Made(tmp_path).name("data/")
    done = workspace.snakemake(f"results/artifacts/{data}.json", *limit, "--config", "device=cuda", "gpus_per_job=1")
    assert " s on 2 cores; 0 % of the core time inside training" in done.stderr


def test_a_plan_that_needs_a_gpu_is_refused_where_torch_finds_none(workspace: Workspace, two_gpus: None) -> None:
    """This torch has no CUDA, or the machine no GPU."""
    done = workspace.snakemake("-n", "--config", "device=cuda", "gpus_per_job=1", check=False)
    assert done.returncode != 0
    said = "config.yaml: device: cuda, and nvidia-smi finds 2 GPUs, but torch can use none: "
    assert said in done.stdout + done.stderr


def test_a_plan_for_a_gpu_is_refused_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refused = planned(tmp_path, device="cuda", gpus_per_job=1)
    with pytest.raises(UserError, match="but nvidia-smi finds no GPU on this machine; set device: auto"):
        refused.check_gpus()


def test_a_training_on_two_gpus_asks_for_both(
    workspace: Workspace, tmp_path: Path, two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(FAKE.format(version="9.9", hip=None, cuda="13.0", count=2, warn=""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    study = "workflow/studies/smoke.yaml"
    workspace.edit(study, "    epochs: 2\n", "    epochs: 2\n    gpus_per_training: 2\n")
    # Snakemake prints what a job asks for only if the rule has no message.
    workspace.edit("workflow/rules/model.smk", '    message:\n        "model {wildcards.name}"\n', "")
    printed = workspace.snakemake("-n", "--config", "device=cuda").stdout
    assert re.search(r"threads: 2\n *resources: .*\bgpu=2, nodes=1\b", printed)


@pytest.mark.usefixtures("two_gpus")
def test_a_training_has_no_more_gpus_than_the_machine(tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    studies.mkdir()

    def with_gpus(count: int) -> RunPlan:
        text = (STUDIES / "smoke.yaml").read_text()
        assert text.count("    epochs: 2\n") == 1
        several = text.replace("    epochs: 2\n", f"    epochs: 2\n    gpus_per_training: {count}\n")
        (studies / "smoke.yaml").write_text(several)
        return planned(tmp_path, works, studies=studies, device="cuda")

    two = with_gpus(2)
    # The pathways have trainings of their own, which are too small for a GPU.
    assert {task.gpu for task in two.tasks if task.name.startswith("model/")} == {0, 2}
    two.check_gpus()
    with pytest.raises(UserError, match=r"^training\.gpus_per_training: 4 GPUs are needed, but this machine has 2$"):
        with_gpus(4).check_gpus()
