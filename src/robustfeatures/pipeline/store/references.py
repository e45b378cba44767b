"""References: the small immutable files that Snakemake tracks, one per recipe."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.files import read_json, write_json
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH
from robustfeatures.pipeline.plan.identity import identity_digest
from robustfeatures.pipeline.store.store import Store


@dataclass(frozen=True)
class Artifacts:
    """The folder of references, `<stage>/<label>-<digest>.json`.

    The same folder has the recipes of the plan, `.plan/...`, the jobs, `.tasks/...`, and their finished parts,
    `.parts/...`.
    """

    root: Path

    def reference(self, artifact: str) -> Path:
        """The reference of `<stage>/<label>-<digest>`."""
        return self.root / f"{artifact}.json"

    def builds(self, stage: str, label: str) -> list[Path]:
        """All references of a label, with any digest."""
        return sorted((self.root / stage).glob(f"{glob.escape(label)}-{'[0-9a-f]' * DIGEST_LENGTH}.json"))

    def plan(self, artifact: str) -> Path:
        """The file with the recipe of `<stage>/<label>-<digest>`."""
        return self.root / ".plan" / f"{artifact}.json"

    def task(self, name: str) -> Path:
        """The file with the task of the job `<stage>/<label>-<digest>`."""
        return self.root / ".tasks" / f"{name}.json"

    def parts(self, name: str, count: int) -> list[Path]:
        """The files that mark finished parts of a job; none if the job has one part."""
        folder = self.root / ".parts" / name
        return [folder / f"{part}-of-{count}.json" for part in range(1, count + 1)] if count > 1 else []

    def benchmark(self, name: str) -> Path:
        """The benchmark file of a job. Snakemake compares its time as it does those of the job's outputs."""
        return self.root.parent / "benchmarks" / f"{name}.tsv"

    @classmethod
    def of(cls, reference: Path) -> tuple[Artifacts, str]:
        """The folder of references, and the artifact that a reference names. The reference need not exist yet.

        Raises:
            UserError: no reference can have that name.
        """
        # A short path or one with `..` does not show the folders above, so it is made absolute. Otherwise the path
        # stays as the user wrote it, also in messages.
        is_complete = len(reference.parts) > 2 and ".." not in reference.parts
        path = reference if is_complete else Path(os.path.normpath(reference.absolute()))
        if path.suffix != ".json" or len(path.parents) < 2:
            raise UserError(f"{reference}: there is no such reference")
        return cls(path.parents[1]), f"{path.parent.name}/{path.stem}"


def read_reference(path: Path) -> dict[str, Any]:
    """The content of a reference.

    Raises:
        UserError: there is no such file, or it is not a reference.
    """
    try:
        reference: dict[str, Any] = read_json(path)
        reference["key"], reference["content"], reference["recipe"]
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such reference") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: this is not a reference of an artifact") from error
    return reference


def write_reference(path: Path, record: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Write the reference of a recipe whose payload is in the store."""
    write_json(
        path,
        {
            "label": record["label"],
            "stage": record["stage"],
            "digest": record["digest"],
            "key": manifest["key"],
            "content": manifest["content"],
            "bytes": sum(file["size"] for file in manifest["files"].values()),
            "recipe": record,
            "built": manifest["built"],
            # Where other code made it.
            **({"accepted": manifest["accepted"]} if "accepted" in manifest else {}),
        },
    )


def resolve(artifacts: Artifacts, store: Store, record: dict[str, Any]) -> bool:
    """Write the reference of a recipe if its inputs have references and the store has its payload; whether it did."""
    contents = {}
    for role, artifact in record["inputs"].items():
        path = artifacts.reference(artifact)
        if not path.exists():
            return False
        contents[role] = read_reference(path)["content"]
    manifest = store.manifest(identity_digest(record["identity"], contents))
    if manifest is None:
        return False
    write_reference(artifacts.reference(f"{record['stage']}/{record['label']}-{record['digest']}"), record, manifest)
    return True


def write_batch(path: Path, artifacts: Sequence[str]) -> None:
    """Write the file that stands for the references of a batch, which must all exist."""
    write_json(path, {"artifacts": list(artifacts)})


def write_part(path: Path, kept: Mapping[str, Sequence[str]]) -> None:
    """Write the file that marks a finished part. `kept` has the names of its blocks in the store by payload key."""
    write_json(path, {"blocks": {key: list(names) for key, names in kept.items()}})


def parts_are_kept(path: Path, store: Store) -> bool:
    """Whether the store still has the blocks of a finished part, or the payloads made of them."""
    try:
        kept: Mapping[str, Sequence[str]] = read_json(path)["blocks"]
    except (ValueError, KeyError, TypeError):
        return False
    return all(
        store.manifest(key) is not None or all(store.block(key, f"{name}.json").exists() for name in names)
        for key, names in kept.items()
    )
