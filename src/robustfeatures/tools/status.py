"""The state of a study: missing artifacts, running jobs, and the share of a run's time spent computing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from robustfeatures.experiments.shared.units import percent
from robustfeatures.files import read_json
from robustfeatures.pipeline.plan.plan import Plan
from robustfeatures.pipeline.store.references import Artifacts, read_reference
from robustfeatures.pipeline.store.store import Store


def status(plan: Plan, artifacts: Artifacts, store: Store) -> Iterator[str]:
    """Lines on the missing artifacts of a study, and on the running jobs with their progress and the time left."""
    results = artifacts.root.parent
    missing = [name for name in plan.recipes if not _is_built(artifacts.reference(name), store)]
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


def _is_built(reference: Path, store: Store) -> bool:
    return reference.exists() and store.manifest(read_reference(reference)["key"]) is not None


def computing_share(plan: Plan, artifacts: Artifacts, since: str, seconds: float, cores: int) -> str:
    """One line with the share of a run's core seconds that was spent in training, attack or evaluation."""
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
