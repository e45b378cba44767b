"""What a study still lacks, what is running, and how much of a run was computing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store


def status(plan: Plan, artifacts: Artifacts, store: Store) -> Iterator[str]:
    """What a study still lacks, what is running, how far it is, and the time left."""
    results = artifacts.root.parent
    missing = [name for name in plan.recipes if not _is_there(artifacts.reference(name), store)]
    missing += [
        view.artifact
        for view in plan.views
        if not all(path.exists() for path in (artifacts.reference(view.artifact), *map(results.joinpath, view.outputs)))
    ]
    total = len(plan.recipes) + len(plan.views)
    yield f"{total - len(missing)} of {total} artifacts are there"
    yield from (f"  lacks {name}" for name in missing)
    for path in sorted(store.root.glob(".partial/*/progress*.json")):
        try:
            report = read_json(path)
        except (OSError, ValueError):
            continue
        if store.is_held(path.parent.name):
            left = report["seconds_left"]
            yield f"running: {report['stage']} {report['label']}, {percent(report['share']):.0f} %, " + (
                "time left unknown" if left is None else f"{left:.0f} s left"
            )


def _is_there(reference: Path, store: Store) -> bool:
    return reference.exists() and store.manifest(read_reference(reference)["key"]) is not None


def computing_share(plan: Plan, artifacts: Artifacts, since: str, seconds: float, cores: int) -> str:
    """One line: how much of the core seconds of a run went into training, attack or evaluation."""
    built = [
        read_reference(artifacts.reference(name))["built"]
        for name in plan.recipes
        if artifacts.reference(name).exists()
    ]
    fresh = [cost for cost in built if cost["started"] >= since]
    computing = sum(cost["computing_seconds"] * min(cost["threads"], cores) for cost in fresh)
    share = percent(computing / (seconds * cores))
    return (
        f"{len(fresh)} payloads computed in {seconds:.0f} s on {cores} cores; "
        f"{share:.0f} % of the core time inside training, attack or evaluation"
    )
