"""Studies with a network and weights of one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import nn

from robustfeatures import load_model, open_dataset
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.vision import import_torchvision
from robustfeatures.errors import UserError
from robustfeatures.models.pretrained import load_pretrained
from robustfeatures.models.settings import Pretrained
from robustfeatures.pipeline.plan.identity import clear_caches
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.fetching import fetch
from tests.conftest import REPOSITORY
from tests.in_process import built_study
from tests.photographs import photographs

STUDIES = REPOSITORY / "workflow" / "studies"
SMOKE = STUDIES / "smoke.yaml"

CODE = '''
"""My networks."""

from torch import nn


def convnet(*, num_classes, image_shape, width=8):
    """A convolution with batch norm; the representation is the pooled image."""
    return nn.Sequential(
        nn.Conv2d(image_shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes),
    ), "3"
'''


def my_network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10),
    ).eval()  # fmt: skip


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def my_study(folder: Path, weights: nn.Module) -> dict[str, Any]:
    """The smoke study with a network from a file, whose standard network was trained elsewhere; two seeds."""
    path = folder / "elsewhere.pt"
    torch.save({"state_dict": {f"module.{name}": each for name, each in weights.state_dict().items()}}, path)
    study: dict[str, Any] = read_yaml(SMOKE)
    study["architecture"] = {"name": "my_networks.py:convnet", "width": 6}
    del study["training"]["standard"]
    entry = {"weights": str(path), "sha256": sha256(path), "architecture": "my_networks.py:convnet", "width": 6}
    study["models"] = {"standard": entry}
    study["seeds"] = [0, 1]
    study["experiments"] = {"A1": {}}
    return study


def planned(folder: Path, study: Mapping[str, Any], code: str = CODE) -> Plan:
    folder.mkdir(exist_ok=True)
    (folder / "tested.yaml").write_text(yaml.safe_dump(dict(study)))
    (folder / "my_networks.py").write_text(code)
    clear_caches()
    return unfold(Config(study="tested"), folder)


@pytest.mark.slow
def test_the_whole_study(tmp_path: Path) -> None:
    weights = my_network(6)
    study = my_study(tmp_path, weights)
    plan, results = built_study(tmp_path / "work", study, beside={"my_networks.py": CODE})
    table = pd.read_csv(results / "tables" / "A1.csv")
    assert set(table["row"]) >= {"standard", "adversarial", "D_NR-images", "D_R-noise"}
    artifacts = tmp_path / "work" / "results" / "artifacts"
    # One network for both seeds, and the table says so.
    (standard,) = artifacts.glob("model/digits-standard-*.json")
    assert (
        "standard: one network, trained elsewhere, stands for all seeds" in (results / "tables" / "A1.md").read_text()
    )
    assert "adversarial: one network" not in (results / "tables" / "A1.md").read_text()
    own = f"{tmp_path / 'work' / 'studies' / 'my_networks.py'}:convnet"
    loaded = load_model(standard, architecture=own)
    images = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(loaded(images), weights(images))
    torch.testing.assert_close(loaded.representation(images), weights[:5](images))
    (trained,) = artifacts.glob("model/digits-adversarial-seed1-*.json")
    assert load_model(trained, architecture=own).representation(images).shape == (5, 24)
    assert str(tmp_path / "work") not in (results / "figures" / "A1.txt").read_text()
    assert len([name for name in plan.recipes if name.startswith("model/digits-standard")]) == 1


def test_what_the_file_changes(tmp_path: Path) -> None:
    study = my_study(tmp_path, my_network(6))
    before = planned(tmp_path / "one", study).recipes
    assert list(planned(tmp_path / "elsewhere", study).recipes) == list(before)
    reworded = CODE.replace("My networks.", "Networks of mine.").replace("    return", "    # A comment.\n    return")
    assert list(planned(tmp_path / "one", study, reworded).recipes) == list(before)
    # As some editors save it.
    assert list(planned(tmp_path / "one", study, "\ufeff" + CODE).recipes) == list(before)
    changed = planned(tmp_path / "one", study, CODE.replace("nn.ReLU()", "nn.GELU()")).recipes
    kept = before.keys() & changed.keys()
    assert {name.partition("/")[0] for name in kept} == {"data"}
    assert len(changed) == len(before)
    # The name of the file of weights is in no digest, its content is.
    entry = study["models"]["standard"]
    moved = Path(entry["weights"]).with_name("moved.pt")
    moved.write_bytes(Path(entry["weights"]).read_bytes())
    study["models"]["standard"] = {**entry, "weights": str(moved)}
    assert list(planned(tmp_path / "one", study).recipes) == list(before)
    moved.write_bytes(b"other weights")
    study["models"]["standard"] = {**entry, "weights": str(moved), "sha256": sha256(moved)}
    others = {name for name in before if name.startswith(("data/", "model/digits-adversarial", "derived/digits-D_R"))}
    found = planned(tmp_path / "one", study).recipes.keys()
    assert others <= found
    assert not [
        name for name in found & before.keys() if name.startswith(("model/digits-standard", "derived/digits-D_NR"))
    ]


@pytest.mark.parametrize(
    ("experiment", "stages"),
    [
        ("A2", {"derived", "evaluation"}),
        ("E3", {"measurement"}),
        ("X3", {"derived", "evaluation"}),
        ("X5", {"derived", "measurement"}),
    ],
)
def test_a_network_from_elsewhere_stands_where_a_training_stands(
    tmp_path: Path, experiment: str, stages: set[str]
) -> None:
    study = digits_with_a_network_from_elsewhere(tmp_path, experiment)
    recipes = planned(tmp_path, study).recipes.values()
    found = {
        recipe.stage.name
        for recipe in recipes
        for each in recipe.inputs.values()
        if isinstance(each.parameters, Pretrained)
    }
    assert found == stages


@pytest.mark.parametrize(
    ("experiment", "problem"),
    [
        ("A11", "has its own architecture, not 'wide-cnn'; experiment A11 needs it"),
        ("D3", "trained elsewhere, so its training cannot be probed; experiment D3 needs it"),
        # The second network would be the first, and an attack would seem to transfer to it.
        *(
            (name, f"trained elsewhere, so there is no second network of its kind; experiment {name} needs it")
            for name in ("A3", "B2", "B4", "D4")
        ),
    ],
)
def test_an_experiment_that_trains_it_anew(tmp_path: Path, experiment: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"tested.yaml: models.standard: {problem}$"):
        planned(tmp_path, digits_with_a_network_from_elsewhere(tmp_path, experiment))


def digits_with_a_network_from_elsewhere(folder: Path, experiment: str) -> dict[str, Any]:
    """One experiment of the study digits-full, whose standard network was trained elsewhere."""
    (folder / "weights.pt").write_bytes(b"")
    study: dict[str, Any] = dict(read_values(STUDIES / "digits-full.yaml").values)
    entry = {"weights": str(folder / "weights.pt"), "sha256": sha256(folder / "weights.pt"), "architecture": "resnet18"}
    study["training"] = {name: each for name, each in study["training"].items() if name != "standard"}
    return study | {"models": {"standard": entry}, "experiments": {experiment: study["experiments"][experiment]}}


def test_a_network_of_timm_in_a_study(tmp_path: Path) -> None:
    import_torchvision()
    pytest.importorskip("timm")
    study: dict[str, Any] = read_yaml(SMOKE)
    study["architecture"] = {"name": "timm:resnet26"}
    recipes = planned(tmp_path, study).recipes
    for name, recipe in recipes.items():
        # A logistic regression of the pixels uses no network.
        uses = not name.startswith(("data/", "measurement/"))
        assert ("timm" in recipe.identity["libraries"]) == uses, name
    study["architecture"] = {"name": "timm:resnet26", "width": 8}
    with pytest.raises(UserError, match=r"architecture\.width: 'timm:resnet26' has no width"):
        planned(tmp_path, study)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such file": ({"architecture": {"name": "others.py:convnet"}}, "architecture.name: .*others.py does not exist"),
    "elsewhere": ({"architecture": {"name": "../n.py:net"}}, "architecture.name: ../n.py must lie beside the study"),
    "no such function": (
        {"architecture": {"name": "my_networks.py:convnt"}},
        r"architecture.name: .*my_networks.py has no function 'convnt' \(did you mean 'convnet'\?\)",
    ),
    "weights": ({"weights": "absent.pt"}, "models.standard.weights: absent.pt does not exist"),
    "unknown": ({"network": "resnet81"}, r"models.standard.architecture: 'resnet81' is unknown \(did you mean"),
    "digest": (
        {"sha256": None},
        "models.standard.weights: .* has no sha256; `robustfeatures fetch --study NAME` prints it",
    ),
    "format": ({"format": "pickle"}, "models.standard.format: 'pickle' is unknown"),
    "one of two": ({"mean": [0.5]}, "models.standard.mean: give both mean and std, or neither"),
    "twice": ({"training": "standard"}, "models.standard: the name is that of a training"),
    "source": ({"source": "standrd"}, r"derived.D_R.source: 'standrd' is unknown \(did you mean 'standard'\?\)"),
    "training": ({"downstream": "standard"}, "derived.D_R.training: 'standard' is unknown"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_before_anything_is_computed(tmp_path: Path, case: str) -> None:
    changes, problem = REFUSED[case]
    study = my_study(tmp_path, my_network(6))
    method = study["derived"]["D_det"]["method"]
    study["derived"]["D_R"] = {
        "source": changes.get("source", "adversarial"),
        "training": changes.get("downstream", "downstream"),
        "method": method,
    }
    if "training" in changes:
        study["training"][changes["training"]] = study["training"]["downstream"]
    entry = study["models"]["standard"] | {name: changes[name] for name in changes if name in entry_fields()}
    entry["architecture"] = changes.get("network", entry["architecture"])
    study["models"]["standard"] = entry
    study["architecture"] = changes.get("architecture", study["architecture"])
    with pytest.raises(UserError, match=rf"tested.yaml: {problem}") as caught:
        planned(tmp_path / "studies", study)
    assert "\n" not in str(caught.value)


def entry_fields() -> set[str]:
    return {"weights", "sha256", "format", "mean", "std"}


@pytest.mark.parametrize("fault", ["classes", "nan", "raises"])
def test_what_is_refused_by_the_job(tmp_path: Path, fault: str) -> None:
    network = my_network(6)
    code = CODE
    if fault == "nan":
        nn.init.constant_(network[5].bias, torch.nan)
    if fault == "classes":
        network[5] = nn.Linear(24, 7)
    if fault == "raises":
        code = CODE.replace("    return", "    raise RuntimeError('out of luck')\n    return")
    study = my_study(tmp_path, network)
    problem = {
        "classes": r"elsewhere.pt is no checkpoint of 'my_networks.py:convnet': .* has shape \(7, 24\), not \(10, 24\)",
        "nan": "elsewhere.pt: the network with these weights gives NaN or infinite logits",
        "raises": "architecture: my_networks.py:convnet raises RuntimeError: out of luck",
    }[fault]
    with pytest.raises(UserError, match=f"^model/digits-standard-.*{problem}") as caught:
        built_study(tmp_path / "work", study, beside={"my_networks.py": code})
    assert "\n" not in str(caught.value)
    store = tmp_path / "work" / "results" / "store"
    assert not list(store.glob("*/model.safetensors"))
    assert not list((tmp_path / "work" / "results" / "artifacts").glob("model/digits-standard*.json"))


def test_weights_that_change_after_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"another file")
    parameters = Pretrained(weights=str(path), sha256="0" * 64, architecture="resnet18")
    with pytest.raises(UserError, match=r"^sha256: .*weights\.pt has the SHA-256 \w{64}, not 0{64}"):
        load_pretrained(parameters, num_classes=10, image_shape=(3, 32, 32))


def test_fetch_prints_the_digest_of_weights(tmp_path: Path) -> None:
    study = my_study(tmp_path, my_network(6))
    entry = study["models"]["standard"]
    (tmp_path / "my_networks.py").write_text(CODE)
    path = tmp_path / "tested.yaml"
    for given, expected in ((None, f"sha256: {entry['sha256']}"), (entry["sha256"], "as in the study")):
        study["models"]["standard"] = {**entry, "sha256": given}
        path.write_text(yaml.safe_dump(study))
        assert any("elsewhere.pt" in line and line.endswith(expected) for line in fetch(path, tmp_path / "raw"))
    study["models"]["standard"]["sha256"] = "0" * 64
    path.write_text(yaml.safe_dump(study))
    with pytest.raises(UserError, match=r"models\.standard\.sha256: .*elsewhere.pt has the SHA-256"):
        list(fetch(path, tmp_path / "raw"))
    with pytest.raises(UserError, match=r"models\.standard\.sha256: .*elsewhere.pt has the SHA-256"):
        unfold(Config(study="tested"), tmp_path)


def test_a_published_network_as_the_source_on_photographs(tmp_path: Path) -> None:
    """D_NR and D_det of real photographs, made with the CIFAR-10 ResNet-18 in the wheel of pyautoattack."""
    images = tmp_path / "photographs.npz"
    np.savez(images, **photographs(3))
    weights = Path(str(files("pyautoattack") / "examples" / "model_test.pt"))
    small = {"epochs": 2, "batch_size": 10, "learning_rate": 0.1}
    attack = {"kind": "targeted-attack", "target": "next", "norm": "l2", "eps": 0.5, "step_size": 0.15, "steps": 4}
    inversion = {"kind": "inversion", "start": "images", "step_size": 0.2, "steps": 4}
    study = {
        "title": "Photographs and a published network",
        "data": {"source": "npz", "path": str(images), "sha256": sha256(images), "test": 0.5},
        "architecture": {"name": "small-cnn", "width": 4},
        "seeds": [0],
        "models": {"published": {"weights": str(weights), "sha256": sha256(weights), "architecture": "resnet18"}},
        "training": {"downstream": small},
        "derived": {
            "D_NR": {"source": "published", "training": "downstream", "method": inversion},
            "D_det": {"source": "published", "training": "downstream", "method": attack},
        },
        "experiments": {"A10": {"images": 3}},
    }
    _, results = built_study(tmp_path / "work", study)
    assert (results / "figures" / "A10.png").stat().st_size > 0
    artifacts = tmp_path / "work" / "results" / "artifacts"

    def only(pattern: str) -> Path:
        (path,) = artifacts.glob(pattern)
        return path

    network = FrozenNetwork(load_model(only("model/*.json")))
    original = open_dataset(only("data/*.json"))
    d_det, d_nr = open_dataset(only("derived/*D_det*.json")), open_dataset(only("derived/*D_NR*.json"))
    real, moved, inverted = (torch.from_numpy(each.float_images()) for each in (original, d_det, d_nr))
    with torch.no_grad():
        assert (network(real).argmax(1).numpy() == original.labels).mean() > 0.7
        assert (network(moved).argmax(1).numpy() == d_det.labels).mean() > 0.7
        goal = network.representation(real)
        # Where each inversion began: the image with that index in the source.
        place = {int(index): row for row, index in enumerate(original.provenance["source_index"])}
        began = network.representation(real[[place[int(index)] for index in d_nr.provenance["start_index"]]])
        ended = network.representation(inverted)
    assert (d_det.labels == (original.labels + 1) % 10).all()
    assert (moved - real).flatten(1).norm(dim=1).max() < 0.5 + 1e-4
    assert ((ended - goal).norm(dim=1) < (began - goal).norm(dim=1)).all()
