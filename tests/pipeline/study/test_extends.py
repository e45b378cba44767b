"""A study that extends another one: what is merged, what its plan is, and which file an error names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from robustfeatures.data.folder import compute_digest
from robustfeatures.data.settings import Data
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.extends import read_values
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.tools.fetching import fetch
from tests.conftest import REPOSITORY

SMOKE = REPOSITORY / "workflow" / "studies" / "smoke.yaml"


def write(folder: Path, name: str, values: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the study `smoke`."""
    shutil.copy(SMOKE, tmp_path)
    return tmp_path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        unfold(Config(study=path.stem), path.parent)
    message = str(error.value)
    assert "\n" not in message
    return message


def names(plan: Plan) -> tuple[list[str], list[str]]:
    # The page shows the text of the study file.
    return list(plan.recipes), [view.artifact for view in plan.views if view.kind != "report"]


def test_mappings_merge_and_all_else_replaces(folder: Path) -> None:
    base = {"a": {"b": 1, "c": {"d": [1, 2], "e": 2}}, "f": [{"g": 1, "h": 2}], "i": 3, "j": {"k": 1}, "l": 4}
    changes = {"a": {"c": {"d": [3]}, "m": {"n": None}}, "f": [{"g": 5}], "i": {"o": 6}, "j": 7, "l": None}
    write(folder, "base", base)
    path = write(folder, "child", {"extends": "base", **changes})
    expected = {
        "a": {"b": 1, "c": {"d": [3], "e": 2}, "m": {"n": None}},
        "f": [{"g": 5}],
        "i": {"o": 6},
        "j": 7,
    }
    assert read_values(path).values == expected


def test_a_network_with_another_name_keeps_no_width(folder: Path) -> None:
    networks = {"architecture": {"name": "resnet9", "width": 32}, "other_architectures": {"wide": {"name": "vgg16"}}}
    write(folder, "base", networks)
    path = write(folder, "child", {"extends": "base", "architecture": {"name": "resnet18"}})
    assert read_values(path).values == {**networks, "architecture": {"name": "resnet18"}}
    same = write(folder, "same", {"extends": "base", "architecture": {"name": "resnet9", "init": "x"}})
    assert read_values(same).values["architecture"] == {"name": "resnet9", "width": 32, "init": "x"}
    wider = write(folder, "wider", {"extends": "base", "other_architectures": {"wide": {"width": 8}}})
    assert read_values(wider).values["other_architectures"] == {"wide": {"name": "vgg16", "width": 8}}
    removed = write(folder, "removed", {"extends": "base", "architecture": {"name": None}})
    assert read_values(removed).values["architecture"] == {"width": 32}


def test_the_plan_is_that_of_the_study_written_out(folder: Path) -> None:
    changes: dict[str, Any] = {
        "title": "Another",
        "seeds": [3, 4],
        "data": {"validation": 0.2},
        "training": {
            "standard": {"epochs": 3, "weight_decay": 1e-3},
            "pathway-2": {"milestones": None, "schedule": "constant"},
        },
        "robustness": {"attacks": [{"kind": "noise", "draws": 3}], "eps": [0.5]},
        "derived": {"D_det": {"method": {"steps": 4, "target": 3}}},
        "experiments": {"A1": None, "X4": {}, "A10": {"images": 3}},
    }
    # Loaded as text, so that no two trainings are one object.
    whole = json.loads(json.dumps(read_yaml(SMOKE)))
    whole |= {"title": "Another", "seeds": [3, 4], "data": whole["data"] | {"validation": 0.2}}
    whole["training"]["standard"] |= {"epochs": 3, "weight_decay": 1e-3}
    whole["training"]["pathway-2"]["schedule"] = "constant"
    del whole["training"]["pathway-2"]["milestones"], whole["experiments"]["A1"]
    whole["robustness"] |= changes["robustness"]
    whole["derived"]["D_det"]["method"] |= {"steps": 4, "target": 3}
    whole["experiments"] |= {"X4": {}, "A10": {"images": 3}}
    write(folder, "study", {"extends": "smoke", **changes})
    write(folder / "written", "study", whole)
    config = Config(study="study")
    assert names(unfold(config, folder)) == names(unfold(config, folder / "written"))
    assert names(unfold(config, folder)) != names(unfold(Config(study="smoke"), folder))


