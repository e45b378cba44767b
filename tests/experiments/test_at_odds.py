"""C1 to C6: their needs, and their tables, figures and claims from known rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import robustfeatures.experiments.c1_training_set_size as c1
import robustfeatures.experiments.c2_training_radius as c2
import robustfeatures.experiments.c3_half_half_training as c3
import robustfeatures.experiments.c4_loss_gradients as c4
import robustfeatures.experiments.c5_large_radius_examples as c5
import robustfeatures.experiments.c6_interpolations as c6
from robustfeatures.data.dataset import ImageDataset
from robustfeatures.errors import UserError
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.perception import choose_images, colour_blue_to_yellow
from robustfeatures.experiments.shared.units import CORRELATIONS
from robustfeatures.pipeline.plan.pieces import Pieces
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.report.building import read_published
from robustfeatures.pipeline.store.datasets import write_dataset
from robustfeatures.pipeline.study.config import Config
from robustfeatures.pipeline.study.study import Study
from robustfeatures.training.settings import Model
from tests.conftest import REPOSITORY
from tests.experiments.known_rows import SEEDS, complete, jitter, make_results, verdicts, with_published

STUDIES = REPOSITORY / "workflow" / "studies"
NETWORKS = {"standard": 0.0, "l2": 0.2, "linf": 0.3}
ENLARGED: dict[str, Any] = {
    "eps": {"l2": 1.0, "linf": 0.1},
    "images": 4,
    "references": 10,
    "shown": 3,
    "large_eps": {"l2": 3.0, "linf": 0.5},
}


@pytest.fixture
def payload(tmp_path: Path) -> Callable[..., Path]:
    """Writes a data set of six images of two classes as a payload."""

    def write(name: str, split: str, *, channels: int = 1, value: float = 0.25) -> Path:
        images = np.full((6, channels, 4, 4), value, dtype=np.float32)
        labels = np.array([0, 0, 0, 1, 1, 1])
        dataset = ImageDataset(images, labels, {"source_index": np.arange(6)}, ("cat", "dog"))
        write_dataset(tmp_path / f"{name}.zarr", {split: dataset})
        return tmp_path / f"{name}.zarr"

    return write


def clean(row: str, seed: int, accuracy: float, **columns: Any) -> dict[str, Any]:
    """The evaluation of one network on unchanged images."""
    return {"row": row, "seed": seed, "eps": 0.0, "accuracy": accuracy, **columns}


def test_c1_measures_where_robust_training_stops_helping(payload: Callable[..., Path]) -> None:
    """Gains of 4, 2 and -2 points on 1, 2 and 6 images: the gain ends halfway, in logarithms, between 2 and 6."""
    settings = c1.Settings(eps={"l2": (0.5,)}, sizes=(c1.Size(samples=1, epochs=9), c1.Size(samples=2, epochs=9)))
    rows: list[dict[str, Any]] = []
    for seed in SEEDS:
        for samples, plain, gain in ((c1.WHOLE, 90.0, -2.0), (1, 50.0, 4.0), (2, 70.0, 2.0)):
            for eps, accuracy in ((0.0, plain), (0.5, plain + gain + jitter(seed))):
                rows.append(clean(f"{eps} {samples}", seed, accuracy, norm="L2", eps_train=eps, samples=samples))
    found = make_results(settings, evaluations=pd.DataFrame(rows), payloads={("D", 0): payload("D", "train")})
    table = c1.table(found)
    assert list(table["samples"]) == [1, 2, 6, 1, 2, 6]
    robust = table[table["eps_train"] == 0.5]
    assert list(robust["accuracy"]) == [54.0, 72.0, 88.0]
    middle = 12**0.5
    assert robust["crossing"].to_list() == pytest.approx([middle] * 3, rel=0.01)
    assert (robust["crossing_low"] < middle).all()
    assert (robust["crossing_high"] > middle).all()
    assert (robust["crossing_seeds"] == 3).all()
    assert table[table["eps_train"] == 0]["crossing"].isna().all()
    assert verdicts(c1.claims(found)) == ["held", "held", "held"]
    assert {claim.setting for claim in c1.claims(found)} == {"L2"}
    axes, strip = c1.figure(found).axes
    assert [text.get_text() for text in strip.texts] == ["3.46"]
    assert axes.get_xscale() == "log"
    # The sizes are the ticks, also of the strip, which has the labels.
    assert list(axes.get_xticks()) == list(strip.get_xticks()) == [1, 2, 6]
    assert [label.get_text() for label in strip.get_xticklabels()] == ["1", "2", "6"]
    assert not len(strip.get_xticks(minor=True))
    assert [line.get_label() for line in axes.lines if not str(line.get_label()).startswith("_")] == [
        "standard",
        "eps 0.5",
    ]


@pytest.mark.parametrize(
    ("constant", "verdict"),
    [
        ((c1.WHOLE, 0.5), ["held", "not tested", "not tested"]),
        ((1, 0.0), ["not tested", "held", "not tested"]),
        # On a number of images that no sentence is about.
        ((2, 0.5), ["held"] * 3),
    ],
)
def test_c1_compares_networks_that_learned_something(
    payload: Callable[..., Path], constant: tuple[int | str, float], verdict: list[str]
) -> None:
    settings = c1.Settings(eps={"l2": (0.5,)}, sizes=(c1.Size(samples=1, epochs=9), c1.Size(samples=2, epochs=9)))
    accuracy = {(c1.WHOLE, 0.0): 90.0, (c1.WHOLE, 0.5): 88.0, (1, 0.0): 50.0, (1, 0.5): 54.0, (2, 0.0): 70.0}
    accuracy |= {(2, 0.5): 72.0, constant: 10.0}
    rows = [
        clean(f"{eps} {samples}", seed, value + jitter(seed) * eps, norm="L2", eps_train=eps, samples=samples)
        for (samples, eps), value in accuracy.items()
        for seed in SEEDS
    ]
    found = make_results(settings, evaluations=pd.DataFrame(rows), payloads={("D", 0): payload("D", "train")})
    assert verdicts(c1.claims(found)) == verdict


def transferred(seed: int, *, examples: int, noise: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Of 70 images that both networks get right, the examples that fool both. Without noise the second has 80 %."""
    counts = {"images": 100, "both_right": 70, "fooled": 50, "transferred": examples}
    measured = {"row": c1.TRANSFER, "seed": seed, "target": "second", "attack": "untargeted", **counts}
    accuracies = [(0.0, 80.0), (0.1, noise + jitter(seed))]
    return measured, [{"row": c1.TRANSFER, "seed": seed, "eps": eps, "accuracy": found} for eps, found in accuracies]


