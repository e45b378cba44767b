"""C7: its needs, and its table, figure and claims from known rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

import robustfeatures.experiments.c7_linear_classifiers as c7
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.study.study import Study
from robustfeatures.training.settings import Training
from tests.experiments.known_rows import SEEDS, jitter, make_results, verdicts, with_published

# Clean accuracy, and accuracy under the attack that is clipped and that is not, by training, solver and pixels.
Accuracies = Mapping[tuple[str, str, int], tuple[float, float, float]]
UNCLIPPED = "adversarial, not clipped"
IMAGES = 1000
INVENTED: Accuracies = {
    ("standard", c7.TRAINED, 2): (98.0, 10.0, 5.0),
    ("adversarial", c7.TRAINED, 2): (94.0, 75.0, 60.0),
    ("standard", c7.EXACT, 1): (90.0, 80.0, 78.0),
    ("standard", c7.EXACT, 2): (98.5, 9.0, 4.0),
    ("adversarial", c7.EXACT, 2): (94.5, 76.0, 61.0),
    (UNCLIPPED, c7.EXACT, 2): (92.0, 74.0, 70.0),
}


def linear_rows(accuracies: Accuracies = INVENTED, *, l1_norms: tuple[float, float] = (4.0, 1.0)) -> pd.DataFrame:
    """Two pixels, of which the second is weakly correlated: standard training uses both, adversarial the first.

    Adversarial training that is clipped keeps a twentieth of its weight there. `l1_norms`: standard, adversarial. Each
    accuracy on the train split is half of that on the test split, so that no claim can take the one for the other.
    """
    shares = {"standard": (0.25, 0.75), "adversarial": (0.95, 0.05), UNCLIPPED: (1.0, 0.0)}
    rows = []
    for (training, solver, pixels), found in accuracies.items():
        l1_norm = l1_norms[training != "standard"]
        for seed in SEEDS if solver == c7.TRAINED else SEEDS[:1]:
            common = {"row": solver, "seed": seed, "training": training, "solver": solver, "pixels": pixels}
            common["total"] = IMAGES
            for split in ("train", "test"):
                for attack, value in zip(("none", "clipped", "not clipped"), found, strict=True):
                    radius = 0.0 if attack == "none" else 0.2
                    measured = {"quantity": "accuracy", "split": split, "eps": radius, "attack": attack}
                    shown = (value + jitter(seed)) / (200 if split == "train" else 100)
                    rows.append({**common, **measured, "value": shown, "pixel": -1})
            about = {"split": "train", "eps": 0.0, "attack": ""}
            for quantity in ("l1_norm", "objective"):
                value = l1_norm + jitter(seed)
                rows.append({**common, **about, "quantity": quantity, "value": value, "pixel": -1})
            for pixel, share in enumerate(shares[training]):
                rows.append({**common, **about, "quantity": "weight", "value": l1_norm * share, "pixel": pixel})
    for pixel, value in enumerate((0.5, 0.1)):
        known = {"row": c7.EXACT, "seed": 0, "training": "", "solver": "", "pixels": 2, "quantity": "correlation"}
        rows.append({**known, "split": "train", "eps": 0.0, "attack": "", "value": value, "pixel": pixel})
    return pd.DataFrame(rows)


LINEAR = c7.Settings(data="two", architecture="linear", training="linear", eps=0.2, fractions=(0.5,))


def test_c7() -> None:
    found = with_published(c7.EXPERIMENT, "MNIST", LINEAR, measurements=linear_rows())
    table = c7.table(found)
    assert len(table) == 5 * 2 * 3
    printed = table[table["solver"] == c7.TRAINED].set_index(["training", "split", "attack"])
    assert printed.loc[("standard", "test", "clipped"), "difference_accuracy"] == pytest.approx(10.0 - 14.95)
    assert printed.loc[("adversarial", "train", "none"), "published_l1_norm"] == 13.69
    assert printed["published_accuracy"].notna().sum() == 8
    assert table[table["solver"] == c7.EXACT]["published_accuracy"].isna().all()
    claims = c7.claims(found)
    clipped, unclipped = claims[:8], claims[8:]
    # Clipped, the robust classifier keeps five percent of its weight on the weak pixel.
    # Claims on few pixels compare exact solutions alone. These have no seeds, and one value has no interval.
    assert verdicts(clipped) == ["held"] * 4 + ["contradicted"] + ["not tested"] * 3
    assert verdicts(unclipped) == ["held"] * 4 + ["not tested"] * 4
    assert [{claim.setting for claim in part} for part in (clipped, unclipped)] == [
        {"adversary clipped to [0, 1]"},
        {"adversary not clipped"},
    ]
    assert list(clipped[3].values) == pytest.approx([70.0] * 3)
    assert list(clipped[4].values) == pytest.approx([-4.0] * 3)
    assert list(unclipped[4].values) == pytest.approx([1.0])
    # Clean, clipped and not clipped: 90, 80 and 78 on one pixel, 98.5, 9 and 4 on both.
    values = [[list(claim.values) for claim in part[5:]] for part in (clipped, unclipped)]
    np.testing.assert_allclose(values[0], [[98.5 - 90], [80 - 9], [80 - 76]])
    np.testing.assert_allclose(values[1], [[98.5 - 90], [78 - 4], [78 - 70]])


def test_c7_is_as_sure_as_its_test_images() -> None:
    """The same 98 and 94 % in all seeds: four of 100 images are no difference, 40 of 1000 are one."""
    for images, expected in ((100, "held"), (90, "undecided")):
        rows = linear_rows().assign(total=images)
        is_accuracy = rows["quantity"] == "accuracy"
        rows.loc[is_accuracy, "value"] = rows.loc[is_accuracy, "value"].round(2)
        clean, *_ = c7.claims(make_results(LINEAR, measurements=rows))
        assert len(set(clean.values)) == 1
        assert clean.judge()["verdict"] == expected


def test_c7_without_weak_pixels_nothing_is_said_of_their_weights() -> None:
    """No pixel has a correlation below eps, so no share of the weights could be on such a pixel."""
    rows = linear_rows()
    rows.loc[rows["quantity"] == "correlation", "value"] = 0.5
    claims = c7.claims(make_results(LINEAR, measurements=rows))
    on_weak = [claim for claim in claims if "correlation is below eps" in f"{claim.sentence} {claim.quantity}"]
    assert len(on_weak) == 4
    assert verdicts(on_weak) == ["not tested"] * 4


def test_c7_chooses_the_pixels_on_training_images() -> None:
    """Where both pixels are best on training images, the claims on few pixels compare them with themselves."""
    rows = linear_rows()
    exact = (rows["training"] == "standard") & (rows["solver"] == c7.EXACT)
    trained_on = exact & (rows["quantity"] == "accuracy") & (rows["split"] == "train")
    rows.loc[trained_on, "value"] = np.where(rows.loc[trained_on, "pixels"] == 1, 0.1, 0.6)
    claims = c7.claims(make_results(LINEAR, measurements=rows))
    for part in (claims[:8], claims[8:]):
        more_accurate, less_robust, _ = part[5:]
        assert list(more_accurate.values) == list(less_robust.values) == [0.0]


def test_c7_draws_exact_solutions_beside_exact_ones() -> None:
    *_, few = c7.figure(make_results(LINEAR, measurements=linear_rows())).axes
    levels = [
        line.get_ydata()[0] for line in few.lines if len(set(line.get_xdata())) == 2 and line.get_marker() == "None"
    ]
    # The exact adversarial classifiers on both pixels, each under its attack; clean is that of the clipped one.
    np.testing.assert_allclose(levels, [94.5 - 0.1, 76 - 0.1, 70 - 0.1])
    named = {line.get_label() for line in few.lines if not str(line.get_label()).startswith("_")}
    assert all("exact" in str(name) for name in named)


def test_c7_holds_on_the_numbers_of_table_5() -> None:
    """Standard and adversarial training as printed, whichever adversary the paper's is."""
    printed = read_published(c7.EXPERIMENT, "MNIST")
    assert printed is not None
    tested = pd.DataFrame(printed["rows"]).query("split == 'test'").set_index(["training", "attack"])
    trainings = ("standard", "adversarial")
    standard, adversarial = (
        (row["none"], row["clipped"], row["clipped"])
        for row in (tested.loc[training]["accuracy"] for training in trainings)
    )
    measured = linear_rows(
        {**INVENTED, ("standard", c7.TRAINED, 2): standard}
        | {("adversarial", c7.TRAINED, 2): adversarial, (UNCLIPPED, c7.EXACT, 2): adversarial},
        l1_norms=tuple(tested.loc[training]["l1_norm"].iloc[0] for training in trainings),  # type: ignore[arg-type]
    )
    found = make_results(LINEAR, measurements=measured)
    claims = [claim for claim in c7.claims(found) if claim.source.endswith("Table 5")]
    assert verdicts(claims) == ["held"] * 6
    assert claims[0].values[1] == pytest.approx(92.10 - 70.05)
    assert claims[1].values[1] == pytest.approx(74.65 - 14.95)
    assert claims[2].values[1] == pytest.approx(100 * (1 - 13.69 / 41.08))


def test_c7_needs_weight_decay() -> None:
    training = Training(epochs=1, batch_size=1, learning_rate=0.1)
    study = Study(title="t", seeds=(0,), experiments={}, training={"plain": training})
    settings = c7.Settings(data="two", architecture="linear", training="plain", eps=0.2, fractions=(0.5,))
    with pytest.raises(UserError, match=r"training\.plain\.weight_decay: must be above 0"):
        c7.needs(Pieces(study), settings)
