"""The payloads and leftovers of a store that no study needs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robustfeatures.errors import UserError, count_things
from robustfeatures.files import ABSENT
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.plan.prepare import is_built_whole
from robustfeatures.pipeline.plan.recipe import STAGES
from robustfeatures.pipeline.store.checkouts import Checkout, list_checkouts
from robustfeatures.pipeline.store.lease import is_alive
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.sealed import MANIFEST
from robustfeatures.pipeline.store.store import Store
from robustfeatures.tools.finding import list_references
from robustfeatures.tools.listing import format_bytes

# A lock whose holder has shown no sign of life for so long is removed. This is much longer than a lease, because the
# clocks of a file server and of this machine may differ.
STALE_SECONDS = 3600.0
# What is younger may belong to a run whose checkout has not planned since.
GRACE_DAYS = 7


@dataclass(frozen=True)
class Unneeded:
    """The keys of payloads that the kept studies do not need now, by who else may need them.

    earlier: those that these studies needed before a change. Until all of a study is built, the change may be undone.
    """

    free: Sequence[str]
    young: Sequence[str]
    of_others: Sequence[tuple[Checkout, Sequence[str]]]
    earlier: Sequence[str]

    def keys(self, *, everyone: bool) -> list[str]:
        """The keys of what to remove. `everyone` includes all of these."""
        others = {key for _, keys in self.of_others for key in keys}
        return sorted({*self.free, *self.young, *self.earlier, *others} if everyone else self.free)

    def kept(self) -> Iterator[str]:
        """A line on each reason to keep payloads."""
        for checkout, keys in self.of_others:
            yield f"{count_things(len(keys), 'payload')} that {checkout} needs"
        if self.earlier:
            earlier = count_things(len(self.earlier), "payload")
            yield f"{earlier} that studies here needed before a change; not all is built again yet"
        if self.young:
            yield f"{count_things(len(self.young), 'payload')} younger than {GRACE_DAYS} days"


def has_results(artifacts: Artifacts, study: str) -> bool:
    """Whether a study has a table, a figure, claims or a page in this checkout."""
    return any((artifacts.root.parent / study).glob("*"))


def studies_here(artifacts: Artifacts, studies: Path, store: Store) -> list[str]:
    """The studies in the folder `studies` that have results in this checkout or were planned in it, sorted.

    A study may have payloads without results: its run goes on, or built some stages alone.
    """
    planned = {one.study for one in list_checkouts(store.root) if one.is_at(artifacts.root)}
    names = (path.stem for path in studies.glob("*.yaml"))
    return sorted(name for name in names if name in planned or has_results(artifacts, name))


def find_unneeded(
    plans: Sequence[Plan], artifacts: Artifacts, store: Store, *, with_results: Sequence[Plan] = ()
) -> Unneeded:
    """The payloads that no plan uses and that no job is making. A plan may use a payload through an acceptance.

    All of `plans` must be built. Of the plans `with_results`, what is built is kept. After a change of the code nothing
    may be, so what the study needed before is `earlier`.

    Raises:
        UserError: a planned artifact is not built yet, so the keys that it will need are unknown.
    """
    kept = set()
    for plan in with_results:
        built = (artifacts.reference(name) for name in plan.recipes)
        kept |= {read_reference(path)["key"] for path in built if path.exists()}
    for plan in plans:
        for name in plan.recipes:
            path = artifacts.reference(name)
            if not path.exists():
                raise UserError(f"{path}: not built yet; build every study that is to be kept before removing payloads")
            kept.add(read_reference(path)["key"])
    checkouts = list_checkouts(store.root)
    unfinished = {plan.study for plan in with_results if not is_built_whole(plan, artifacts)}
    before = {key for one in checkouts if one.is_at(artifacts.root) and one.study in unfinished for key in one.keys}
    left = [key for key in store.payload_keys() if key not in kept and not store.is_held(key)]
    others = [one for one in checkouts if not one.is_at(artifacts.root)]
    of_others = [(one, found) for one in others if (found := sorted(set(left) & set(one.keys)))]
    needed = {key for _, keys in of_others for key in keys}
    earlier = [key for key in left if key in before and key not in needed]
    rest = [key for key in left if key not in before and key not in needed]
    young = [key for key in rest if _is_young(store.payload(key) / MANIFEST)]
    return Unneeded([key for key in rest if key not in young], young, of_others, earlier)


def describe_payloads(keys: Sequence[str], artifacts: Artifacts, store: Store) -> tuple[dict[str, str], str]:
    """For each key what lies there, its size and its folder; and the number and size of all together.

    Only payloads of this checkout have a label here; of others the store knows the stage.
    """
    names = {}
    for path in list_references(artifacts):
        if path.parent.name in STAGES:
            names[read_reference(path)["key"]] = f"{path.parent.name}/{path.stem}"
    described, total = {}, 0
    for key in keys:
        manifest = store.manifest(key)
        size = 0 if manifest is None else sum(file["size"] for file in manifest["files"].values())
        stage = "a damaged payload" if manifest is None else f"a payload of the stage {manifest['identity']['stage']}"
        described[key] = f"{names.get(key, stage)}, {format_bytes(size)}, {store.payload(key)}"
        total += size
    return described, f"{count_things(len(keys), 'payload')}, {format_bytes(total)} in all"


def leftovers(store: Store, *, unfinished: bool, everyone: bool = False) -> list[Path]:
    """Work that killed jobs left behind of published or removed payloads, their locks, and acceptances of no payload.

    With `unfinished` also old checkpoints and blocks that no running job uses and another run would continue from, with
    `everyone` young ones too, and everything that `verify --repair` moved aside.
    """
    found = store.empty_acceptances()
    found += sorted(store.root.glob(".removed-*"))
    for folder in sorted(store.root.glob(".partial/*/")):
        useless = store.manifest(folder.name) is not None
        is_old = everyone or not any(map(_is_young, (folder, *folder.iterdir())))
        if useless or (unfinished and is_old and not store.is_held(folder.name)):
            found.append(folder)
    found += [lock for lock in store.locks() if not is_alive(lock, STALE_SECONDS)]
    return found + (sorted(store.root.glob(".damaged-*")) if unfinished else [])


def _is_young(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < GRACE_DAYS * 24 * 3600
    except ABSENT:
        return False
