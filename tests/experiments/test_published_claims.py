"""Each claim on the numbers that its own paper prints, where it must come out held.

The numbers are those of `experiments/published/`, and others of the papers' texts, quoted here with their place.
A claim that they do not cover is listed with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from robustfeatures.experiments import a1_robust_and_nonrobust_sets as a1
from robustfeatures.experiments import a5_attack_steps as a5
from robustfeatures.experiments import a8_fresh_test_set as a8
from robustfeatures.experiments import a11_other_architectures as a11
from robustfeatures.experiments import b1_two_pathways as b1
from robustfeatures.experiments import b3_hyperparameters as b3
from robustfeatures.experiments import b5_cross_set_transfer as b5
from robustfeatures.experiments import c7_linear_classifiers as c7
from robustfeatures.experiments import c8_robustness_at_odds as c8
from robustfeatures.experiments import d3_feature_learning_accuracy as d3
from robustfeatures.experiments import d4_representation_attacks as d4
from robustfeatures.experiments import x1_robust_feature_leakage as x1
from robustfeatures.experiments import x2_learning_from_errors as x2
from robustfeatures.experiments.catalogue import experiment_modules, load_experiment
from robustfeatures.experiments.experiment import Results
from robustfeatures.experiments.shared.claims import Claim
from robustfeatures.pipeline.report.views.claims import UNLEARNED, judge
from robustfeatures.pipeline.study.checks import PUBLISHED
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.experiments.known_rows import DOGS, complete, make_results

CIFAR, IMAGENET, MNIST = "CIFAR-10", "Restricted ImageNet", "MNIST"

# Experiments of which the papers print no number that a claim reads.
NO_NUMBERS = {
    "A3": "Figures 3 and 13 are pictures",
    "A6": "Figure 10 is a picture; Table 9 prints the last epoch alone, and the claims read the whole curve",
    "A9": "Figure 12 is a picture",
    "A12": "theorems; tests/theory compares them with closed forms",
    "A13": "Figure 14 is a picture of a constructed problem, which tests/theory solves",
    "B2": "Figure 2 is a picture",
    "B4": "Figure 4 is a picture; the text says high, reasonable and fails",
    "B6": "theorems; tests/theory compares them with closed forms",
    "B7": "Table 1 and Figure 3 are an illustration without numbers",
    "C1": "Figures 1 and 6 are pictures",
    "C4": "Figures 2 and 10 are pictures",
    "C5": "Figures 3, 8 and 9 are pictures",
    "C6": "Figure 4 is a picture",
    "D1": "Figure 3 is a picture; theorems with constants that the text does not give",
    "D2": "propositions in the limit of large scales",
    "E1": "the slides show pictures alone",
    "E2": "the slides give orders of growth alone",
    "E3": "the slides show pictures alone",
    "E4": "the slides show pictures alone",
    "X3": "a control of ours",
    "X5": "the construction is described in words alone",
    "X6": "a control of ours",
}
# By experiment, words of a claim's sentence, setting or quantity, and why the paper's numbers do not cover it.
NOT_PRINTED: dict[str, dict[str, str]] = {
    "A4": {"D_R-images": "Table 8 prints one D_R, that from noise"},
    "B1": {
        "first epoch at which": "the early epochs are in Figure 1, a picture",
        "performance correlation": "the turning epochs are in Figure 1, a picture",
        "Validation accuracy": "pathway 1 ends close to 100 %, without a number",
        "close to 100 %": "close to 100 %, without a number",
    },
    "C7": {
        "correlation is below eps": "the weights are in Figure 5, a picture",
        "most robust on train": "the accuracies on few pixels are in Figure 5, a picture",
    },
    "C8": {
        "is tight": "no number; tests/theory compares the classifier x1 with the bound",
        "averaging classifier": "printed as inequalities, above 99 % and below 1 %",
        "Theorem 2.2": "printed as inequalities, above 99 % and below 1 %, and as p",
    },
    "D4": {
        "After adversarial training": "the cells of the adversarially trained network are lost in the text",
        "considerably less": "net of the success without attack, which the paper does not print",
    },
    "X1": {
        "features of D_det do not help": "Goh's number is not in the papers at hand",
        "one class in the whole ball": "the robustness of the features is a check of ours",
        "robustly useful": "the robustness of the features is a check of ours",
    },
}


class Case(NamedTuple):
    """The results of an experiment as its paper prints them, in one of the paper's settings."""

    experiment: str
    setting: str
    results: Results

    @property
    def name(self) -> str:
        return f"{self.experiment}, {self.setting}"


