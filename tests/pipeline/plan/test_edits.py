"""Edits of the code, and how many recipes and views of `digits-full` each of them changes.

Each is made to a copy of the package: a function is found by its name, and its tree is changed. What it ought to change
is told from the parameters of the recipes alone.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from robustfeatures.pipeline.plan import identity, reach
from robustfeatures.pipeline.plan import view as views
from robustfeatures.pipeline.plan.canonical import to_json
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.study.config import Config
from tests.conftest import REPOSITORY

Change = Callable[[ast.AST], object]


@dataclass(frozen=True)
class Tree:
    """A copy of the package that tests edit, and the plan of `digits-full` with its code."""

    root: Path

    def planned(self) -> Plan:
        identity.clear_caches()
        return unfold(Config(study="digits-full"), REPOSITORY / "workflow" / "studies")

    def edit(self, name: str, change: Change) -> None:
        """Change the tree of the function or class `<file>.<function>`, in whatever folder the file is."""
        file, _, function = name.partition(".")
        found = []
        for path in sorted(self.root.rglob(f"{file}.py")):
            tree = ast.parse(path.read_text())
            kinds = (ast.FunctionDef, ast.ClassDef)
            found += [
                (path, tree, node) for node in ast.walk(tree) if isinstance(node, kinds) and node.name == function
            ]
        assert len(found) == 1, f"{name} is in {[str(path) for path, _, _ in found]}"
        path, tree, node = found[0]
        before = ast.dump(tree)
        change(node)
        assert ast.dump(tree) != before, f"{name} is as it was"
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    root = tmp_path / "robustfeatures"
    shutil.copytree(reach.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(views, "PAGE", root / views.PAGE.relative_to(reach.ROOT))
    monkeypatch.setattr(reach, "ROOT", root)
    yield Tree(root)
    identity.clear_caches()


@pytest.fixture(scope="module")
def before() -> Plan:
    identity.clear_caches()
    plan = unfold(Config(study="digits-full"), REPOSITORY / "workflow" / "studies")
    # The digest of a view is made when it is first asked for, which must be before an edit.
    assert all(view.artifact for view in plan.views)
    return plan


def reworded(node: ast.AST) -> None:
    """Change the wording of each error that a function raises, and of each text in functions that only make text."""
    raised = [inner for inner in ast.walk(node) if isinstance(inner, ast.Raise)]
    for one in raised or [node]:
        for text in ast.walk(one):
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                text.value += " (reworded)"


def logged(node: ast.AST) -> None:
    """Add a log line to each function, and change the text of the existing ones."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef):
            inner.body += ast.parse('log.info("one more line")').body


def counted(node: ast.AST) -> None:
    """Add a statement to each function."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef):
            inner.body.insert(0, ast.parse("more = 1 + 1").body[0])


def scaled(node: ast.AST) -> None:
    """Multiply the return value of a function by 1."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Return) and inner.value is not None:
            inner.value = ast.BinOp(inner.value, ast.Mult(), ast.Constant(1.0))


def longer_loops(node: ast.AST) -> None:
    """Add a statement to each loop."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.For):
            inner.body += ast.parse("more = 1 + 1").body


def turned(node: ast.AST) -> None:
    """Swap True and False."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, bool):
            inner.value = not inner.value


def changed(before: Plan, after: Plan) -> set[str]:
    """The recipes of `before`, by name, that are not in `after`."""
    assert len(before.recipes) == len(after.recipes)
    pairs = list(zip(before.recipes.items(), after.recipes.values(), strict=True))
    assert all(old.label == new.label for (_, old), new in pairs)
    return {name for name, new in ((name, new) for (name, _), new in pairs) if new.name != name}


def changed_views(before: Plan, after: Plan) -> list[str]:
    return [old.kind for old, new in zip(before.views, after.views, strict=True) if old.artifact != new.artifact]


def with_those_below(plan: Plan, chosen: Callable[[Recipe], bool]) -> set[str]:
    """The chosen recipes and all recipes that build on them, directly or indirectly."""
    found: set[str] = set()
    for name, recipe in plan.recipes.items():
        if chosen(recipe) or any(below.name in found for below in recipe.inputs.values()):
            found.add(name)
    return found


def values(parameters: Any, field: str) -> Iterator[Any]:
    """All values of a field, at any depth of the parameters."""
    if isinstance(parameters, dict):
        for name, value in parameters.items():
            if name == field:
                yield value
            yield from values(value, field)
    elif isinstance(parameters, list):
        for value in parameters:
            yield from values(value, field)