def test_a_change_does_not_reach_what_an_anchor_copied(folder: Path) -> None:
    """In `smoke` the training `downstream` is an alias of `standard`."""
    path = write(folder, "longer", {"extends": "smoke", "training": {"standard": {"epochs": 9}}})
    study, before = read_study(path), read_study(SMOKE)
    assert study.training["standard"].epochs == 9
    assert {name: each for name, each in study.training.items() if name != "standard"} == {
        name: each for name, each in before.training.items() if name != "standard"
    }


def test_a_chain(folder: Path) -> None:
    write(folder, "second", {"extends": "smoke", "seeds": [1], "experiments": {"A1": None, "A2": None}})
    path = write(folder, "third", {"extends": "second", "title": "Third", "experiments": {"A1": {}}})
    study = read_study(path)
    assert (study.title, study.seeds, set(study.experiments)) == ("Third", (1,), {"A1", "A7", "A10", "B1"})


def test_a_star_stands_for_all_other_names(folder: Path) -> None:
    """What the file names beside it is merged, wherever it stands, and may be new."""
    base = {"a": {"b": {"c": 1, "d": 2}, "e": 3, "f": 4}, "g": 5}
    write(folder, "base", base)
    path = write(folder, "child", {"extends": "base", "a": {"b": {"d": 6}, "*": None, "h": 7}})
    assert read_values(path).values == {"a": {"b": {"c": 1, "d": 6}, "h": 7}, "g": 5}
    write(folder, "grandchild", {"extends": "child", "a": {"*": None}})
    assert read_values(folder / "grandchild.yaml").values == {"a": {}, "g": 5}
    # Where there is nothing else, it removes nothing.
    changes = {"a": {"*": None}, "i": {"*": None, "j": {"*": None, "k": None}}, "g": {"*": None, "l": 1}}
    write(folder, "none", {"extends": "grandchild", **changes})
    assert read_values(folder / "none.yaml").values == {"a": {}, "g": {"l": 1}, "i": {"j": {"k": None}}}
    study = read_study(write(folder, "one", {"extends": "smoke", "experiments": {"*": None, "A10": {"images": 3}}}))
    assert study.experiments == {"A10": {"images": 3}}


def test_a_circle_is_refused(folder: Path) -> None:
    for name, base in (("a", "b"), ("b", "c"), ("c", "b"), ("own", "own")):
        write(folder, name, {"extends": base})
    assert refusal(folder / "a.yaml") == f"{folder}/c.yaml: extends: the studies extend each other: b -> c -> b"
    assert refusal(folder / "own.yaml") == f"{folder}/own.yaml: extends: the studies extend each other: own -> own"


@pytest.mark.parametrize(
    ("changes", "file", "message"),
    [
        ({"extends": "smok"}, "child", "extends: 'smok' is unknown (did you mean 'smoke'?)"),
        ({"extends": ["smoke"]}, "child", "extends: ['smoke'] is unknown (did you mean 'smoke'?)"),
        ({"sedes": [1]}, "child", "sedes: unknown field (did you mean 'seeds'?)"),
        (
            {"training": {"standard": {"epoch": 3}}},
            "child",
            "training.standard.epoch: unknown field (did you mean 'epochs'?)",
        ),
        ({"training": {"standrad": {"epochs": 3}}}, "child", "training.standrad.batch_size: the field is missing"),
        (
            {"training": {"standrad": None}},
            "child",
            "training.standrad: null removes a value, but the extended study has none (did you mean 'standard'?)",
        ),
        ({"experiments": {"*": {}}}, "child", "experiments.*: it must be null, which removes all other names"),
        ({"grids": {"new": {"*": 3}}}, "child", "grids.new.*: it must be null, which removes all other names"),
        ({"seeds": None}, "child", "seeds: the field is missing"),
        ({"training": {"standard": {"epochs": None}}}, "child", "training.standard.epochs: the field is missing"),
        ({"robustness": {"eps": [0.5, 0.5]}}, "child", "robustness.eps: a radius appears twice"),
        # The schedule is changed, the milestones stand where they stood.
        (
            {"training": {"pathway-2": {"schedule": "constant"}}},
            "smoke",
            "training.pathway-2.milestones: the schedule 'constant' takes none; 'step' does",
        ),
        ({"data": {"source": "npz"}}, "smoke", "data.path: the source 'npz' needs the path of your files"),
        (
            {"data": {"source": "npz", "path": "none.npz"}},
            "child",
            "data.path: none.npz does not exist",
        ),
        # Fields of the old method are left over.
        (
            {"derived": {"D_R-noise": {"method": {"kind": "targeted-attack"}}}},
            "smoke",
            "derived.D_R-noise.method.start: unknown field",
        ),
        ({"derived": {"D_det": {"splits": ["train"]}}}, "child", "derived.D_det.splits: 'validation' is missing"),
        ({"experiments": {"A99": {}}}, "child", "experiments.A99: there is no such experiment"),
        # What the study names and no study has.
        (
            {"experiments": {"B1": {"pathway_1": "typo"}}},
            "child",
            "experiments.B1.pathway_1: training: 'typo' is missing",
        ),
        ({"experiments": {"A10": {"image": 3}}}, "child", "experiments.A10.image: unknown field"),
        ({"architecture": {"name": "vgg16"}}, "child", "architecture.name: 'vgg16' needs images of at least 32 x 32"),
    ],
)
def test_an_error_names_the_file_in_which_the_value_stands(
    changes: dict[str, Any], file: str, message: str, folder: Path
) -> None:
    write(folder, "child", {"extends": "smoke", **changes})
    found = refusal(folder / "child.yaml")
    assert found.startswith(f"{folder}/{file}.yaml: {message}")
    # What is wrong may be the change.
    assert found.endswith(" (in child.yaml, which extends this file)") == (file == "smoke")


