"""References: the small immutable files that Snakemake tracks, one per recipe."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from robustfeatures.errors import UserError, join_words
from robustfeatures.files import ABSENT, hash_file, read_json, write_json
from robustfeatures.pipeline.plan.canonical import DIGEST_LENGTH, digest
from robustfeatures.pipeline.plan.identity import identity_digest
from robustfeatures.pipeline.store.store import Store

# How a payload came to the store. A copy is the network of a training with probes, for the one without.
Arrival = Literal["computed", "copied", "taken"]


@dataclass(frozen=True)
class Artifacts:
    """The folder of references, `<stage>/<label>-<digest>.json`.

    The same folder has the recipes of the plan, `.plan/...`, the jobs of each plan, `.tasks/...`, and their finished
    parts, `.parts/...`.
    """

    root: Path

    def reference(self, artifact: str) -> Path:
        """The reference of `<stage>/<label>-<digest>`."""
        return self.root / f"{artifact}.json"

    def find(self, artifact: str) -> Path:
        """The reference of `<stage>/<label>-<digest>`, or one that the same recipe has under another label.

        Two studies may give one recipe two labels, and the plan of either may be the last that was written.
        """
        path = self.reference(artifact)
        if path.exists():
            return path
        return next(iter(sorted(path.parent.glob(f"*-{artifact[-DIGEST_LENGTH:]}.json"))), path)

    def builds(self, stage: str, label: str) -> list[Path]:
        """All references of a label, with any digest."""
        return sorted((self.root / stage).glob(f"{glob.escape(label)}-{'[0-9a-f]' * DIGEST_LENGTH}.json"))

    def plan(self, artifact: str) -> Path:
        """The file with the recipe of `<stage>/<label>-<digest>`."""
        return self.root / ".plan" / f"{artifact}.json"

    def tasks(self, plan: str) -> Path:
        """The file with the jobs of a plan. `plan` is the digest of what the file holds."""
        # As deep as `.plan/...`, so that no search for references finds it.
        return self.root / ".tasks" / "plans" / f"{plan}.json"

    def newest_tasks(self) -> list[Path]:
        """The files with the jobs of all plans, the newest plan first."""
        files = (self.root / ".tasks" / "plans").glob("*.json")
        return sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True)

    @property
    def tasks_variable(self) -> str:
        """The environment variable that tells the jobs of a run which plan is theirs. Each folder has its own."""
        return f"ROBUSTFEATURES_TASKS_{digest(str(self.root.resolve())).upper()}"

    def parts(self, name: str, count: int) -> list[Path]:
        """The files that mark finished parts of a job; none if the job has one part."""
        folder = self.root / ".parts" / name
        return [folder / f"{part}-of-{count}.json" for part in range(1, count + 1)] if count > 1 else []

    def count_stop(self, name: str, part: int | str | None = None) -> None:
        """Record that a job, or a part of it, ended because it was told to, for example at its time limit."""
        path = self._stops(name, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b".")

    def stops(self, name: str, part: int | str | None = None) -> int:
        """How often a job, or a part of it, ended because it was told to, since the last run began."""
        try:
            return self._stops(name, part).stat().st_size
        except ABSENT:
            return 0

    def forget_stops(self, name: str, parts: int) -> None:
        """Begin to count anew for a job and its parts."""
        for part in (None, *range(1, parts + 1)):
            self._stops(name, part).unlink(missing_ok=True)

    def _stops(self, name: str, part: int | str | None) -> Path:
        return self.root / ".stops" / (name if part is None else f"{name}-{part}")

    def count_arrival(self, key: str, how: Arrival) -> None:
        """Record that this checkout has just brought a payload to the store."""
        self.root.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._arrivals.open("a") as file:
            file.write(f"{now} {how} {key}\n")

    def arrivals(self, since: str) -> dict[str, str]:
        """How payloads came to the store by this checkout, by key. `since` is a time in UTC, in ISO format."""
        try:
            lines = self._arrivals.read_text().splitlines()
        except ABSENT:
            return {}
        # A machine may have died while it wrote a line.
        found = (line.split() for line in lines if line.count(" ") == 2)
        return {key: how for moment, how, key in found if moment >= since}

    @property
    def _arrivals(self) -> Path:
        return self.root / ".arrivals"

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
        UserError: there is no such file, or it is not a reference of one artifact.
    """
    try:
        reference: dict[str, Any] = read_json(path)
        if isinstance(reference, dict) and reference.keys() == {"artifacts"}:
            raise UserError(f"{path}: stands for {join_words(reference['artifacts'])}; give one of these")
        reference["key"], reference["content"], reference["recipe"]
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such reference") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a reference of an artifact, or a damaged one; remove a damaged one, and the next run makes "
            "it again from the store"
        ) from error
    return reference