@pytest.mark.parametrize(("examples", "noise", "expected"), [(20, 78.0, "held"), (1, 60.0, "contradicted")])
def test_c1_transfer_is_more_than_noise_does(
    payload: Callable[..., Path], examples: int, noise: float, expected: str
) -> None:
    transfer = c1.Transfer(samples=3, epochs=1, norm="linf", eps=0.1)
    settings = c1.Settings(eps={"l2": (0.5,)}, sizes=(c1.Size(samples=1, epochs=9),), transfer=transfer)
    rows = [
        clean(f"{eps} {samples}", seed, 90.0, norm="L2", eps_train=eps, samples=samples)
        for seed in SEEDS
        for samples in (c1.WHOLE, 1)
        for eps in (0.0, 0.5)
    ]
    found = [transferred(seed, examples=examples, noise=noise) for seed in SEEDS]
    measured = make_results(
        settings,
        measurements=pd.DataFrame([counts for counts, _ in found]),
        evaluations=pd.DataFrame([*rows, *(entry for _, entries in found for entry in entries)]),
        payloads={("D", 0): payload("D", "train")},
    )
    (claim,) = c1.measured_claims(measured)
    assert verdicts(c1.claims(measured)) == ["undecided"] * 3
    assert "on 1 images" in c1.claims(measured)[0].quantity
    expected_values = [100 * examples / 70 - 100 * (1 - (noise + jitter(seed)) / 80) for seed in SEEDS]
    assert list(claim.values) == pytest.approx(expected_values)
    assert verdicts([claim]) == [expected]


def test_c1_transfer_is_between_networks_without_a_common_image() -> None:
    plan = unfold(Config(study="digits-full"), STUDIES)
    (recipe, *others) = [
        each for each in plan.recipes.values() if each.family.endswith("-538-at-odds-against-standard-transfer")
    ]
    assert len(others) == 3
    first, second = recipe.inputs["source"], recipe.inputs["target"]
    drawn, rest = (network.inputs["data"].parameters.operations[-1] for network in (first, second))  # type: ignore[union-attr]
    assert drawn == replace(rest, rest=False)
    assert rest.rest  # type: ignore[union-attr]
    assert first.parameters.seed != second.parameters.seed  # type: ignore[union-attr]


