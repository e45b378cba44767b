"""Which kept payloads `robustfeatures accept` lets stand for other code."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.store.store import Store, discard
from robustfeatures.pipeline.study.config import Config
from robustfeatures.tools.accept import find_candidates
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("order", [("2026-01-01", "2026-01-02"), ("2026-01-02", "2026-01-01")])
def test_of_two_kept_payloads_the_newest_stands(tmp_path: Path, order: tuple[str, str]) -> None:
    store, plan = Store(tmp_path / "store"), unfold(Config(study="smoke"), REPOSITORY / "workflow" / "studies")
    (data,) = (recipe for recipe in plan.recipes.values() if recipe.stage.name == "data")
    keys = ("a" * 16, "b" * 16)
    for key, started in zip(keys, order, strict=True):
        with store.lease(key) as lease:
            lease.fresh.mkdir()
            facts = {"identity": {**data.identity, "code": key}, "inputs": {}, "built": {"started": started}}
            store.publish(lease, {**facts, "content": key})
            discard(lease.scratch)
    candidates, _ = find_candidates(plan, store)
    assert [one.kept["content"] for one in candidates] == [keys[order.index("2026-01-02")]]
