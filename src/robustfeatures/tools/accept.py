"""Accept kept payloads after a refactoring: if a sample, made again, has the same bytes, all of them stay valid.

Bytes say something about the code that made them alone. So the sample has something of every pair of old and new code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from robustfeatures.errors import StoppedError, UserError, count_things
from robustfeatures.pipeline.plan.canonical import digest
from robustfeatures.pipeline.plan.identity import identity_digest
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.recipe import Recipe
from robustfeatures.pipeline.run.blocks import Share
from robustfeatures.pipeline.run.job import Environment, compute, find_input
from robustfeatures.pipeline.store.acceptances import write_acceptance
from robustfeatures.pipeline.store.store import Store, discard

# The fields of an identity that may differ.
CHANGING = ("code", "libraries")
# The folder for making payloads again. Only one process at a time works in it.
SCRATCH = "accept"


@dataclass(frozen=True)
class Candidate:
    """A planned artifact whose payload the store has under another key, made by other code or libraries.

    `key` is its new key. `kept` is the manifest of the kept payload, `inputs` are those of its inputs by role.
    """

    recipe: Recipe
    key: str
    kept: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]

    @property
    def seconds(self) -> float:
        """The seconds that the kept payload took."""
        return float(self.kept["built"]["seconds"])

    @property
    def change(self) -> str:
        """The digest of the stage, and of its code and libraries before and now."""
        identities = (self.kept["identity"], self.recipe.identity)
        return digest([self.recipe.stage.name, [[one[name] for name in CHANGING] for one in identities]])


def accept(plan: Plan, study: str, store: Store, raw: Path, *, check: int | None, reason: str) -> Iterator[str]:
    """Use kept payloads for those artifacts of a study that differ from them only in code or libraries.

    Of each pair of old and new code, the `check` cheapest, or all, are made again. If all of them have the content of
    the kept ones, one file records the acceptance of every candidate. Yields one line for each step.

    Raises:
        UserError: an artifact has other content than the kept one, or cannot be made again; nothing is recorded.
    """
    candidates, missing = find_candidates(plan, store)
    if missing:
        absent = count_things(len(missing), "artifact")
        yield f"{absent} cannot be accepted: the store has none that differ in code or libraries alone"
    if not candidates:
        yield "there is nothing to accept"
        return
    compared = []
    for candidate in choose_sample(candidates, check):
        contents = _make_again(candidate, store, raw)
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
    changes = len({candidate.change for candidate in candidates})
    yield (
        f"accepted {count_things(len(candidates), 'artifact')}, {len(compared)} made again, for "
        f"{count_things(changes, 'pair')} of old and new code: {path}"
    )


def find_candidates(plan: Plan, store: Store) -> tuple[list[Candidate], list[str]]:
    """The candidates of a plan, inputs first, and the names of the artifacts that the store has under no key.

    An artifact that builds on a missing one is missing too, because its key is unknown.
    """
    kept = _find_newest(store)
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
        found = store.manifest(key) or kept.get(_digest_unchanging(recipe.identity, contents))
        if found is None:
            missing.append(name)
            continue
        manifests[name] = found
        if store.manifest(key) is None:
            candidates[key] = Candidate(recipe, key, found, inputs)
    return list(candidates.values()), missing


def _find_newest(store: Store) -> dict[str, Mapping[str, Any]]:
    """The manifests of the payloads in a store. Of those that differ only in code and libraries, the newest counts."""
    manifests = [manifest for key in store.payload_keys() if (manifest := store.manifest(key)) is not None]
    oldest_first = sorted(manifests, key=lambda manifest: str(manifest["built"]["started"]))
    return {
        _digest_unchanging(manifest["identity"], manifest["inputs"]): manifest
        for manifest in oldest_first
        if "identity" in manifest
    }


def _digest_unchanging(identity: Mapping[str, Any], contents: Mapping[str, str]) -> str:
    return digest([{name: value for name, value in identity.items() if name not in CHANGING}, dict(contents)])


def choose_sample(candidates: list[Candidate], check: int | None) -> list[Candidate]:
    """Of each pair of old and new code the cheapest `check`, or all, inputs first. Further seeds come last."""
    of_family: Counter[tuple[str, str]] = Counter()
    ranked: dict[str, list[tuple[int, str]]] = {}
    for candidate in sorted(candidates, key=lambda one: one.seconds):
        family = (candidate.change, candidate.recipe.family)
        ranked.setdefault(candidate.change, []).append((of_family[family], candidate.key))
        of_family[family] += 1
    # Sorting keeps the order of equals, so that the cheapest stays first.
    chosen = {key for each in ranked.values() for _, key in sorted(each, key=lambda one: one[0])[:check]}
    return [candidate for candidate in candidates if candidate.key in chosen]


def _make_again(candidate: Candidate, store: Store, raw: Path) -> dict[str, str]:
    """Make a payload again on the kind of device, with the threads and the fast path or not, of the kept one.

    Returns its contents.

    Raises:
        UserError: the contents differ.
    """
    recipe, built = candidate.recipe, candidate.kept["built"]
    inputs = {
        role: find_input(store, recipe.inputs[role].stage.name, found) for role, found in candidate.inputs.items()
    }
    with store.lease(SCRATCH) as lease:
        # A killed process may have left its work here.
        discard(lease.scratch)
        again = Store(lease.scratch)
        environment = Environment(
            again,
            raw,
            str(built["device"]).partition(":")[0],
            int(built["threads"]),
            # Payloads of an earlier version do not tell.
            gpu_fast_path=built.get("gpu_fast_path", True),
        )
        try:
            with again.lease(candidate.key) as inner:
                compute(recipe.name, recipe.record(), inputs, candidate.key, Share(1, 1), environment, inner)
            manifest = again.manifest(candidate.key)
            assert manifest is not None
        except StoppedError as error:
            raise StoppedError(f"{recipe.name}: stopped, and nothing was accepted; run again") from error
        finally:
            discard(lease.scratch)
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
    """The digests of a payload: the content digest of what the stage is about, and the SHA-256 of all other files."""
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
