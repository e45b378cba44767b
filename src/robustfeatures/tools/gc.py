"""The payloads and leftovers of a store that no study needs."""

from __future__ import annotations

from pathlib import Path

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store


def unreachable(plans: list[Plan], artifacts: Artifacts, store: Store) -> list[str]:
    """The keys of the payloads that no recipe of the plans refers to, be it by an acceptance.

    Raises:
        UserError: a planned artifact is not built yet, so the keys that it will need are unknown.
    """
    kept = set()
    for plan in plans:
        for name in plan.recipes:
            path = artifacts.reference(name)
            if not path.exists():
                raise UserError(f"{path}: not built yet; build every study that is to be kept before removing payloads")
            kept.add(read_reference(path)["key"])
    return [key for key in store.payload_keys() if key not in kept]


def leftovers(store: Store, *, unfinished: bool) -> list[Path]:
    """Work that killed jobs left behind of published or removed payloads, and acceptances without any payload.

    With `unfinished` also checkpoints and blocks that no running job uses and another run would continue from, and
    everything that `verify --repair` moved aside.
    """
    found = store.empty_acceptances()
    for folder in sorted(store.root.glob(".partial/*/")):
        useless = folder.suffix == ".removed" or store.manifest(folder.name) is not None
        if useless or (unfinished and not store.is_held(folder.name)):
            found.append(folder)
    return found + (sorted(store.root.glob(".damaged/*")) if unfinished else [])
