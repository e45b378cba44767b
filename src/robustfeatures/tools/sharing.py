"""Share the payloads of a store through a remote. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from robustfeatures.errors import UserError, count_things, suggest
from robustfeatures.files import ABSENT
from robustfeatures.pipeline.store.format import open_store
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.remote import Remote
from robustfeatures.pipeline.store.sealed import MANIFEST, read_sealed
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import Outcome, pull, pull_acceptances, push, read_manifests

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.plan import Plan


def push_to(
    address: str, store: Store, artifacts: Artifacts, *, plan: Plan | None = None, label: str | None = None
) -> tuple[str, list[str]]:
    """Copy payloads to a remote: those of a plan, those of a label with all that they build on, or all.

    Returns a line on what was done, and lines on what was not.

    Raises:
        UserError: there is nothing to copy, the remote is the store itself, or it cannot be written.
    """
    if plan is not None:
        keys = _keys_of(artifacts, plan.recipes)
    elif label is not None:
        keys = _keys_of(artifacts, _labelled(artifacts, label))
    else:
        keys = _by_age(store)
    if not keys:
        raise UserError(f"{store.root}: nothing to push is built yet")
    remote = Remote.open(address)
    if remote.is_folder(store.root):
        raise UserError(f"{address}: the store itself; give the remote a folder of its own")
    return _describe(push(store, remote, keys), "pushed", address)


def pull_from(address: str, store: Store) -> tuple[str, list[str]]:
    """Fetch all payloads of a remote that the store lacks; returns a line on what was done, and lines on what was not.

    Raises:
        UserError: the remote cannot be read.
    """
    remote = Remote.open(address)
    remote.check()
    open_store(store.root, expected=0)
    pull_acceptances(store, remote)
    manifests, damaged = read_manifests(remote, sorted(remote.keys()))
    outcome = pull(store, remote, manifests)
    # What a killed pull has left counts as held for a while.
    late = pull(store, remote, {key: manifests[key] for key in outcome.held}, patience=None)
    outcome.moved += late.moved
    outcome.there += late.there
    outcome.refused = [*damaged, *outcome.refused, *late.refused]
    outcome.held = late.held
    return _describe(outcome, "pulled", address)


def _describe(outcome: Outcome, done: str, address: str) -> tuple[str, list[str]]:
    line = f"{address}: {done} {count_things(len(outcome.moved), 'payload')}; there before: {len(outcome.there)}"
    return line, [*outcome.refused, *outcome.held.values()]


def _keys_of(artifacts: Artifacts, names: Iterable[str]) -> Sequence[str]:
    """The keys of the artifacts that are built, in the given order."""
    paths = [path for name in names if (path := artifacts.reference(name)).exists()]
    return list(dict.fromkeys(read_reference(path)["key"] for path in paths))


def _labelled(artifacts: Artifacts, label: str) -> Iterator[str]:
    """The artifacts of a label, or of a family that differs in the seed, after all that they build on."""
    recipes = {}
    for path in sorted(artifacts.root.glob("[!.]*/*.json")):
        try:
            recipes[f"{path.parent.name}/{path.stem}"] = read_reference(path)["recipe"]
        except UserError:
            # A batch, or a view.
            continue
    chosen = [name for name, recipe in recipes.items() if label in (recipe["label"], recipe["family"])]
    if not chosen:
        known = {recipe["family"] for recipe in recipes.values()}
        raise UserError(f"--label: no artifact {label!r} is built here{suggest(label, known)}")
    done: dict[str, None] = {}

    def collect(name: str) -> None:
        if name in recipes and name not in done:
            for below in recipes[name]["inputs"].values():
                collect(below)
            done[name] = None

    for name in chosen:
        collect(name)
    return iter(done)


def _by_age(store: Store) -> Sequence[str]:
    """All keys, the oldest payload first: an input is older than what is made of it."""

    def age(key: str) -> str:
        try:
            return str(read_sealed(store.payload(key) / MANIFEST)["built"].get("started", ""))
        except (*ABSENT, ValueError, KeyError, AttributeError):
            return ""

    return sorted(store.payload_keys(), key=age)