def has(recipe: Recipe, field: str, *wanted: object) -> bool:
    return any(value in wanted for value in values(to_json(recipe.parameters), field))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("errors.UserError", counted),
        ("errors.suggest", reworded),
        ("operations._check_drawable", reworded),
        ("checkpoints.Checkpoints", logged),
        ("loop.train", logged),
        ("progress.Progress", counted),
        ("estimates.estimate", counted),
        ("store.Store", counted),
        ("blocks.Blocks", counted),
        ("run.main", counted),
    ],
)
def test_words_and_the_keeping_of_results_change_nothing(before: Plan, tree: Tree, name: str, change: Change) -> None:
    tree.edit(name, change)
    after = tree.planned()
    assert changed(before, after) == set()
    assert changed_views(before, after) == []


def test_the_template_of_the_page_changes_the_report_alone(before: Plan, tree: Tree) -> None:
    style = views.PAGE / "style.css"
    style.write_text(style.read_text() + "/* another line */\n")
    after = tree.planned()
    assert changed(before, after) == set()
    assert changed_views(before, after) == ["report"]


@pytest.mark.parametrize(
    ("name", "kinds", "only"),
    [
        ("a7_relabelled_test_set.claims", {"table", "figure", "claims", "report"}, "A7"),
        ("published_values.place_published", {"table", "report"}, None),
    ],
)
def test_other_code_of_a_view_makes_it_anew(
    before: Plan, tree: Tree, name: str, kinds: set[str], only: str | None
) -> None:
    tree.edit(name, counted)
    after = tree.planned()
    assert changed(before, after) == set()
    for old, new in zip(before.views, after.views, strict=True):
        shown = only is None or only in {part.experiment.id for part in old.parts}
        assert (old.artifact != new.artifact) == (old.kind in kinds and shown), old.artifact


def test_a_published_number_makes_the_views_of_its_paper_anew(
    before: Plan, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(views.PUBLISHED, tmp_path / "published")
    monkeypatch.setattr(views, "PUBLISHED", tmp_path / "published")
    path = tmp_path / "published" / "not-bugs-2019.yaml"
    assert "accuracy: 16.2}" in path.read_text()
    path.write_text(path.read_text().replace("accuracy: 16.2}", "accuracy: 16.3}"))
    for old, new in zip(before.views, tree.planned().views, strict=True):
        shown = old.kind == "report" or any(part.experiment.paper == "not-bugs-2019" for part in old.parts)
        assert (old.artifact != new.artifact) == shown, old.artifact


def inverts(recipe: Recipe) -> bool:
    return recipe.stage.name == "derived" and has(recipe, "kind", "inversion")


def measures(recipe: Recipe, *modules: str) -> bool:
    return recipe.stage.name == "measurement" and has(recipe, "module", *modules)


def attacks_while_training(recipe: Recipe) -> bool:
    parameters = to_json(recipe.parameters)
    attacks = (*values(parameters, "adversary"), *values(parameters, "attack"))
    return recipe.stage.name == "model" and any(attacks)


# A toy model in numpy and scikit-learn.
WITHOUT_TORCH = ("theory.robustness_at_odds",)


def computes_with_torch(recipe: Recipe) -> bool:
    return recipe.stage.name != "data" and not measures(recipe, *WITHOUT_TORCH)


# Modules that fit with scikit-learn.
FITTED = ("measurements.linear_solutions", "theory.robustness_at_odds", "theory.ignored_feature")


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("inversion.invert", scaled, inverts),
        ("l2.step", scaled, lambda recipe: has(recipe, "norm", "l2") or inverts(recipe)),
        ("linf.step", scaled, lambda recipe: has(recipe, "norm", "linf")),
        ("carlini_wagner.carlini_wagner", longer_loops, lambda recipe: has(recipe, "kind", "cw-l2")),
        ("determinism.make_deterministic", turned, computes_with_torch),
        ("small_cnn.small_cnn", scaled, lambda recipe: has(recipe, "name", "small-cnn")),
        (
            "adversary.Attacker",
            counted,
            lambda recipe: attacks_while_training(recipe),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arithmetic_changes_what_it_makes_and_what_lies_below(
    before: Plan, tree: Tree, name: str, change: Change, expected: Callable[[Recipe], bool]
) -> None:
    tree.edit(name, change)
    found = changed(before, tree.planned())
    assert sorted(found ^ with_those_below(before, expected))[:9] == []
    assert 0 < len(found) < len(before.recipes)


def test_another_scikit_learn_changes_splits_and_what_is_fitted_with_it(
    before: Plan, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = identity.version
    monkeypatch.setattr(identity, "version", lambda name: "99.0" if name == "scikit-learn" else version(name))
    found = changed(before, tree.planned())
    expected = with_those_below(before, lambda recipe: recipe.stage.name == "data" or measures(recipe, *FITTED))
    assert sorted(found ^ expected)[:9] == []
    assert 0 < len(found) < len(before.recipes)