def declining(accuracies: Mapping[str, Mapping[float, float]]) -> Results:
    """Results of C2 and C1 with these accuracies by norm and radius, a little different in every seed."""
    rows = [
        clean(f"{norm} {eps}", seed, accuracy + jitter(seed), norm=norm, eps_train=eps, samples=c1.WHOLE)
        for seed in SEEDS
        for norm, line in accuracies.items()
        for eps, accuracy in line.items()
    ]
    return make_results(c2.Settings(eps={"linf": (0.1, 0.2)}), evaluations=pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([99, 98, 97], ["held", "held"]),
        # One radius of three better than the one before leaves a decline steady, one of two does not.
        ([99, 99.1, 98, 97], ["held", "held"]),
        ([99, 99.1, 98], ["held", "undecided"]),
        ([99, 95, 96, 97, 98, 98.5], ["held", "contradicted"]),
        ([97, 98, 99], ["contradicted", "contradicted"]),
        ([98, 98, 98], ["undecided", "contradicted"]),
    ],
)
def test_c2_asks_for_a_steady_decline(accuracies: list[float], expected: list[str]) -> None:
    found = declining({"Linf": {0.1 * number: accuracy for number, accuracy in enumerate(accuracies)}})
    assert verdicts(c2.claims(found)) == expected
    assert {claim.setting for claim in c2.claims(found)} == {"Linf"}
    assert list(c2.table(found)["accuracy"]) == accuracies
    assert [axes.get_title() for axes in c2.figure(found).axes] == ["Linf"]


@pytest.mark.parametrize("setting", ["MNIST", "CIFAR-10"])
def test_c1_and_c2_hold_on_the_numbers_of_table_4(payload: Callable[..., Path], setting: str) -> None:
    """Its columns of accuracy on clean images after standard and after robust training, by radius."""
    printed = read_published(c3.EXPERIMENT, setting)
    assert printed is not None
    clean = [row for row in printed["rows"] if row["under"] == "no attack"]
    lines: dict[str, dict[float, float]] = {
        norm: {0.0: next(row["accuracy"] for row in clean if row["row"] == "standard")}
        | {row["eps_train"]: row["accuracy"] for row in clean if row["row"] == "robust" and row["norm"] == norm}
        for norm in ("L2", "Linf")
    }
    assert all(len(line) == 4 for line in lines.values())
    found = declining(lines)
    assert verdicts(c2.claims(found)) == ["held"] * 4
    assert [claim.bounds for claim in c2.claims(found) if "correlation" in claim.quantity] == [CORRELATIONS] * 2
    settings = c1.Settings(eps={"l2": (0.5,)}, sizes=(c1.Size(samples=1, epochs=9),))
    of_sizes = replace(found, settings=settings, payloads={("D", 0): payload("D", "train")})
    lowered = [claim for claim in c1.claims(of_sizes) if claim.sentence.startswith("With all training images")]
    assert verdicts(lowered) == ["held"] * 2


RADII: dict[str, dict[str, tuple[float, ...]]] = {
    "MNIST": {"l2": (0.5, 1.5, 2.5), "linf": (0.1, 0.2, 0.3)},
    "CIFAR-10": {"l2": (20 / 255, 80 / 255, 320 / 255), "linf": (2 / 255, 4 / 255, 8 / 255)},
}


