"""The registries: an entry must be complete, and its values must be true."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Discriminator

from robustfeatures.attacks.evaluating.registry import ATTACKS, AttackEntry
from robustfeatures.attacks.evaluating.settings import Noise
from robustfeatures.data.registry import SOURCES, SourceEntry
from robustfeatures.derived.registry import METHODS, MethodEntry
from robustfeatures.engine.registry import Entry, check_kinds, index_by_name, load_attribute
from robustfeatures.errors import UserError
from robustfeatures.models.registry import NETWORKS, NetworkEntry

NETWORK = {"name": "mine", "factory": "robustfeatures.models.simple:linear", "operations": 1e6, "side": 32, "width": 8}
SOURCE = {"name": "mine", "loader": "robustfeatures.data.digits:load", "size": "robustfeatures.data.counting:count_npz"}
ATTACK = {"name": "mine", "settings": Noise, "forwards": lambda settings, radii: 1.0}
METHOD = {"name": "mine", "settings": Noise, "module": "robustfeatures.data", "forwards": lambda method: 1.0}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(NetworkEntry, NETWORK), (SourceEntry, SOURCE), (AttackEntry, ATTACK), (MethodEntry, METHOD)],
)
def test_an_entry_that_lacks_something_says_which(kind: type[Entry], fields: dict[str, Any]) -> None:
    assert kind(**fields).name == "mine"
    for field in fields.keys() - {"name"}:
        with pytest.raises(UserError) as refusal:
            kind(**{name: value for name, value in fields.items() if name != field})
        assert str(refusal.value) == f"{kind.__name__} 'mine': {field} is missing"
    with pytest.raises(UserError, match=rf"^{kind.__name__} '': name is missing$"):
        kind(**{name: value for name, value in fields.items() if name != "name"})


def test_a_name_is_given_once() -> None:
    with pytest.raises(UserError, match=r"^NetworkEntry 'mine': the name is taken; choose another$"):
        index_by_name(NetworkEntry(**NETWORK), NetworkEntry(**NETWORK))


@dataclass(frozen=True)
class First:
    kind: Literal["first"]


@dataclass(frozen=True)
class Second:
    kind: Literal["second"]


Both = Annotated[First | Second, Discriminator("kind")]


def test_entries_and_the_union_of_settings_hold_the_same() -> None:
    entries = index_by_name(Entry(name="first"), Entry(name="second"))
    check_kinds(entries, {"first": First, "second": Second}, Both)
    with pytest.raises(UserError, match=r"^Second: kind: 'second' has no entry in the registry$"):
        check_kinds(index_by_name(Entry(name="first")), {"first": First}, Both)
    third = {**entries, **index_by_name(Entry(name="third"))}
    missing = r"^Entry 'third': settings: Noise is not in the union of settings with kind: 'third'$"
    with pytest.raises(UserError, match=missing):
        check_kinds(third, {"first": First, "second": Second, "third": Noise}, Both)
    with pytest.raises(UserError, match=r"^Entry 'first': settings: Second is not in the union"):
        check_kinds(entries, {"first": Second, "second": First}, Both)


def test_what_is_named_but_not_there() -> None:
    assert load_attribute("math:floor")(1.5) == 1
    with pytest.raises(UserError, match=r"^robustfeatures\.nope:make: there is no module robustfeatures\.nope$"):
        load_attribute("robustfeatures.nope:make")
    with pytest.raises(UserError, match=r"^nope\.nope:make: there is no module nope$"):
        load_attribute("nope.nope:make")
    with pytest.raises(UserError, match=r"^robustfeatures\.errors:nope: robustfeatures\.errors has no 'nope'$"):
        load_attribute("robustfeatures.errors:nope")


def test_a_module_that_fails_while_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_module.py").write_text("import math\nmath.nothing_of_this_name\ndef load(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        load_attribute("failing_module:load")


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_networks(name: str) -> None:
    entry = NETWORKS[name]
    parameters = signature(load_attribute(entry.factory)).parameters
    assert parameters.keys() - {"width"} == {"num_classes", "image_shape"}
    # Operations are counted at the factory's default width.
    assert (parameters["width"].default if "width" in parameters else None) == entry.width
    entry.check_width(entry.width)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_sources(name: str) -> None:
    entry = SOURCES[name]
    assert list(signature(load_attribute(entry.loader)).parameters) == ["parameters", "raw"]
    module = entry.loader.partition(":")[0]
    if entry.has_path:
        assert list(signature(load_attribute(f"{module}:compute_digest")).parameters) == ["parameters"]
    if isinstance(entry.size, str):
        assert list(signature(load_attribute(entry.size)).parameters) == ["path"]


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_attacks(kind: str) -> None:
    required: dict[str, Any] = {
        "pgd": {"steps": 5, "relative_step_sizes": (0.1,)},
        "noise": {"draws": 3},
    }
    settings = ATTACKS[kind].settings(kind=kind, **required.get(kind, {}))
    assert list(signature(load_attribute(f"{settings.module}:attack")).parameters) == ["task", "settings"]
    assert ATTACKS[kind].forwards(settings, 2) > 0


@pytest.mark.parametrize("kind", sorted(METHODS))
def test_methods(kind: str) -> None:
    parameters = signature(load_attribute(f"{METHODS[kind].module}:derive")).parameters
    assert list(parameters) == ["network", "original", "method", "seed", "device"]
