"""Explain an artifact: the recipes that it builds on, and the changes since its last build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robustfeatures.pipeline.plan.identity import differences
from robustfeatures.pipeline.store.references import Artifacts, read_recipe, read_reference
from robustfeatures.tools.show import accepted_lines, files_of_view, needs_of_view


def why(path: Path) -> Iterator[str]:
    """The recipes that an artifact builds on, and its differences from the newest earlier build of the same label.

    Nothing is compared for a table, figure, claims file or page, because only its last build is kept.
    """
    artifacts, artifact = Artifacts.of(path)
    if files_of_view(path) is not None:
        seen: set[str] = set()
        for need in needs_of_view(path):
            yield from _chain(artifacts, need, 0, seen)
        return
    reference = read_reference(path)
    yield from _chain(artifacts, artifact, 0, set())
    yield from accepted_lines(reference)
    earlier = _newest_other(path, reference)
    if earlier is None:
        yield "no earlier build of this label"
        return
    yield f"differs from {earlier.name} in"
    yield from (f"  {line}" for line in _differences(artifacts, reference["recipe"], read_reference(earlier)["recipe"]))


def _chain(artifacts: Artifacts, artifact: str, depth: int, seen: set[str]) -> Iterator[str]:
    recipe = read_recipe(artifacts, artifact)
    again = artifact in seen
    yield f"{'  ' * depth}{artifact}{' (as above)' if again else ''}"
    seen.add(artifact)
    if not again:
        for below in recipe["inputs"].values():
            yield from _chain(artifacts, below, depth + 1, seen)


def _newest_other(path: Path, reference: Mapping[str, Any]) -> Path | None:
    same_label = [
        other
        for other in Artifacts.of(path)[0].builds(reference["stage"], reference["label"])
        if other.name != path.name
    ]
    moments = {other: _moment(read_reference(other)) for other in same_label}
    earlier = [other for other in same_label if moments[other] <= _moment(reference)]
    return max(earlier, key=moments.__getitem__, default=None)


def _moment(reference: Mapping[str, Any]) -> str:
    """When an artifact was built, or accepted."""
    moment: str = reference.get("accepted", {}).get("when") or reference["built"]["started"]
    return moment


def _differences(
    artifacts: Artifacts, now: Mapping[str, Any], before: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    yield from (f"{prefix}{line}" for line in differences(now["identity"], before["identity"]))
    for role in sorted(now["inputs"].keys() | before["inputs"].keys()):
        there, then = now["inputs"].get(role), before["inputs"].get(role)
        if there is None or then is None:
            yield f"{prefix}input {role}: {then} -> {there}"
        elif there != then:
            recipes = [read_recipe(artifacts, artifact) for artifact in (there, then)]
            yield from _differences(artifacts, recipes[0], recipes[1], f"{prefix}{role}: ")
