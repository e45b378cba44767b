"""B2: its choice of a cell and its claims, and the networks that its D_det comes from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robustfeatures.experiments import b2_transferring_examples as b2
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.study.study import read_study
from tests.experiments.two_pathways_rows import STUDIES, grid_rows, results


def test_b2_chooses_by_validation_and_keeps_every_cell() -> None:
    """The cell that is best on the test split is not the one that is best on the validation split."""
    rows = grid_rows(
        {
            b2.SELECTION: lambda decay, seed: 50 - abs(decay - 1e-3) * 1e4 + seed,
            "D": lambda decay, seed: 20 + decay * 1e4 + seed,
            "D_shift": lambda decay, seed: 10.0 + seed,
        },
        rows=tuple(b2.SETS),
    )
    rows.loc[rows["augmentation"] != "none", "accuracy"] -= 5
    given = results(b2.Settings(grid="any"), evaluations=rows.assign(classes=10))
    table = b2.table(given)
    assert len(table) == 2 * 6 * 3
    chosen = table[table["chosen"] == "yes"]
    assert set(zip(chosen["augmentation"], chosen["weight_decay"], strict=True)) == {("no", 1e-3)}
    assert set(table["augmentation"]) == {"yes", "no"}
    transfers, does_not, _, nothing = b2.claims(given)
    assert list(transfers.values) == pytest.approx([20.0] * 3)
    assert list(does_not.values) == pytest.approx([-20.0] * 3)
    # Without non-robust features nine classes would share what is left of D_shift: 90 to 88 %. D has 30 to 32 %.
    assert list(nothing.values) == pytest.approx([10 - 30, 89 / 9 - 31, 88 / 9 - 32])


@pytest.mark.parametrize(
    ("on_d", "on_d_shift", "verdict"),
    [
        (4.0, 60.0, "held"),
        (14.9, 60.0, "contradicted"),
        # A little of both kinds: the mean of the other eight classes is 8.1 %.
        (18.5, 27.0, "contradicted"),
        # What the network has learned are non-robust features.
        (60.0, 4.0, "contradicted"),
        # It has learned nothing.
        (10.0, 10.0, "not tested"),
    ],
)
def test_b2_robust_features_leave_less_than_chance_for_d(on_d: float, on_d_shift: float, verdict: str) -> None:
    """Robust features answer 60 % of D_shift; 4.4 % are left for each other class, and the paper has 2.6 to 4.2 %."""
    rows = grid_rows(
        {
            b2.SELECTION: lambda decay, seed: 50.0,
            "D": lambda decay, seed: on_d + seed / 100,
            "D_shift": lambda decay, seed: on_d_shift,
        },
        rows=tuple(b2.SETS),
    )
    *_, more, nothing = b2.claims(results(b2.Settings(grid="any"), evaluations=rows.assign(classes=10)))
    assert nothing.judge()["verdict"] == verdict
    # Both parts have the same accuracies here.
    assert more.judge()["verdict"] == ("undecided" if max(on_d, on_d_shift) >= 19 else "not tested")
    *_, nothing = b2.claims(results(b2.Settings(grid="any"), evaluations=rows.assign(classes=2)))
    assert nothing.judge()["verdict"] == "not tested"


def test_d_det_of_the_full_study_is_made_with_networks_trained_on_all_of_d() -> None:
    study = replace(read_study(STUDIES / "two-pathways-cifar10.yaml"), seeds=(0,))
    pieces = Pieces(study)
    source = pieces.derived("D_det", 0).inputs["source"]
    assert source.inputs["data"] is pieces.data("whole")
    assert pieces.data("whole").parameters.validation is None  # type: ignore[union-attr]
    # CINIC-10 has a validation split of its own.
    cinic = pieces.derived("D_det", 0, data="CINIC-10").inputs["source"]
    assert cinic.inputs["data"] is pieces.data("CINIC-10")
    evaluation = b2.needs(pieces, b2.Settings(grid="table-4"))[0].recipe
    half = evaluation.inputs["model"].inputs["data"]
    assert half.inputs["source"].inputs["data"] is pieces.data("whole")
