"""Fetch what a study needs and a remote has, before anything is computed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.tasks import KnownRemote, read_remote
from robustfeatures.pipeline.store.acceptances import find_accepted
from robustfeatures.pipeline.store.references import Artifacts
from robustfeatures.pipeline.store.remote import Remote
from robustfeatures.pipeline.store.store import Store
from robustfeatures.pipeline.store.transfers import pull, pull_acceptances, read_manifests

if TYPE_CHECKING:
    from robustfeatures.pipeline.plan.plan import Plan

log = logging.getLogger(__name__)


def fetch_planned(
    address: str | None, plan: Plan, artifacts: Artifacts, store: Store
) -> tuple[KnownRemote | None, list[str]]:
    """Fetch the payloads of a plan that the remote has and the store lacks.

    Returns what the jobs need to know of the remote, and lines on the payloads that it has damaged. A job may make an
    input that the remote lacks. Only then is the key of the next payload known.

    Raises:
        UserError: the remote cannot be reached.
    """
    if address is None:
        return None, []
    remote = Remote.open(address, "config.yaml: remote")
    remote.check()
    listed = remote.keys()
    pull_acceptances(store, remote)
    wanted, damaged = _find_wanted(plan, store, remote, listed)
    outcome = pull(store, remote, wanted)
    for key in outcome.moved:
        artifacts.count_arrival(key, "taken")
    known = KnownRemote(address, tuple(sorted(listed - wanted.keys())))
    return known, [f"{line}; it is not taken" for line in (*damaged, *outcome.refused)]


def fetch_key(key: str, artifacts: Artifacts, store: Store) -> bool:
    """Fetch the payload of a job, if the remote had it when the study was planned; whether it came.

    A remote that a job cannot reach, as on a node without network, is no error.
    """
    known = read_remote(artifacts)
    if known is None:
        return False
    candidates = [one for one in _candidates(store, key) if one in known.keys]
    if not candidates:
        return False
    try:
        remote = Remote.open(known.address)
        manifests, damaged = read_manifests(remote, candidates)
        outcome = pull(store, remote, dict(list(manifests.items())[:1]), bar=False)
    except UserError as error:
        damaged, outcome = [str(error)], None
    for line in (*damaged, *(outcome.refused if outcome else ())):
        log.warning("%s; it is not taken", line)
    for moved in outcome.moved if outcome else ():
        log.info("%s: taken from %s", moved, known.address)
        artifacts.count_arrival(moved, "taken")
    return bool(outcome and outcome.moved)


def _find_wanted(
    plan: Plan, store: Store, remote: Remote, listed: set[str]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The manifests to fetch by key, and lines on those that are damaged.

    A key follows from the content of the inputs, which a manifest tells before anything is fetched.
    """
    contents: dict[str, str | None] = {}
    wanted: dict[str, dict[str, Any]] = {}
    lines: list[str] = []
    for names in _levels(plan):
        keys = {name: plan.recipes[name].find_key(contents) for name in names}
        own = {name: None if key is None else store.manifest(key) for name, key in keys.items()}
        possible = {
            name: [one for one in _candidates(store, key) if one in listed]
            for name, key in keys.items()
            if key is not None and own[name] is None
        }
        found, damaged = read_manifests(remote, dict.fromkeys(one for each in possible.values() for one in each))
        lines += damaged
        for name in names:
            manifest = own[name] or next((found[one] for one in possible.get(name, ()) if one in found), None)
            contents[name] = None if manifest is None else manifest["content"]
            if manifest is not None and own[name] is None:
                wanted[manifest["key"]] = manifest
    return wanted, lines


def _levels(plan: Plan) -> Iterable[list[str]]:
    """The artifacts of a plan, those without inputs first, then those that need them alone, and so on."""
    levels: dict[int, list[str]] = {}
    for name, depth in plan.depths().items():
        levels.setdefault(depth, []).append(name)
    return [levels[depth] for depth in sorted(levels)]


def _candidates(store: Store, key: str) -> list[str]:
    """The key, and the keys of the payloads that were accepted for it."""
    return [key, *(kept for kept, _, _ in find_accepted(store.root, key))]
