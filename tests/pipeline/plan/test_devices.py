"""Where the jobs of a plan compute: nvidia-smi and torch are asked once; stand-ins answer for both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.devices import Devices, choose_devices, probe_torch
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.study.config import Config
from tests.conftest import Workspace
from tests.nvidia_smi import pretend_gpus

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
    assert choose(device="cuda", is_local=False) == Devices(1)
    assert choose(device="auto", is_local=False) == Devices(0)


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


def gpus_of_tasks(workspace: Workspace) -> dict[str, int]:
    newest, *_ = Artifacts(workspace.folder / "results" / "artifacts").newest_tasks()
    return {name: task["gpu"] for name, task in read_json(newest).items()}


def test_a_study_asks_torch_once_while_it_is_planned(
    workspace: Workspace, tmp_path: Path, two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FAKE.format(version="9.9", hip=None, cuda="13.0", count=2, warn="")
    calls = tmp_path / "calls"
    (tmp_path / "torch.py").write_text(f"{text}\nopen({str(calls)!r}, 'a').write('.')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Small jobs need no GPU, so torch is not asked.
    workspace.snakemake("-n", "--config", "device=cuda")
    assert set(gpus_of_tasks(workspace).values()) == {0}
    assert not calls.exists()
    workspace.snakemake("-n", "--config", "device=auto", "gpus_per_job=1")
    assert calls.read_text() == "."
    assert sum(gpus_of_tasks(workspace).values()) == 12 + 8 + 10
    workspace.snakemake("-n", "--config", "device=cpu")
    assert set(gpus_of_tasks(workspace).values()) == {0}


@pytest.mark.parametrize("limit", [(), ("--resources", "gpu=1")])
def test_a_run_on_gpus_begins_and_ends(
    workspace: Workspace, tmp_path: Path, two_gpus: None, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, ...]
) -> None:
    """The expected time and the last line ask Snakemake for the number of jobs that share the GPUs.

    The job of this run, which makes the data, uses none.
    """
    (tmp_path / "torch.py").write_text(FAKE.format(version="9.9", hip=None, cuda="13.0", count=2, warn=""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workspace.snakemake("-n", "--config", "device=cuda", "gpus_per_job=1")
    data = next(name for name in gpus_of_tasks(workspace) if name.startswith("data/"))
    done = workspace.snakemake(f"results/artifacts/{data}.json", *limit, "--config", "device=cuda", "gpus_per_job=1")
    assert " s on 2 cores; 0 % of the core time inside training" in done.stderr


def test_a_plan_that_needs_a_gpu_is_refused_where_torch_finds_none(workspace: Workspace, two_gpus: None) -> None:
    """This torch has no CUDA, or the machine no GPU."""
    done = workspace.snakemake("-n", "--config", "device=cuda", "gpus_per_job=1", check=False)
    assert done.returncode != 0
    said = "config.yaml: device: cuda, and nvidia-smi finds 2 GPUs, but torch can use none: "
    assert said in done.stdout + done.stderr
    # A scheduler has its GPUs elsewhere, and small jobs use processors, whatever the device.
    workspace.snakemake("-n", "--config", "device=cuda", "gpus_per_job=0")
    workspace.snakemake("-n", "--config", "device=cuda")
    data = next(name for name in gpus_of_tasks(workspace) if name.startswith("data/"))
    workspace.snakemake(f"results/artifacts/{data}.json", "--config", "device=cuda")


def test_a_plan_for_a_gpu_is_refused_where_there_is_none(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refused = workspace.snakemake("-n", "--config", "device=cuda", "gpus_per_job=1", check=False)
    assert refused.returncode != 0
    said = "config.yaml: device: cuda, but nvidia-smi finds no GPU on this machine; set device: auto"
    assert said in refused.stdout + refused.stderr


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
    # The pathways have trainings of their own, which are too small for a GPU.
    asked = {name: gpus for name, gpus in gpus_of_tasks(workspace).items() if name.startswith("model/")}
    assert set(asked.values()) == {0, 2}
    workspace.edit(study, "gpus_per_training: 2", "gpus_per_training: 4")
    refused = workspace.snakemake("-n", "--config", "device=cuda", check=False)
    assert refused.returncode != 0
    assert "training.gpus_per_training: 4 GPUs are needed, but this machine has 2" in refused.stdout + refused.stderr
