"""References: the small immutable files that Snakemake tracks, one per recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustfeatures.errors import UserError
from robustfeatures.recipes.canonical import digest, without_paths
from robustfeatures.store.files import read_json, write_json
from robustfeatures.store.store import Store


@dataclass(frozen=True)
class Artifacts:
    """The folder of references, `<stage>/<label>-<digest>.json`, and of the plans behind them, `.plan/...`."""

    root: Path

    def reference(self, artifact: str) -> Path:
        """The reference of `<stage>/<label>-<digest>`."""
        return self.root / f"{artifact}.json"

    def plan(self, artifact: str) -> Path:
        """The recipe of `<stage>/<label>-<digest>` as it was unfolded from a study."""
        return self.root / ".plan" / f"{artifact}.json"

    @classmethod
    def of(cls, reference: Path) -> tuple[Artifacts, str]:
        """The folder that a reference lies in, and the artifact it names."""
        return cls(reference.parents[1]), f"{reference.parent.name}/{reference.stem}"


def read_reference(path: Path) -> dict[str, Any]:
    """The content of a reference.

    Raises:
        UserError: there is no such file, or it is no reference.
    """
    try:
        reference: dict[str, Any] = read_json(path)
        reference["key"], reference["content"], reference["recipe"]
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such reference") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: this is not a reference of an artifact") from error
    return reference


def store_key(record: dict[str, Any], contents: dict[str, str]) -> str:
    """The key of a payload: stage, parameters, code, and the content digests of the inputs by role."""
    identity = {name: record[name] for name in ("stage", "version", "parameters", "code", "torch")}
    return digest({**without_paths(identity), "inputs": contents})


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
        },
    )


def resolve(artifacts: Artifacts, store: Store, record: dict[str, Any]) -> bool:
    """Write the reference of a recipe if its inputs have references and the store has its payload already."""
    contents = {}
    for role, artifact in record["inputs"].items():
        path = artifacts.reference(artifact)
        if not path.exists():
            return False
        contents[role] = read_reference(path)["content"]
    manifest = store.manifest(store_key(record, contents))
    if manifest is None:
        return False
    write_reference(artifacts.reference(f"{record['stage']}/{record['label']}-{record['digest']}"), record, manifest)
    return True
