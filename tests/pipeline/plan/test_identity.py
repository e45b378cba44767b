"""The identity of a result: its parameters, its libraries, and that digest, key and `why` all use it."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import MinLen

from robustfeatures.data.settings import Data, KeepClasses, KeepListed
from robustfeatures.pipeline.plan import identity
from robustfeatures.pipeline.plan.canonical import digest, to_json
from robustfeatures.pipeline.plan.identity import (
    differences,
    drop_unset,
    identify_science,
    identity_digest,
    norm_entries,
)
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import Plan, unfold
from robustfeatures.pipeline.plan.recipe import STAGES, Recipe
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import read_study
from tests.conftest import REPOSITORY

STUDIES = REPOSITORY / "workflow" / "studies"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return unfold(Config(study="smoke"), STUDIES)


def test_what_is_off_is_left_out() -> None:
    off: dict[str, Any] = {"a": None, "b": False, "c": [], "d": {}}
    assert drop_unset(off) == {}
    assert drop_unset({"inside": off, "list": [off, None]}) == {"inside": {}, "list": [{}, None]}
    on = {"zero": 0, "nought": 0.0, "true": True, "empty": "", "list": [0]}
    assert drop_unset({**on, **off}) == on


def test_the_place_of_a_file_is_left_out_where_its_content_is_known() -> None:
    listed = KeepListed(kind="listed", path="here.txt", sha256="1" * 64)
    data = Data(source="folder", path="photographs", sha256="0" * 64, operations=(listed,))
    found = drop_unset(to_json(data))
    assert found["sha256"] == "0" * 64
    assert "path" not in found
    assert "path" not in found["operations"][0]
    assert drop_unset(to_json(dataclasses.replace(data, sha256=None)))["path"] == "photographs"


def dataclasses_in(kind: Any, seen: set[type]) -> Iterator[type]:
    """All dataclasses in a type, at any depth of their fields."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in seen:
        seen.add(kind)
        yield kind
        for hint in typing.get_type_hints(kind, include_extras=True).values():
            yield from dataclasses_in(hint, seen)
    for inner in get_args(kind):
        yield from dataclasses_in(inner, seen)


def ways_to_be_off(hint: Any) -> set[str]:
    """In how many ways a value of a type can be off."""
    if get_origin(hint) is Annotated:
        inner, *limits = get_args(hint)
        filled = any(isinstance(limit, MinLen) for limit in limits)
        return ways_to_be_off(inner) - ({"empty"} if filled else set())
    if get_origin(hint) in (Union, types.UnionType):
        return set().union(*map(ways_to_be_off, get_args(hint)))
    if get_origin(hint) is Literal:
        return {"false"} if False in get_args(hint) else set()
    if (get_origin(hint) or hint) in (tuple, list, dict, Mapping):
        return {"empty"}
    return {"none"} if hint is type(None) else {"false"} if hint is bool else set()


def test_no_field_is_off_in_two_ways() -> None:
    """Otherwise two different recipes could have the same digest."""
    kinds = [kind for stage in STAGES.values() for kind in dataclasses_in(stage.parameters, set())]
    assert len(kinds) > 20
    for kind in kinds:
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            assert len(ways_to_be_off(hint)) <= 1, f"{kind.__name__}.{name}"
    assert ways_to_be_off(bool | None) == {"none", "false"}
    assert ways_to_be_off(Annotated[tuple[int, ...], MinLen(1)] | None) == {"none"}


