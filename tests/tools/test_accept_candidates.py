"""Which kept payloads `robustfeatures accept` lets stand for other code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.run.job import Environment
from robustfeatures.pipeline.store.store import Store, discard
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.yaml import read_yaml
from robustfeatures.theory import gaussian_likelihood, ignored_feature
from robustfeatures.tools.accept import Candidate, _make_again, choose_sample, find_candidates
from tests.conftest import REPOSITORY
from tests.experiments.test_toy_models import SETTINGS
from tests.in_process import built_study
from tests.tools.workplace import Workplace, workplace_of


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


@pytest.mark.parametrize("fast_path", [True, False, None])
def test_a_payload_is_made_again_as_the_kept_one_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_path: bool | None
) -> None:
    """Whatever is the default now. Earlier versions did not record the fast path."""
    seen: list[Environment] = []

    def stop(*arguments: Any) -> None:
        seen.extend(each for each in arguments if isinstance(each, Environment))
        raise UserError("seen")

    monkeypatch.setattr("robustfeatures.tools.accept.compute", stop)
    plan = unfold(Config(study="smoke"), REPOSITORY / "workflow" / "studies")
    (data,) = (recipe for recipe in plan.recipes.values() if recipe.stage.name == "data")
    built = {"device": "cuda: NVIDIA H200", "threads": 3, "gpu_fast_path": fast_path}
    kept = {"built": {name: value for name, value in built.items() if value is not None}}
    with pytest.raises(UserError, match="seen"):
        _make_again(Candidate(data, "a" * 16, kept, {}), Store(tmp_path / "store"), tmp_path)
    (made,) = seen
    assert (made.device, made.threads, made.gpu_fast_path) == ("cuda", 3, fast_path is not False)


def make_candidates(folder: Path) -> list[Candidate]:
    """All results of the smoke study with three seeds, as if other code had made them; later ones cost more."""
    study = read_yaml(REPOSITORY / "workflow" / "studies" / "smoke.yaml") | {"seeds": [0, 1, 2]}
    (folder / "smoke.yaml").write_text(yaml.safe_dump(study))
    recipes = unfold(Config(study="smoke"), folder).recipes.values()
    return [
        Candidate(
            recipe, recipe.digest, {"identity": {**recipe.identity, "code": "old"}, "built": {"seconds": cost}}, {}
        )
        for cost, recipe in enumerate(recipes)
    ]


def test_the_sample_has_every_code_and_rather_other_families_than_other_seeds(tmp_path: Path) -> None:
    candidates = make_candidates(tmp_path)
    codes = {(one.recipe.stage.name, one.recipe.identity["code"]) for one in candidates}
    assert [one for one in candidates if one in choose_sample(candidates, 1)] == choose_sample(candidates, 1)
    assert Counter((one.recipe.stage.name, one.recipe.identity["code"]) for one in choose_sample(candidates, 1)) == (
        dict.fromkeys(codes, 1)
    )
    for stage, code in codes:
        of_code = [one for one in candidates if (one.recipe.stage.name, one.recipe.identity["code"]) == (stage, code)]
        families = {one.recipe.family for one in choose_sample(of_code, 3)}
        assert len(families) == min(3, len({one.recipe.family for one in of_code}))
        assert len(choose_sample(of_code, 3)) == min(3, len(of_code))
    assert choose_sample(candidates, None) == candidates


def test_results_that_two_versions_made_are_two_of_a_sample(tmp_path: Path) -> None:
    first, second, *_ = (one for one in make_candidates(tmp_path) if one.recipe.family == "digits-standard")
    earlier = Candidate(
        second.recipe, second.key, {**second.kept, "identity": {**second.kept["identity"], "code": "a"}}, {}
    )
    assert choose_sample([first, second], 1) == [first]
    assert choose_sample([first, earlier], 1) == [first, earlier]


@pytest.fixture(scope="module")
def built_toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two toy models of different science, each with three seeds."""
    folder = tmp_path_factory.mktemp("toys")
    experiments = {name: SETTINGS[name] for name in ("A12", "A13")}
    built_study(folder, {"title": "Toys", "seeds": [0, 1, 2], "experiments": experiments})
    return folder


@pytest.fixture
def toys(built_toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workplace]:
    with workplace_of(built_toys, tmp_path, monkeypatch) as found:
        yield found


@pytest.mark.parametrize("changed", [gaussian_likelihood, ignored_feature])
def test_a_change_of_one_science_is_not_hidden_by_cheaper_results_of_another(
    toys: Workplace, monkeypatch: pytest.MonkeyPatch, changed: object
) -> None:
    measure = changed.measure  # type: ignore[attr-defined]
    monkeypatch.setattr(
        changed, "measure", lambda *given, **named: [{**row, "new": 1} for row in measure(*given, **named)]
    )
    for name in ("gaussian_likelihood", "ignored_feature"):
        toys.refactor(f"theory/{name}.py")
    with pytest.raises(UserError, match=r"^measurement/.* has other content .* nothing was accepted$"):
        toys.accept(check=3)
    assert toys.records() == []
