"""Accepting kept payloads after a refactoring: a sample is made again, and if its bytes are the same, all may stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.canonical import digest
from robustfeatures.pipeline.plan.identity import identity_digest
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.recipe import STAGES, Recipe
from robustfeatures.pipeline.run.blocks import Share
from robustfeatures.pipeline.run.job import Environment, compute, given
from robustfeatures.pipeline.store.acceptances import write_acceptance
from robustfeatures.pipeline.store.store import Store, discard

# What an acceptance may change.
CHANGING = ("code", "libraries")
# The folder of what is made again, which only one process at a time works in.
SCRATCH = "accept"


@dataclass(frozen=True)
class Candidate:
    """A planned artifact that the store has under another key: made by other code or libraries, else alike.

    `key` is the one it has now. `kept` is the manifest of the payload, `inputs` are those of its inputs by role.
    """

    recipe: Recipe
    key: str
    kept: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]

    @property
    def seconds(self) -> float:
        """How long the kept payload took."""
        return float(self.kept["built"]["seconds"])


def accept(plan: Plan, study: str, store: Store, raw: Path, *, check: int | None, reason: str) -> Iterator[str]:
    """Let kept payloads stand for the artifacts of a study that differ from them in code or libraries alone.

    The `check` cheapest of each stage, or all, are made again; only if each has the content of the kept one is
    anything recorded, all of it in one rename. Yields what was done, in lines.

    Raises:
        UserError: an artifact has other content than the kept one, or cannot be made again; nothing is recorded.
    """
    candidates, missing = find_candidates(plan, store)
    if missing:
        yield f"{len(missing)} artifacts are not in the store with other code or libraries alone: they will be computed"
    if not candidates:
        yield "there is nothing to accept"
        return
    compared = []
    for candidate in _sample(candidates, check):
        contents = _made_again(candidate, store, raw)
        compared.append({"artifact": candidate.recipe.name, "kept": candidate.kept["key"], "contents": contents})
        yield f"the same bytes: {candidate.recipe.name}"
    path = write_acceptance(
        store.root,
        {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason,
            "study": study,
            "check": "all" if check is None else check,
            "compared": compared,
            "stands": {candidate.key: _entry(candidate) for candidate in candidates},
        },
    )
    yield f"accepted {len(candidates)} artifacts, {len(compared)} of them made again: {path}"


def find_candidates(plan: Plan, store: Store) -> tuple[list[Candidate], list[str]]:
    """What may be accepted of a plan, inputs first, and the names of the artifacts that the store has in no form.

    Whatever builds on an artifact of the second kind is of that kind too, for its key is not known.
    """
    kept = _newest_by_what_stays(store)
    manifests: dict[str, Mapping[str, Any]] = {}
    candidates: dict[str, Candidate] = {}
    missing = []
    for name, recipe in plan.recipes.items():
        if any(below.name not in manifests for below in recipe.inputs.values()):
            missing.append(name)
            continue
        inputs = {role: manifests[below.name] for role, below in recipe.inputs.items()}
        contents = {role: manifest["content"] for role, manifest in inputs.items()}
        key = identity_digest(recipe.identity, contents)
        found = store.manifest(key) or kept.get(_what_stays(recipe.identity, contents))
        if found is None:
            missing.append(name)
            continue
        manifests[name] = found
        if store.manifest(key) is None:
            candidates[key] = Candidate(recipe, key, found, inputs)
    return list(candidates.values()), missing


def _newest_by_what_stays(store: Store) -> dict[str, Mapping[str, Any]]:
    """The manifests of the payloads in a store; of those that differ in code and libraries alone the newest."""
    manifests = [manifest for key in store.payload_keys() if (manifest := store.manifest(key)) is not None]
    oldest_first = sorted(manifests, key=lambda manifest: str(manifest["built"]["started"]))
    return {
        _what_stays(manifest["identity"], manifest["inputs"]): manifest
        for manifest in oldest_first
        if "identity" in manifest
    }


def _what_stays(identity: Mapping[str, Any], contents: Mapping[str, str]) -> str:
    return digest([{name: value for name, value in identity.items() if name not in CHANGING}, dict(contents)])


def _sample(candidates: list[Candidate], check: int | None) -> list[Candidate]:
    """The cheapest `check` of each stage, or all, inputs first."""
    chosen: set[str] = set()
    for stage in STAGES:
        of_stage = [candidate for candidate in candidates if candidate.recipe.stage.name == stage]
        chosen |= {candidate.key for candidate in sorted(of_stage, key=lambda one: one.seconds)[:check]}
    return [candidate for candidate in candidates if candidate.key in chosen]


def _made_again(candidate: Candidate, store: Store, raw: Path) -> dict[str, str]:
    """Make a payload again on the kind of device, and with the threads, of the kept one; returns its contents.

    Raises:
        UserError: the contents differ.
    """
    recipe, built = candidate.recipe, candidate.kept["built"]
    inputs = {role: given(store, recipe.inputs[role].stage.name, found) for role, found in candidate.inputs.items()}
    with store.lease(SCRATCH) as scratch:
        # What an earlier one left that was killed.
        discard(scratch)
        again = Store(scratch)
        surroundings = Environment(again, raw, str(built["device"]).partition(":")[0], int(built["threads"]))
        try:
            with again.lease(candidate.key):
                compute(recipe.name, recipe.record(), inputs, candidate.key, Share(1, 1), surroundings)
            manifest = again.manifest(candidate.key)
            assert manifest is not None
        finally:
            discard(scratch)
    payload = recipe.stage.payload
    now, before = _contents(manifest, payload), _contents(candidate.kept, payload)
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            raise UserError(
                f"{recipe.name}: {name} has other content when it is made again ({before.get(name)} is kept, "
                f"{now.get(name)} was made on {built['device']}); nothing was accepted"
            )
    return now


def _contents(manifest: Mapping[str, Any], payload: str) -> dict[str, str]:
    """The digests of what a payload holds: of the file or folder that the stage names its content, of others bytes."""
    others = {name: facts["sha256"] for name, facts in manifest["files"].items() if Path(name).parts[0] != payload}
    return {payload: manifest["content"], **others}


def _entry(candidate: Candidate) -> dict[str, Any]:
    identity, before = candidate.recipe.identity, candidate.kept["identity"]
    return {
        "kept": candidate.kept["key"],
        "content": candidate.kept["content"],
        "artifact": candidate.recipe.name,
        "before": {name: before[name] for name in CHANGING},
        "now": {name: identity[name] for name in CHANGING},
    }