def test_a_new_option_that_is_off_changes_no_digest(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the settings of every stage had one more field."""
    before = [recipe.digest for recipe in plan.recipes.values()]
    for value, changes in ((False, False), (None, False), ((), False), (True, True)):

        def parameters(recipe: Recipe, value: object = value) -> Any:
            return {**to_json(recipe.parameters), "new": to_json(value)}

        monkeypatch.setattr(Recipe, "json_parameters", property(parameters))
        after = [recipe.digest for recipe in unfold(Config(study="smoke"), STUDIES).recipes.values()]
        assert [one != other for one, other in zip(before, after, strict=True)] == [changes] * len(before)


def test_digest_and_key_are_made_of_one_identity(plan: Plan) -> None:
    recipe = next(recipe for recipe in plan.recipes.values() if recipe.stage.name == "evaluation")
    record = recipe.record()
    assert record["identity"] == recipe.identity
    assert set(recipe.identity) == {"stage", "version", "parameters", "code", "libraries"}
    inputs = {role: below.digest for role, below in recipe.inputs.items()}
    assert recipe.digest == identity_digest(record["identity"], inputs) == digest({**recipe.identity, "inputs": inputs})
    for name in recipe.identity:
        assert identity_digest({**recipe.identity, name: "another"}, inputs) != recipe.digest


def test_libraries_are_told_by_their_distributions_with_major_and_minor() -> None:
    found = identify_science(("robustfeatures.data.digits",))["libraries"]
    assert found["scikit-learn"] == ".".join(version("scikit-learn").split(".")[:2])
    assert "sklearn" not in found


def test_distributions_are_found_as_the_standard_library_finds_them() -> None:
    known = packages_distributions()
    for library in ("torch", "torchvision", "sklearn", "PIL", "numpy", "scipy", "pandas", "yaml", "pyautoattack"):
        assert identity._distributions(library) == known[library]
    assert identity._distributions("no_such_library") == []


def test_an_empty_distribution_of_the_same_name_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one that is called sklearn, whose version says nothing about scikit-learn."""

    def install(name: str, *files: str) -> None:
        folder = tmp_path / f"{name}-0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 0.1\n")
        (folder / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{folder.name}/METADATA")))

    monkeypatch.syspath_prepend(str(tmp_path))
    install("sklearn")
    assert identity._distributions("sklearn") == ["scikit-learn"]
    # One that is installed from its sources lists no files either, and nothing else holds the library.
    install("from_sources", "from_sources.pth")
    assert identity._distributions("from_sources") == ["from_sources"]
    install("one_file", "one_file.py")
    assert identity._distributions("one_file") == ["one_file"]


def test_another_version_of_a_library_is_another_identity(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    (data,) = (recipe for recipe in plan.recipes.values() if recipe.stage.name == "data")
    before = data.identity
    versions = {"2.2.3": False, "2.2.4": False, "2.3.0": True}
    for installed, changes in versions.items():
        identity.clear_caches()
        monkeypatch.setattr(identity, "version", lambda name, installed=installed: installed)
        libraries = identify_science(data.code_entries)["libraries"]
        assert set(libraries.values()) == {installed.rpartition(".")[0]}
        assert (libraries != dict.fromkeys(before["libraries"], "2.2")) == changes
    identity.clear_caches()


def test_norms_are_reached_by_those_that_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity.reach, "is_module", lambda name: name.endswith((".l2", ".linf")))
    adversary = {"norm": "l2", "eps": 0.5}
    parameters = {"training": {"adversary": adversary}, "probes": [{"attack": {"norm": "linf"}}], "norm": None}
    assert sorted(norm_entries(parameters)) == ["robustfeatures.attacks.l2", "robustfeatures.attacks.linf"]
    # A class of images may have this name.
    assert list(norm_entries({"mapping": {"norm": "a class"}, "groups": {"norm": ["a", "b"]}})) == []


def test_differences_name_what_differs() -> None:
    pieces = Pieces(read_study(STUDIES / "smoke.yaml"))
    before = pieces.data().identity
    kept = KeepClasses(kind="classes", keep=("0", "1"))
    parameters = dataclasses.replace(pieces.study.data, validation=None, operations=(kept,))
    after = {
        **Recipe("label", parameters, {}).identity,
        "code": "0",
        "libraries": {**before["libraries"], "numpy": "9"},
    }
    assert list(differences(before, before)) == []
    assert list(differences(after, before)) == [
        f"code: {before['code']} -> 0",
        f"numpy: {before['libraries']['numpy']} -> 9",
        "operations.0.keep: None -> ['0', '1']",
        "operations.0.kind: None -> classes",
        f"validation: {before['parameters']['validation']} -> None",
    ]
