"""Check that every byte of a store is as it was published."""

from __future__ import annotations

from collections.abc import Iterator

from robustfeatures.errors import UserError
from robustfeatures.pipeline.store.store import Store


def verify(store: Store, *, repair: bool = False) -> Iterator[str]:
    """Hash every file of the store; one line per damaged, missing or unexpected file and per damaged acceptance.

    With `repair` each damaged payload or acceptance is moved aside, and one more line says where it is. Payloads will
    be made again.

    Raises:
        UserError: there is no such store.
    """
    if not store.root.is_dir():
        raise UserError(f"{store.root}: there is no store here")
    for key in store.payload_keys():
        damages = list(store.damages(key))
        yield from damages
        if damages and repair:
            yield f"moved {store.payload(key)} to {store.set_aside(key)}"
    for path, line in list(store.damaged_acceptances()):
        yield line
        if repair:
            yield f"moved {path} to {store.set_acceptance_aside(path)}"
