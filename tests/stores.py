"""Payloads with made-up content, for tests of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robustfeatures.files import list_files
from robustfeatures.pipeline.store.store import Store, discard

BUILT = {"started": "2026-01-01", "host": "here"}


def publish_files(
    store: Store, key: str, files: Mapping[str, bytes], *, content: str = "content", built: Mapping[str, Any] = BUILT
) -> None:
    """Publish a payload of these files, whose content digest is said to be `content`."""
    with store.lease(key) as lease:
        for name, value in files.items():
            (lease.fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (lease.fresh / name).write_bytes(value)
        store.publish(lease, {"content": content, "built": built})
        discard(lease.scratch)


def bytes_of(store: Store) -> dict[str, bytes]:
    """The bytes of all files of a store, by their relative paths, but for hidden ones."""
    return {
        str(path.relative_to(store.root)): path.read_bytes() for path in list_files(store.root) if path.name[0] != "."
    }