def printed(experiment: str) -> dict[str, pd.DataFrame]:
    """The rows that the paper prints of an experiment, by setting, as rows of one seed."""
    entries = read_yaml(PUBLISHED / f"{load_experiment(experiment).paper}.yaml")[experiment]
    return {
        entry["setting"]: pd.DataFrame(entry["rows"]).assign(seed=0, label_shift=0, chance=10.0) for entry in entries
    }


def on_relabelled_images(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(label_shift=rows["test_set"].eq("relabelled D").astype(int))


def number_of_steps() -> Results:
    """Appendix D.2: "plateaus at 48.27% for both PGD and CW-l2 (the value given in Figure 2)"."""
    rows, plateau = printed("A5")[CIFAR], 48.27
    # On the plateau half the steps leave as much.
    others = pd.DataFrame([{"under": a5.SWEEP, "steps": 1000}, {"under": a5.STUDY, "steps": 0}])
    others = others.assign(row="D_R-noise", eps=0.25, seed=0, accuracy=plateau)
    # Table 7 has the accuracy without attack.
    clean = pd.DataFrame([{"row": "D_R-noise", "under": a5.STUDY, "steps": 0, "eps": 0.0, "seed": 0, "accuracy": 84.1}])
    evaluations = pd.concat([rows, others, clean], ignore_index=True).assign(chance=10.0)
    return make_results(a5.Settings(starts=("noise",)), evaluations=evaluations)


def two_pathways() -> Results:
    """Section 4.2 prints pathway 2; Table 5 has the cells of both, for a ResNet-18."""
    rows, cells = printed("B1")[CIFAR], printed("B3")[CIFAR]
    chosen = {b1.PATHWAY_1: (0.1, 5e-4), b1.PATHWAY_2: (0.01, 0.0)}
    names = {"D": "non-robust", "D_shift": "robust"}
    for row, (rate, decay) in chosen.items():
        cell = cells[(cells["augmentation"] == "no") & (cells["learning_rate"] == rate)]
        cell = cell[cell["weight_decay"] == decay].assign(row=row, probe=lambda found: found["test_set"].map(names))
        rows = pd.concat([rows, cell[["row", "probe", "accuracy", "seed"]]], ignore_index=True)
    rows = rows.assign(pathway=rows["row"], variant="", epoch=120, network="itself", images=1, chance=10.0)
    tested = rows[(rows["row"] == b1.PATHWAY_2) & rows["probe"].isin(names.values())]
    tested = tested.assign(label_shift=(tested["probe"] == "robust").astype(int), eps=0.0)
    return make_results(b1.Settings(pathway_1="one", pathway_2="two"), tested, histories=rows)


def grid_of_hyperparameters() -> Results:
    rows = printed("B3")[CIFAR].assign(label_shift=lambda found: found["test_set"].map({"D": 0, "D_shift": 1}))
    augmented = rows["augmentation"].map({"yes": "crop_padding-4", "no": "none"})
    names = rows["augmentation"] + rows["learning_rate"].astype(str) + rows["weight_decay"].astype(str)
    evaluations = rows.assign(row=names, augmentation=augmented, eps=0.0)
    return make_results(b3.Settings(grid="g"), evaluations=evaluations)


def radius_of_training(rows: pd.DataFrame) -> Results:
    """Table 4: clean accuracy after standard training, which stands at radius 0, and after robust training."""
    clean = rows[rows["under"] == "no attack"]
    standard = clean[clean["row"] == "standard"].drop_duplicates("norm").assign(eps_train=0.0)
    found = pd.concat([standard, clean[clean["row"] == "robust"]])
    return make_results(evaluations=found.assign(row=found["norm"] + found["eps_train"].astype(str), eps=0.0))


def under_attack(rows: pd.DataFrame) -> Results:
    return make_results(evaluations=rows.assign(eps=rows["eps_train"].where(rows["under"] == "attack", 0.0)))


def linear_classifiers() -> Results:
    """Table 5, for either adversary, since the paper does not say whether its table's attack is clipped.

    The paper prints nothing on the weights or on few pixels, so all 784 pixels stand for those.
    """
    clipped = printed("C7")[MNIST].assign(pixels=784, row=c7.TRAINED, total=1920)
    unclipped = clipped[clipped["attack"] == c7.CLIPPED].assign(attack=c7.UNCLIPPED)
    rows = pd.concat([clipped, unclipped], ignore_index=True).assign(quantity="accuracy")
    accuracies = rows.assign(value=rows["accuracy"] / 100)
    # The exact solutions stand for the printed networks.
    exact = accuracies.assign(solver=c7.EXACT)
    robust = exact[exact["training"] == "adversarial"].assign(training=c7.ROBUST[c7.UNCLIPPED][0])
    lines: list[dict[str, Any]] = []
    for (training, solver), part in pd.concat([accuracies, exact, robust]).groupby(["training", "solver"]):
        same = {"row": solver, "seed": 0, "training": training, "solver": solver, "pixels": 784}
        lines.append({**same, "quantity": "l1_norm", "value": part["l1_norm"].iloc[0]})
        lines.append({**same, "quantity": "objective", "value": math.nan})
        lines.append({**same, "quantity": "weight", "pixel": 0, "value": math.nan})
    lines.append({"row": c7.EXACT, "seed": 0, "quantity": "correlation", "pixel": 0, "pixels": 784, "value": math.nan})
    settings = c7.Settings(data="D", architecture="linear", training="standard", eps=0.2, fractions=(0.1,))
    measured = pd.concat([accuracies, exact, robust, pd.DataFrame(lines)], ignore_index=True)
    return make_results(settings, measurements=measured.drop(columns=["accuracy", "l1_norm"]))


def robustness_at_odds() -> Results:
    """Section 2.1, footnote 1: accuracy of 99 % leaves at most 19 % of robust accuracy, of 96 % at most 76 %."""
    settings = c8.Settings()
    radius = 2 * settings.signal / settings.dimension**0.5
    rows = [
        {"classifier": "mixture", "source": "exact", "seed": 0, "eps": radius, "clean": clean, "robust": robust}
        # Another classifier than x1 alone, whose parameter is 0.
        | {"parameter": math.nan}
        for clean, robust in ((0.99, 0.19), (0.96, 0.76))
    ]
    return make_results(settings, measurements=pd.DataFrame(rows))


def feature_learning(rows: pd.DataFrame) -> Results:
    of_test_images = rows["measure"].isin(["clean", "robust"])
    images = rows["measure"].mask(of_test_images, d3.TEST_IMAGES)
    return make_results(evaluations=rows.assign(images=images, eps=rows["measure"].eq("robust").astype(float)))


def representation_attacks() -> Results:
    """The text lost the numbers of the robust network. The paper prints none for images without attack."""
    rows = printed("D4")[CIFAR]
    rows[["source", "target"]] = rows["pair"].str.split(" -> ", expand=True)
    rows = rows.assign(reached=100 * rows["success"], total=10_000, before=math.nan)
    lost = rows.assign(victim=d4.ADVERSARIAL, reached=math.nan)
    pairs = tuple(rows[["source", "target"]].drop_duplicates().itertuples(index=False, name=None))
    # Table 1 has the clean accuracy of such networks.
    clean = printed("D3")[CIFAR].query("measure == 'clean'")
    clean = clean.assign(row=clean["row"].str.removesuffix(" training"), eps=0.0)
    both = pd.concat([rows, lost], ignore_index=True)
    return make_results(d4.Settings(eps=8 / 255, pairs=pairs), clean, measurements=both)


def leakage() -> Results:
    """Goh (2019): 23.5 % through robust linear features of D_rand; Table 1 of not-bugs-2019: 63.3 % by a network."""
    networks = printed("A2")[CIFAR]
    linear = {"D": math.nan, "D_rand": 23.5, "D_det": math.nan}
    measured = [
        {"row": x1.LINEAR, "seed": 0, "trained_on": name, "accuracy": value / 100}
        | {"usefulness": math.nan, "stable": math.nan}
        for name, value in linear.items()
    ]
    return make_results(
        x1.Settings(),
        evaluations=networks[networks["row"].isin(["D", *x1.DERIVED_SETS])],
        measurements=pd.DataFrame(measured),
    )


def errors_of_a_network() -> Results:
    """Wallace (2019): 49.7 % on CIFAR-10's test split after training on the errors alone."""
    rows = pd.DataFrame([{"row": x2.ERRORS, "seed": 0, "eps": 0.0, "accuracy": 49.7, "label_shift": 0, "chance": 10.0}])
    return make_results(evaluations=rows)


def find_cases() -> list[Case]:
    accuracies, targets, table_4 = printed("A1")[CIFAR], printed("A2"), printed("C3")
    first, second = (b5.CrossSet(data=name, training="t") for name in ("CIFAR-minus-Flickr", "CINIC-10"))
    # Without the linear fit, of which the paper prints neither the networks nor the line.
    fresh = a8.Settings(fresh=a8.Sample(data="CIFAR-10.1"))
    # "We get the same results for both if we train with different architectures."
    same = accuracies.replace({"row": {"standard": "D"}}).assign(architecture="another")
    return [
        Case("A1", CIFAR, make_results(a1.Settings(), evaluations=accuracies)),
        Case("A2", CIFAR, make_results(evaluations=targets[CIFAR])),
        Case("A2", IMAGENET, make_results(evaluations=targets[IMAGENET].assign(chance=DOGS))),
        Case("A4", CIFAR, make_results(evaluations=printed("A4")[CIFAR])),
        Case("A5", CIFAR, number_of_steps()),
        Case("A7", CIFAR, make_results(evaluations=on_relabelled_images(printed("A7")[CIFAR]))),
        Case("A8", CIFAR, make_results(fresh, evaluations=printed("A8")[CIFAR])),
        Case("A11", CIFAR, make_results(a11.Settings(architectures=("another",)), evaluations=same)),
        Case("B1", CIFAR, two_pathways()),
        Case("B3", CIFAR, grid_of_hyperparameters()),
        *(
            Case("B5", setting, make_results(b5.Settings(first=first, second=second), evaluations=rows))
            for setting, rows in printed("B5").items()
        ),
        *(Case("C2", setting, radius_of_training(rows)) for setting, rows in table_4.items()),
        *(Case("C3", setting, under_attack(rows)) for setting, rows in table_4.items()),
        Case("C7", MNIST, linear_classifiers()),
        Case("C8", "p 0.95", robustness_at_odds()),
        *(Case("D3", setting, feature_learning(rows)) for setting, rows in printed("D3").items()),
        Case("D4", CIFAR, representation_attacks()),
        Case("X1", CIFAR, leakage()),
        Case("X2", CIFAR, errors_of_a_network()),
    ]


CASES = find_cases()


def claims_of(case: Case) -> list[Claim]:
    experiment = load_experiment(case.experiment)
    functions = filter(None, (experiment.claims, experiment.measured_claims))
    return [claim for function in functions for claim in function(case.results)]


def text_of(claim: Claim) -> str:
    return f"{claim.sentence} | {claim.setting} | {claim.quantity}"


def is_covered(claim: Claim) -> bool:
    """Whether the paper's numbers give the claim a value."""
    return len(claim.values) > 0 and all(map(math.isfinite, claim.values))


def find_reason(listed: Mapping[str, str], claim: Claim) -> str | None:
    return next((reason for words, reason in listed.items() if words in text_of(claim)), None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_claim_is_held_on_its_papers_own_numbers(case: Case) -> None:
    listed = NOT_PRINTED.get(case.experiment, {})
    covered = [claim for claim in claims_of(case) if is_covered(claim)]
    assert covered
    failed = [
        text_of(claim)
        for claim in covered
        if find_reason(listed, claim) is None and not min(claim.values) > claim.threshold
    ]
    assert failed == []


@pytest.mark.parametrize("experiment", sorted({case.experiment for case in CASES}))
def test_every_claim_is_covered_or_listed_with_a_reason(experiment: str) -> None:
    claims = [claim for case in CASES if case.experiment == experiment for claim in claims_of(case)]
    covered = {claim.sentence for claim in claims if is_covered(claim)}
    listed = NOT_PRINTED.get(experiment, {})
    assert [text_of(each) for each in claims if each.sentence not in covered and not find_reason(listed, each)] == []
    # Nothing is listed that no claim is.
    assert [words for words in listed if not any(words in text_of(claim) for claim in claims)] == []


def test_every_experiment_with_claims_is_covered_or_listed_with_a_reason() -> None:
    with_claims = {each for each in experiment_modules() if load_experiment(each).claims is not None}
    covered = {case.experiment for case in CASES}
    assert not covered & set(NO_NUMBERS)
    assert covered | set(NO_NUMBERS) == with_claims


def make_constant(case: Case, row: str = "") -> list[Claim]:
    """The claims that change if the networks of these evaluations, or those of `row`, give every image one class."""
    rows = case.results.evaluations
    constant = (rows["row"] == row) | (row == "")
    accuracy = rows["accuracy"].mask(constant, rows["chance"])
    changed = case._replace(results=replace(case.results, evaluations=complete(rows.assign(accuracy=accuracy))))
    pairs = zip(claims_of(case), claims_of(changed), strict=True)
    return [after for before, after in pairs if not np.array_equal(before.values, after.values, equal_nan=True)]


# The paper prints no number for the claims of D4 that need its evaluations.
EVALUATED = [case for case in CASES if len(case.results.evaluations) and case.experiment != "D4"]


@pytest.mark.parametrize("case", EVALUATED, ids=lambda case: case.name)
def test_constant_networks_meet_no_claim(case: Case) -> None:
    claims = make_constant(case)
    assert claims
    assert [text_of(claim) for claim in claims if is_covered(claim) and min(claim.values) > claim.threshold] == []


@pytest.mark.parametrize(
    ("experiment", "row", "words"),
    [
        ("A1", "standard", ("D_R gives more robustness than on D", "good standard accuracy")),
        ("A1", "D_R-images", ("D_R gives more robustness", "is more robust than standard training on D_R")),
        ("A1", "D_NR-images", ("more robustness than on D_NR", "almost no robustness")),
        ("A5", "D_R-noise", ("does not drop", "plateaus", "PGD and CW-L2")),
        ("A7", "D_det", ("teaches the true labels",)),
        ("A7", "D_det-robust", ("teaches the permuted labels",)),
        ("A11", "D", ("D_R gives more robustness than on D", "good standard accuracy")),
        ("A11", "D_R-images", ("D_R gives more robustness",)),
        ("A11", "D_NR-images", ("more robustness than on D_NR", "almost no robustness")),
        ("C2", "L22.5", ("falls with the strength", "steady")),
        ("C2", "L21.5", ("steady",)),
        ("C3", "robust", ("has better accuracy on clean images than robust",)),
        ("C3", "half-half", ("too lowers accuracy", "less robust accuracy than robust")),
        ("D3", "adversarial training", ("inhibits",)),
    ],
)
def test_one_constant_network_does_not_meet_the_claims_on_it(experiment: str, row: str, words: tuple[str, ...]) -> None:
    case = next(case for case in CASES if case.experiment == experiment)
    for part in words:
        concerned = [claim for claim in make_constant(case, row) if part in claim.sentence]
        assert concerned, part
        assert [text_of(claim) for claim in concerned if is_covered(claim)] == []


def test_the_file_says_where_a_network_has_learned_nothing() -> None:
    (case,) = (case for case in CASES if case.experiment == "A11")
    rows = case.results.evaluations
    constant = rows["row"] == "D_NR-images"
    constant = complete(rows.assign(accuracy=rows["accuracy"].mask(constant, 10.0), total=100))
    judged = judge(load_experiment("A11"), replace(case.results, evaluations=constant))
    said = {str(row["claim"]) for row in judged if str(row["quantity"]).endswith(UNLEARNED)}
    assert said == {str(row["claim"]) for row in judged if math.isnan(float(str(row["value"])))}
    assert len(said) == 2
    assert not any(row["quantity"].endswith(UNLEARNED) for row in judge(load_experiment("A11"), case.results))


def test_a_claim_fails_on_numbers_that_say_the_opposite() -> None:
    """Table 10 with its two test sets exchanged."""
    (case,) = (case for case in CASES if case.experiment == "A7")
    rows = case.results.evaluations
    exchanged = replace(case.results, evaluations=rows.assign(label_shift=1 - rows["label_shift"]))
    claims = claims_of(Case("A7", CIFAR, exchanged))
    assert claims
    assert all(is_covered(claim) and max(claim.values) < claim.threshold for claim in claims)