def sum_computing(references: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The seconds inside training, attack and evaluation by stage, all jobs together; stages with none are left out.

    A payload with two names counts once, and a copy beside its original takes no time.
    """
    payloads = {reference["key"]: reference for reference in references}
    found: dict[str, float] = {}
    for reference in payloads.values():
        built = reference["built"]
        if built["computing_seconds"] and built.get("copied_from") not in payloads:
            found[reference["stage"]] = found.get(reference["stage"], 0.0) + built["computing_seconds"]
    return found


def is_built(path: Path, store: Store) -> bool:
    """Whether there is such a reference, and its payload is in the store.

    Raises:
        UserError: it is not a reference of one artifact.
    """
    return path.exists() and store.manifest(read_reference(path)["key"]) is not None


def read_recipe(artifacts: Artifacts, artifact: str) -> dict[str, Any]:
    """The recipe of an artifact or of a view, from its reference, or from its plan if it has none.

    Raises:
        UserError: the file is missing or damaged.
    """
    reference = artifacts.reference(artifact)
    path = reference if reference.exists() else artifacts.plan(artifact)
    try:
        found = read_json(path)
        recipe: dict[str, Any] = found.get("recipe", found)
    except (*ABSENT, ValueError, AttributeError) as error:
        raise UserError(f"{path}: missing or damaged, so what {artifact} was made from is not known") from error
    return recipe


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


def update_reference(artifacts: Artifacts, name: str, record: dict[str, Any], store: Store) -> None:
    """Make the reference of a recipe agree with the store: keep it, write it, or remove it.

    A payload that was lost and made again elsewhere may have other content, and all that is made of it too. A damaged
    reference counts as none.
    """
    path, key = artifacts.reference(name), find_key(artifacts, record)
    manifest = None if key is None else store.manifest(key)
    if path.exists():
        with suppress(UserError):
            found = read_reference(path)
            if manifest is not None and all(manifest[field] == found[field] for field in ("key", "content")):
                return
        path.unlink(missing_ok=True)
    if manifest is not None:
        write_reference(path, record, manifest)


def find_key(artifacts: Artifacts, record: Mapping[str, Any]) -> str | None:
    """The key of a recipe's payload by the references of its inputs; None if one of them has no reference."""
    contents = {}
    for role, artifact in record["inputs"].items():
        path = artifacts.reference(artifact)
        if not path.exists():
            return None
        contents[role] = read_reference(path)["content"]
    return identity_digest(record["identity"], contents)


def write_batch(path: Path, artifacts: Sequence[str]) -> None:
    """Write the file that stands for the references of a batch, which must all exist."""
    write_json(path, {"artifacts": list(artifacts)})


def write_part(path: Path, kept: Mapping[str, Sequence[str]]) -> None:
    """Write the file that marks a finished part. `kept` has the names of its blocks in the store by payload key."""
    write_json(path, {"blocks": {key: list(names) for key, names in kept.items()}})


def parts_are_kept(path: Path, store: Store, keys: Iterable[str | None]) -> bool:
    """Whether the store still has the blocks of a finished part for the payloads of these keys, or the payloads.

    A key is None while an input is missing. Then nobody knows whether the blocks are those that will be needed.
    """
    try:
        kept: Mapping[str, Sequence[str]] = read_json(path)["blocks"]
    except (ValueError, KeyError, TypeError):
        return False
    return all(
        key is not None
        and (store.manifest(key) is not None or (key in kept and all(store.has_block(key, name) for name in kept[key])))
        for key in keys
    )


def read_content(path: Path) -> str | None:
    """What the reference of a payload, a table, a figure, the claims or the page stands for; None if there is none."""
    try:
        reference = read_json(path)
        return str(reference["content"] if "content" in reference else digest(reference["files"]))
    except (*ABSENT, ValueError, KeyError, TypeError):
        return None


def files_are_whole(path: Path, results: Path) -> bool:
    """Whether a table, a figure, the claims or the page with this reference has all its files as they were written."""
    try:
        files: Mapping[str, Mapping[str, str]] = read_json(path)["files"]
        return all(hash_file(results / name) == facts["sha256"] for name, facts in files.items())
    except (*ABSENT, IsADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return False
