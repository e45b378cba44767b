"""Payloads with made-up content, for tests of a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from robustfeatures.files import list_files
from robustfeatures.pipeline.store.sealed import MANIFEST
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


def publish_again(store: Store, key: str, change: Callable[[Path], str]) -> None:
    """Replace a payload under its key, as if another machine had made it again with other bits.

    `change` edits the files in a folder, and returns what their content digest is said to be.
    """
    manifest = store.manifest(key)
    assert manifest is not None
    with TemporaryDirectory() as name:
        kept = Path(name) / "kept"
        shutil.copytree(store.payload(key), kept, ignore=shutil.ignore_patterns(MANIFEST))
        store.remove(key)
        with store.lease(key) as lease:
            shutil.copytree(kept, lease.fresh, dirs_exist_ok=True)
            facts = {name: value for name, value in manifest.items() if name not in ("key", "files", "seal")}
            store.publish(lease, {**facts, "content": change(lease.fresh)})


def bytes_of(store: Store) -> dict[str, bytes]:
    """The bytes of all files of a store, by their relative paths, but for hidden ones."""
    return {
        str(path.relative_to(store.root)): path.read_bytes() for path in list_files(store.root) if path.name[0] != "."
    }
