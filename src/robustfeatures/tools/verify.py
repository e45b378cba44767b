"""Check that every byte of a store is as it was published."""

from __future__ import annotations

from collections.abc import Iterator

from robustfeatures.errors import UserError, count_things
from robustfeatures.pipeline.store.store import Store


def verify(store: Store, *, repair: bool = False) -> Iterator[str]:
    """Hash every file of the store; one line per damaged, missing or unexpected file and per damaged acceptance.

    With `repair` each damaged payload or acceptance is moved aside, and one more line says where it is. Payloads will
    be made again. A payload with a file that cannot be read stays in its place, because it may be whole.

    Raises:
        UserError: there is no such store, or `repair` left a payload in its place.
    """
    if not store.root.is_dir():
        raise UserError(f"{store.root}: there is no store here")
    left = 0
    for key in store.payload_keys():
        found = list(store.find_damage(key))
        yield from (finding.line for finding in found)
        if repair and any(not finding.is_damage for finding in found):
            left += 1
        elif found and repair:
            yield f"moved {store.payload(key)} to {store.set_aside(store.payload(key))}"
    for path, line in list(store.damaged_acceptances()):
        yield line
        if repair:
            yield f"moved {path} to {store.set_aside(path)}"
    if left:
        raise UserError(
            f"{store.root}: files that cannot be read, in {count_things(left, 'payload')}, are left where they are"
        )