def test_a_digest_is_missing_where_the_files_are_named(folder: Path, tmp_path: Path) -> None:
    images = tmp_path / "images.npz"
    np.savez(images, images=np.zeros((40, 1, 8, 8), np.uint8), labels=np.arange(40) % 10)
    write(folder, "child", {"extends": "smoke", "data": {"source": "npz", "path": str(images)}})
    message = f"data.path: {images} has no sha256; `robustfeatures fetch --study NAME` prints it"
    assert refusal(folder / "child.yaml") == f"{folder}/child.yaml: {message}"


def test_an_extended_study_that_is_no_study(folder: Path) -> None:
    write(folder, "base", [1, 2])
    write(folder, "child", {"extends": "base", "title": "Child"})
    assert refusal(folder / "child.yaml") == f"{folder}/base.yaml: the file must hold named fields"


def test_the_large_study_takes_ones_own_images_too(tmp_path: Path) -> None:
    """A folder with a training and a test split; nothing is left of CIFAR-10."""
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)):
        path = tmp_path / "images" / ("train" if number % 4 else "test") / str(number % 5) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    for file in SMOKE.parent.glob("not-bugs-cifar10*.yaml"):
        shutil.copy(file, tmp_path)
    images = Data(source="folder", path=str(tmp_path / "images"))
    own = {"source": "folder", "path": images.path, "sha256": compute_digest(images)}
    write(tmp_path, "own", {"extends": "not-bugs-cifar10-cpu", "data": own})
    plan = unfold(Config(study="own"), tmp_path)
    data = [recipe.parameters for recipe in plan.recipes.values() if isinstance(recipe.parameters, Data)]
    # The whole set, and the test images that AutoAttack attacks.
    assert [(each.source, each.validation, len(each.operations)) for each in data] == [
        ("folder", 0.1, 0),
        ("folder", 0.1, 1),
    ]


def test_three_lines_put_ones_own_images_in_place_of_a_studys(folder: Path) -> None:
    """An image folder in place of digits: the recipes of the data alone differ, and every other recipe through them."""
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)):
        path = folder / "images" / str(number % 10) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    own = {"source": "folder", "path": str(folder / "images")}
    path = write(folder, "own", {"extends": "smoke", "data": own})
    # What `robustfeatures fetch` prints belongs beside the path, so it names the file that has the path.
    (line,) = fetch(path, folder)
    assert f"write beside this path in {path}: sha256: " in line
    sha256 = line.rpartition(" ")[2]
    write(folder, "own", {"extends": "smoke", "data": {**own, "sha256": sha256}})
    plan, before = (unfold(Config(study=name), folder) for name in ("own", "smoke"))
    assert len(plan.recipes) == len(before.recipes)
    data = [recipe.parameters for recipe in plan.recipes.values() if recipe.stage.name == "data"]
    # The shares of the splits are those of the extended study.
    assert data == [Data(source="folder", path=own["path"], sha256=sha256, validation=0.15, test=0.25)]
    parameters = [recipe.parameters for recipe in plan.recipes.values() if recipe.stage.name != "data"]
    assert parameters == [recipe.parameters for recipe in before.recipes.values() if recipe.stage.name != "data"]
    write(folder, "own", {"extends": "smoke", "data": {**own, "sha256": "0" * 64}})
    with pytest.raises(UserError, match=rf"^{path}: data\.sha256: "):
        list(fetch(path, folder))
