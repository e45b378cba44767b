"""A network that another job trains with probes is copied: the same bytes as those of a training of its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustfeatures.files import read_json, write_json
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.plan.prepare import prepare
from robustfeatures.pipeline.plan.tasks import Task, make_tasks
from robustfeatures.pipeline.report.study_facts import StudyFacts
from robustfeatures.pipeline.run.job import Environment, build
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.sealed import MANIFEST, write_sealed
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY


class Build:
    """A study of A2, and of what else is asked for, in a folder of its own; its networks train for one epoch."""

    def __init__(self, folder: Path, *experiments: str) -> None:
        study: dict[str, Any] = read_yaml(REPOSITORY / "workflow" / "studies" / "smoke.yaml")
        for training in study["training"].values():
            training |= {"epochs": 1, "schedule": "constant", "milestones": []}
        study["experiments"] = {name: {} for name in ("A2", *experiments)}
        folder.mkdir(exist_ok=True)
        (folder / "small.yaml").write_text(yaml.safe_dump(study))
        self.config = Config(study="small", device="cpu", seeds_per_job=1)
        self.plan = unfold(self.config, folder)
        self.artifacts, self.store = Artifacts(folder / "results" / "artifacts"), Store(folder / "store")
        self.environment = Environment(store=self.store, raw=folder / "raw", device="cpu", threads=1)

    def prepare(self) -> dict[str, Task]:
        tasks, _, _ = prepare(self.plan, make_tasks(self.plan, self.config, gpus=0), self.artifacts, self.store)
        return {task.name: task for task in tasks}

    def find(self, label: str) -> str:
        (name,) = (name for name, recipe in self.plan.recipes.items() if recipe.label == label)
        return name

    def make(self, label: str) -> Path:
        """Build an artifact after all that its job waits for; returns its payload."""
        tasks = self.prepare()

        def visit(name: str) -> None:
            for below in tasks[name].inputs:
                if not self.artifacts.reference(below).exists():
                    visit(below)
            build(self.artifacts.reference(name), self.environment)

        visit(self.find(label))
        return self.payload(label)

    def payload(self, label: str) -> Path:
        return self.store.payload(read_reference(self.artifacts.reference(self.find(label)))["key"])

    def built(self, label: str) -> dict[str, Any]:
        built: dict[str, Any] = read_reference(self.artifacts.reference(self.find(label)))["built"]
        return built


NETWORK, PROBED = "digits-on-D_rand-downstream-seed0", "digits-on-D_rand-downstream-probed-seed0"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of a study without A6, so that nothing is there to copy."""
    return Build(tmp_path_factory.mktemp("alone"), "A7").make(NETWORK)


def test_a_copy_has_the_bytes_of_a_training(alone: Path, tmp_path: Path) -> None:
    study = Build(tmp_path, "A6")
    payload = study.make(NETWORK)
    # Its job waited for the other one.
    assert study.artifacts.reference(study.find(PROBED)).exists()
    for name in ("model.safetensors", "history.csv"):
        assert (payload / name).read_bytes() == (alone / name).read_bytes()
    made, copied = read_json(alone / "manifest.json"), read_json(payload / "manifest.json")
    # Another study finds it under the same key.
    assert payload.name == alone.name
    assert all(copied[field] == made[field] for field in ("key", "content", "identity", "inputs", "files"))
    assert copied["built"]["copied_from"] == study.payload(PROBED).name
    assert copied["built"].keys() - {"copied_from"} == made["built"].keys()
    probed = study.built(PROBED)
    taken = probed["computing_seconds"] - probed["probe_seconds"]
    assert copied["built"]["computing_seconds"] == pytest.approx(taken, abs=1e-3)
    assert list(study.store.find_damage(payload.name)) == []
    # Whoever removes the one keeps the other.
    study.store.remove(study.payload(PROBED).name)
    tasks = study.prepare()
    assert study.artifacts.reference(study.find(NETWORK)).exists()
    assert not study.artifacts.reference(study.find(PROBED)).exists()
    assert study.find(PROBED) not in tasks[study.find(NETWORK)].inputs
    # Also if the set that it was trained on is gone, and with it the reference.
    study.store.remove(study.payload("digits-D_rand-seed0").name)
    tasks = study.prepare()
    assert not study.artifacts.reference(study.find(NETWORK)).exists()
    assert not tasks[study.find(NETWORK)].copied_from


def damage(study: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = study.payload(PROBED) / "model.safetensors"
    weights.chmod(0o644)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def damage_unseen(study: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that loses a bit tells nobody. A file that was hashed before is not hashed again when it is read."""
    damage(study, monkeypatch)
    monkeypatch.setattr("robustfeatures.pipeline.store.store.check_file", lambda path, sha256: None)


def call_accepted(study: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study.artifacts.reference(study.find(PROBED))
    write_json(path, {**read_json(path), "accepted": {"when": "2026-01-01T00:00:00+00:00"}})


def train_on_others(study: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, after another plan: the manifest says that the network has seen another set."""
    path = study.payload(PROBED) / MANIFEST
    manifest = {name: value for name, value in read_json(path).items() if name != "seal"}
    path.parent.chmod(0o755)
    write_sealed(path, manifest | {"inputs": manifest["inputs"] | {"data": "0" * 16}})


def lose(study: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    study.artifacts.reference(study.find(PROBED)).unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage, r"model\.safetensors: damaged"),
        (damage_unseen, r"model\.safetensors: damaged"),
        (call_accepted, r"[0-9a-f]{16} was accepted for the training with probes alone$"),
        (train_on_others, r"[0-9a-f]{16} was trained on other images$"),
        (lose, r"probed-seed0-[0-9a-f]{16}\.json: there is no such reference$"),
    ],
)
def test_what_cannot_be_copied_is_trained(
    alone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Build, pytest.MonkeyPatch], None],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    study = Build(tmp_path, "A6")
    study.make(PROBED)
    study.prepare()
    harm(study, monkeypatch)
    with caplog.at_level(logging.WARNING):
        build(study.artifacts.reference(study.find(NETWORK)), study.environment)
    warned = [record.message for record in caplog.records if "could not be copied" in record.message]
    assert len(warned) == 1
    assert re.search(f"^trained here, because it could not be copied: .*{said}", warned[0])
    assert "copied_from" not in study.built(NETWORK)
    assert (study.payload(NETWORK) / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_a_copy_beside_its_original_costs_nothing(tmp_path: Path) -> None:
    study = Build(tmp_path, "A6")
    study.make(NETWORK)
    network, probed = (
        {"stage": "model", "key": study.payload(label).name, "built": study.built(label)} for label in (NETWORK, PROBED)
    )
    network["built"]["computing_seconds"] = probed["built"]["computing_seconds"] = 60.0

    def count(*references: dict[str, Any]) -> str:
        return StudyFacts(references, []).computing_time

    assert count(network) == count(probed) == count(network, probed) == "60 s of computing"