@pytest.mark.parametrize("setting", list(RADII))
def test_c3_sets_every_cell_of_table_4_beside_its_own(setting: str) -> None:
    """Rows that measure what the paper prints differ nowhere, whatever digits their radii have; its claims hold."""
    printed = read_published(c3.EXPERIMENT, setting)
    assert printed is not None
    names = {"L2": "l2", "Linf": "linf"}
    rows = [
        {**row, "seed": seed, "eps": eps if row["under"] == "attack" else 0.0, "eps_train": c3.round_eps(eps)}
        | {"accuracy": row["accuracy"] + jitter(seed)}
        for row in printed["rows"]
        for eps in RADII[setting][names[row["norm"]]]
        if c3.round_eps(eps) == row["eps_train"]
        for seed in SEEDS
    ]
    evaluations = pd.DataFrame(rows).drop(columns="under")
    settings = c3.Settings(eps=RADII[setting])  # type: ignore[arg-type]
    found = with_published(c3.EXPERIMENT, setting, settings, evaluations=evaluations)
    table = c3.table(found)
    assert len(table) == 2 * 3 * 3 * 2
    assert list(table["difference_accuracy"]) == pytest.approx([0.0] * 36, abs=1e-9)
    assert verdicts(c3.claims(found)) == ["held"] * 7
    assert [claim.bounds for claim in c3.claims(found) if "correlation" in claim.quantity] == [CORRELATIONS]
    assert len(c3.figure(found).axes[0].containers) >= 6
    few = evaluations[evaluations["eps_train"] == c3.round_eps(RADII[setting]["l2"][0])]
    assert len(c3.claims(replace(found, evaluations=complete(few)))) == 3


def test_larger_values_are_lighter() -> None:
    grey = np.linspace(0, 1, 32, dtype=np.float32).reshape(1, 1, 1, 32)
    red, green, blue = colour_blue_to_yellow(grey)[0, :, 0]
    # The weights of the grey that a printer makes of a colour (ITU-R BT.601).
    assert (np.diff(0.299 * red + 0.587 * green + 0.114 * blue) > 0).all()
    # The ends and the middle of matplotlib's published table of cividis.
    ends = [[red[place], green[place], blue[place]] for place in (0, -1)]
    np.testing.assert_allclose(ends, [[0.0, 0.135112, 0.304751], [0.995737, 0.909344, 0.217772]], atol=1e-6)
    middle = colour_blue_to_yellow(np.full((1, 1, 1, 1), 0.5, dtype=np.float32)).ravel()
    assert np.ptp(middle) < 0.02
    colours = np.zeros((1, 3, 1, 1), dtype=np.float32)
    assert colour_blue_to_yellow(colours) is colours


