"""Digests: which changes they detect, which they ignore, and that they cover all the code that runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfeatures.data.settings import Data, KeepListed, MergeClasses
from robustfeatures.derived.registry import METHODS
from robustfeatures.derived.settings import Derived
from robustfeatures.pipeline.plan.canonical import canonical_json, digest
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.reach import reach
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import read_study
from robustfeatures.training.settings import Augmentation
from tests.conftest import REPOSITORY, Workspace

STUDIES = REPOSITORY / "workflow" / "studies"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_the_order_of_names_does_not_matter(value: object) -> None:
    def reordered(item: object) -> object:
        if isinstance(item, dict):
            return {name: reordered(item[name]) for name in reversed(item)}
        return [reordered(one) for one in item] if isinstance(item, list) else item

    assert digest(value) == digest(reordered(value))


def test_numbers_of_different_types_stay_apart() -> None:
    assert len({digest({"x": value}) for value in (1, 1.0, True, "1", None, [1])}) == 6
    assert digest({"a": 1, "b": 2}) != digest({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_nan(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"x": value})


@pytest.fixture
def plan() -> Plan:
    return unfold(Config(study="smoke"), STUDIES)


def test_every_parameter_enters_the_digest() -> None:
    pieces = Pieces(read_study(STUDIES / "smoke.yaml"))
    model = pieces.source_model("standard", 0)
    training = model.parameters.training  # type: ignore[union-attr]
    variants = [
        replace(model.parameters, seed=1),
        *(
            replace(model.parameters, training=replace(training, **change))
            for change in (
                {"epochs": 3},
                {"batch_size": 65},
                {"learning_rate": 0.21},
                {"momentum": 0.8},
                {"weight_decay": 1e-4},
                {"schedule": "constant"},
                {"augmentation": Augmentation(flip=True)},
                {"milestones": (1,)},
                {"natural": 0.5},
                {"gpus_per_training": 2},
            )
        ),
    ]
    digests = {replace(model, parameters=parameters).digest for parameters in variants}
    assert len(digests | {model.digest}) == len(variants) + 1
    assert replace(model, family="another", seed=7).digest == model.digest


def test_one_gpu_is_no_setting(tmp_path: Path) -> None:
    """Recipes of a training on one GPU are those of a study that says nothing; only several need the code for it."""
    text = (STUDIES / "smoke.yaml").read_text()
    recipes = {}
    for gpus in ("", "    gpus_per_training: 1\n", "    gpus_per_training: 2\n"):
        (tmp_path / "smoke.yaml").write_text(text.replace("    epochs: 2\n", f"    epochs: 2\n{gpus}"))
        recipe = Pieces(read_study(tmp_path / "smoke.yaml")).source_model("standard", 0)
        recipes[recipe.digest] = "robustfeatures.training.distributed" in reach(recipe.code_entries).modules
    assert sorted(recipes.values()) == [False, True]


def chain(recipe: Recipe) -> list[Recipe]:
    """A recipe and all recipes that it builds on, inputs first."""
    found: dict[str, Recipe] = {}
    recipe.collect(found)
    return list(found.values())


def test_upstream_changes_reach_everything_below() -> None:
    pieces = Pieces(read_study(STUDIES / "smoke.yaml"))
    evaluation = pieces.evaluation(pieces.downstream_model("D_rand", 0), eps=(0.0,))
    study = replace(pieces.study, data=replace(pieces.study.data, split_seed=1))
    moved = Pieces(study)
    other = moved.evaluation(moved.downstream_model("D_rand", 0), eps=(0.0,))
    before = {recipe.label: recipe.digest for recipe in chain(evaluation)}
    after = {recipe.label: recipe.digest for recipe in chain(other)}
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_where_files_lie_is_no_part_of_a_recipe() -> None:
    listed = KeepListed(kind="listed", path="here.txt", sha256="1" * 64, split="train")
    data = Data(source="folder", path="photographs", sha256="0" * 64, test=0.2, operations=(listed,))
    recipe = Recipe("label", data, {})
    elsewhere = replace(data, path="/elsewhere", operations=(replace(listed, path="there.txt"),))
    assert replace(recipe, parameters=elsewhere).digest == recipe.digest
    assert replace(recipe, parameters=elsewhere).record()["parameters"]["path"] == "/elsewhere"
    other_content = (replace(data, sha256="2" * 64), replace(data, operations=(replace(listed, sha256="2" * 64),)))
    assert recipe.digest not in {replace(recipe, parameters=parameters).digest for parameters in other_content}
    # A class may be called "path".
    merged = [
        replace(data, operations=(MergeClasses(kind="merge", groups={"path": ("a",), "rest": rest}),))
        for rest in (("b",), ("c",))
    ]
    assert len({replace(recipe, parameters=parameters).digest for parameters in merged}) == 2


def test_standard_training_does_not_depend_on_attacks(plan: Plan) -> None:
    for name, recipe in plan.recipes.items():
        attacks = {module for module in reach(recipe.code_entries).modules if ".attacks" in module}
        if recipe.stage.name in ("data", "model", "measurement"):
            assert bool(attacks) == ("adversarial" in name), name
        else:
            assert attacks, name


def test_a_derived_set_depends_on_its_own_method_alone(plan: Plan) -> None:
    modules = {entry.module for entry in METHODS.values()}
    found = set()
    for recipe in plan.recipes.values():
        if isinstance(recipe.parameters, Derived):
            own = METHODS[recipe.parameters.method.kind].module
            assert reach(recipe.code_entries).modules.keys() & modules == {own}
            found.add(own)
    assert len(found) > 1


def makes_numbers(module: str, folder: Path) -> bool:
    """Whether a module that a job loads is science with code: no pipeline, messages, settings or registry."""
    parts = module.split(".")
    is_package = folder.joinpath(*parts, "__init__.py").exists()
    says = parts[1:2] and parts[1] in ("cli", "__main__", "errors", "files", "pipeline", "experiments")
    return not (is_package or says or parts[-1] in ("settings", "registry"))


def test_the_code_digest_covers_every_module_that_a_job_loads(workspace: Workspace) -> None:
    """Build artifacts of every stage, and compare the modules that each job loads with those in its digest."""
    workspace.plan()
    plan = unfold(Config(study="smoke"), STUDIES)
    code_ = (
        "import sys\n"
        "from pathlib import Path\n"
        "from robustfeatures.pipeline.run.job import Environment, build\n"
        "from robustfeatures.pipeline.store.store import Store\n"
        "reference = Path('results/artifacts') / (sys.argv[1] + '.json')\n"
        "build(reference, Environment(Store(Path('results/store')), Path('results/raw'), 'cpu', 1))\n"
        "print(*(m for m in sys.modules if m.startswith('robustfeatures')))\n"
    )
    recipes = chain([recipe for recipe in plan.recipes.values() if recipe.stage.name == "evaluation"][-1])
    assert {recipe.stage.name for recipe in recipes} == {"data", "model", "derived", "measurement", "evaluation"}
    for recipe in recipes:
        done = subprocess.run(
            [sys.executable, "-c", code_, recipe.name],
            cwd=workspace.folder,
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(workspace.folder / "src"), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        loaded = {module for module in done.stdout.split() if makes_numbers(module, workspace.folder / "src")}
        covered = reach(recipe.code_entries).modules.keys()
        reading = {"robustfeatures.models.creation", "robustfeatures.models.weights"}
        # Planning imports the package `models`, which re-exports the first. Jobs that save a network import the second,
        # and jobs that save a data set import the module that also reads it. Planning reads the names of the user's own
        # files.
        planning = {"robustfeatures.models.own_files", "robustfeatures.data.own_files"}
        stage = recipe.stage.name
        saved = {"robustfeatures.data.dataset"} if stage == "data" else set()
        # Each job with a device sets its fast path, and logistic regression does not use it.
        unused = {"robustfeatures.engine.fast_path"} if stage == "measurement" else set()
        assert loaded - covered <= reading | planning | saved | unused, recipe.name
        if stage in ("derived", "evaluation"):
            assert reading <= covered