def test_the_images_shown_are_of_all_classes() -> None:
    labels = np.array([1, 1, 0, 2, 0, 1])
    dataset = ImageDataset(np.zeros((6, 1, 2, 2), np.float32), labels, {}, ("a", "b", "c"))
    assert choose_images(dataset, 3).tolist() == [0, 2, 3]
    assert choose_images(dataset, 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("channels", [1, 3])
def test_c4(payload: Callable[..., Path], channels: int) -> None:
    measurements = pd.DataFrame(
        {"row": "gradients", "model": model, "seed": seed, "image": image, "alignment": value + jitter(seed)}
        | {"low_frequency": value + jitter(seed), "density": 0.9 - value + jitter(seed) / 10}
        for model, value in NETWORKS.items()
        for seed in SEEDS
        for image in range(2)
    )
    payloads = {(row, 0): payload(row, "test", channels=channels) for row in ("original", *NETWORKS)}
    settings = c4.Settings(**{name: value for name, value in ENLARGED.items() if name != "large_eps"})
    found = make_results(settings, measurements=measurements, payloads=payloads)
    assert list(c4.table(found)["alignment"]) == pytest.approx(list(NETWORKS.values()))
    # The jitter of a seed is that of all its networks, so the differences have none.
    assert verdicts(c4.claims(found)) == ["held"] * 5
    texts = [text.get_text() for text in c4.figure(found).axes[0].texts]
    assert {"original", "standard", "L2-trained", "Linf-trained", "cat", "dog"} <= set(texts)
    # The gradients of a network that ended at a constant are 0 and have no direction.
    constant = measurements["model"] == "linf"
    measurements.loc[constant, ["alignment", "low_frequency", "density"]] = np.nan
    dead = make_results(settings, measurements=measurements, payloads=payloads)
    assert set(verdicts(c4.claims(dead))) == {"held", "not tested"}


# Examples in Linf are twice as aligned as those in L2.
SCALES = {"l2": 1, "linf": 2}


def ways(norms: Sequence[str]) -> pd.DataFrame:
    """Six images, of which the last three stay in their class. Low frequencies hold half as much as the alignment."""
    return pd.DataFrame(
        {"row": "ways", "norm": norm, "model": model, "seed": seed, "image": image, "label": 0}
        | {"reached": int(image < 3), "low_frequency": value * SCALES[norm] / 2}
        | {"alignment": value * SCALES[norm] if image < 3 else np.nan}
        | {"width": value + jitter(seed) if image < 3 else np.nan, "detour": 0.0 if image < 3 else np.nan}
        for norm in norms
        for model, value in NETWORKS.items()
        for seed in SEEDS
        for image in range(6)
    )


def test_c5(payload: Callable[..., Path]) -> None:
    payloads = {("original", 0): payload("original", "test")}
    payloads |= {
        (f"{norm} {model}", 0): payload(f"{norm}{model}", "test") for norm in ("l2", "linf") for model in NETWORKS
    }
    found = make_results(c5.Settings(**ENLARGED), measurements=ways(["l2", "linf"]), payloads=payloads)
    table = c5.table(found)
    assert list(table["norm"]) == ["L2"] * 3 + ["Linf"] * 3
    assert list(table["changed"]) == [50.0] * 6
    # Images that stay in their class have no alignment and do not enter the mean.
    assert list(table["alignment"]) == pytest.approx([0.0, 0.2, 0.3, 0.0, 0.4, 0.6])
    claims = c5.claims(found)
    assert verdicts(claims) == ["held"] * 8
    # Alignment and low frequencies in turns, of the L2- and the Linf-trained network, on L2 and on Linf examples.
    assert [np.mean(claim.values) for claim in claims] == pytest.approx([20, 10, 30, 15, 40, 20, 60, 30])
    texts = [text.get_text() for text in c5.figure(found).axes[0].texts]
    assert {"L2 3", "Linf 0.5"} <= set(texts)
    # No image leaves its class.
    nothing = ways(["l2", "linf"])
    nothing.loc[nothing["model"] == "standard", ["reached", "alignment"]] = (0, np.nan)
    of_alignment = c5.claims(make_results(c5.Settings(**ENLARGED), measurements=nothing, payloads=payloads))[::2]
    assert set(verdicts(of_alignment)) == {"not tested"}


def test_c6(payload: Callable[..., Path]) -> None:
    payloads = {
        (name, 0): payload(name, "test", value=0.1 * number) for number, name in enumerate(["original", *NETWORKS])
    }
    found = make_results(c6.Settings(**ENLARGED), measurements=ways(["l2"]).drop(columns="norm"), payloads=payloads)
    assert list(c6.table(found)["width"]) == pytest.approx([0.0, 0.2, 0.3])
    assert verdicts(c6.claims(found)) == ["held", "held"]
    nothing = ways(["l2"]).drop(columns="norm").assign(width=np.nan, detour=np.nan)
    unmoved = make_results(c6.Settings(**ENLARGED), measurements=nothing, payloads=payloads)
    assert verdicts(c6.claims(unmoved)) == ["not tested"] * 2
    assert c6.figure(found).axes
    missing = c6.Settings(**{**ENLARGED, "norm": "linf", "large_eps": {"l2": 3.0}})
    with pytest.raises(UserError, match=r"C6\.large_eps: 'linf' is missing"):
        c6.needs(Pieces(Study(title="t", seeds=(0,), experiments={})), missing)


@pytest.mark.parametrize(
    ("study", "eps"),
    [
        ("at-odds-mnist", {0.1, 0.2, 0.3, 0.5, 1.5, 2.5}),
        ("at-odds-cifar10", {0.0078, 0.0157, 0.0314, 0.0784, 0.3137, 1.2549}),
        ("at-odds-restricted-imagenet", {0.005, 1.0}),
        ("digits-full", {1.0, 1.5, 0.1, 0.3}),
    ],
)
def test_studies_train_at_the_radii_of_table_4(study: str, eps: set[float]) -> None:
    plan = unfold(Config(study=study), STUDIES)
    trained = [
        recipe.parameters.training
        for recipe in plan.recipes.values()
        if isinstance(recipe.parameters, Model) and "-against-" in recipe.label
    ]
    attacks = [training.adversary for training in trained if training.adversary is not None]
    assert all(attack.random_start for attack in attacks)
    half = {
        c3.round_eps(training.adversary.eps) for training in trained if training.natural == 0.5 and training.adversary
    }
    assert half == eps
    assert {c3.round_eps(attack.eps) for attack in attacks} >= eps
    shown = {view.parts[0].experiment.id for view in plan.views if view.kind == "figure"}
    assert {"C1", "C2", "C3", "C4", "C5", "C6"} <= shown
    assert ("C7" in shown) == (study in ("at-odds-mnist", "digits-full"))
