"""Bad studies and configurations, and what a dry run says of them; tests/faults tries each by the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustfeatures.cli import app
from robustfeatures.cli.app import read_configuration
from robustfeatures.errors import UserError
from robustfeatures.pipeline.plan.plan import unfold
from robustfeatures.pipeline.study.config import read_config, read_words
from robustfeatures.pipeline.study.yaml import read_yaml
from tests.conftest import REPOSITORY, Workspace

STUDY = "workflow/studies/smoke.yaml"
STUDY_CASES = {
    "unknown data set": ("source: digits", "source: digit", "data.source: 'digit' is unknown (did you mean 'digits'?)"),
    "unknown architecture": (
        "small-cnn",
        "smal-cnn",
        "architecture.name: 'smal-cnn' is unknown (did you mean 'small-cnn'?)",
    ),
    "unknown field": (
        "batch_size: 64",
        "batchsize: 64",
        "training.standard.batchsize: unknown field (did you mean 'batch_size'?)",
    ),
    "missing field": ("seeds: [0]\n", "\n", "seeds: the field is missing"),
    "unknown value": (
        "schedule: one-cycle",
        "schedule: onecycle",
        "training.standard.schedule: 'onecycle' is unknown (did you mean 'one-cycle'?)",
    ),
    "negative eps": (
        "adversary: {norm: l2, eps: 0.75",
        "adversary: {norm: l2, eps: -0.75",
        "training.adversarial.adversary.eps: input should be greater than or equal to 0, not -0.75",
    ),
    "a Linf radius of 255": (
        "adversary: {norm: l2, eps: 0.75",
        "adversary: {norm: linf, eps: 8",
        "training.adversarial.adversary.eps: pixels lie in [0, 1], so that a Linf radius is below 1: 8/255 is 0.0314, "
        "not 8",
    ),
    "a fraction of words": (
        "adversary: {norm: l2, eps: 0.75",
        "adversary: {norm: l2, eps: a/b",
        "training.adversarial.adversary.eps: input should be a valid number, not 'a/b'",
    ),
    "a fraction by zero": ("eps: [0.25, 0.5, 0.75]", "eps: [8/0]", "8/0 divides by zero"),
    "eps of the evaluation": (
        "eps: [0.25, 0.5, 0.75]",
        "eps: [0.25, -0.5]",
        "robustness.eps.1: input should be greater than 0, not -0.5",
    ),
    "a radius whose square is infinite": (
        "eps: [0.25, 0.5, 0.75]",
        "eps: [1e20]",
        "robustness.eps.0: input should be less than 1000000000, not 1e+20",
    ),
    "a radius of training whose square is infinite": (
        "adversary: {norm: l2, eps: 0.75",
        "adversary: {norm: l2, eps: 1e39",
        "training.adversarial.adversary.eps: input should be less than 1000000000, not 1e+39",
    ),
    "not a number": (
        "weight_decay: 5e-4",
        "weight_decay: low",
        "training.standard.weight_decay: input should be a valid number, not 'low'",
    ),
    "NaN": (
        "weight_decay: 5e-4",
        "weight_decay: .nan",
        "training.standard.weight_decay: input should be a finite number",
    ),
    "a number as text": (
        "epochs: 2",
        "epochs: '2'",
        "training.standard.epochs: input should be a valid integer, not '2'",
    ),
    "zero epochs": ("epochs: 2", "epochs: 0", "training.standard.epochs: input should be greater than 0, not 0"),
    "no GPU for a training": (
        "epochs: 2",
        "epochs: 2\n    gpus_per_training: 0",
        "training.standard.gpus_per_training: input should be greater than 0, not 0",
    ),
    "GPUs that do not divide a batch": (
        "epochs: 2",
        "epochs: 2\n    gpus_per_training: 3",
        "training.standard.gpus_per_training: 3 GPUs cannot share a batch_size of 64 evenly",
    ),
    "more GPUs than images in a batch": (
        "epochs: 2",
        "epochs: 2\n    gpus_per_training: 128",
        "training.standard.gpus_per_training: 128 GPUs cannot share a batch_size of 64 evenly",
    ),
    "several GPUs and a compiler": (
        "seeds: [0]\n\ntraining:\n  standard: &standard\n    epochs: 2",
        "compile: true\nseeds: [0]\n\ntraining:\n  standard: &standard\n    epochs: 2\n    gpus_per_training: 2",
        "training.standard.gpus_per_training: compile must be false for a training on several GPUs",
    ),
    "unknown norm": (
        "norm: l2\n  attacks",
        "norm: l3\n  attacks",
        "robustness.norm: 'l3' is unknown (known: l2, linf)",
    ),
    "unknown attack": (
        "{kind: pgd, steps: 5",
        "{kind: pdg, steps: 5",
        "robustness.attacks.0.kind: 'pdg' is unknown (did you mean 'pgd'?)",
    ),
    "a misspelt field of an attack": (
        "{kind: pgd, steps: 5",
        "{kind: pgd, step: 5",
        "robustness.attacks.0.step: unknown field (did you mean 'steps'?)",
    ),
    "a step size out of range": (
        "relative_step_sizes: [0.25]",
        "relative_step_sizes: [0.25, 3.0]",
        "robustness.attacks.0.relative_step_sizes.1: input should be less than or equal to 2, not 3.0",
    ),
    "an attack twice": (
        "  attacks:\n",
        "  attacks:\n    - {kind: pgd, steps: 5, relative_step_sizes: [0.25]}\n",
        "robustness.attacks: an attack appears twice",
    ),
    "CW in another norm": (
        "norm: l2\n  attacks:\n",
        "norm: linf\n  attacks:\n    - {kind: cw-l2}\n",
        "robustness.attacks: cw-l2 attacks in the norm l2 alone, not in linf",
    ),
    "unknown method": (
        "kind: inversion",
        "kind: inverse",
        "derived.D_NR-images.method.kind: 'inverse' is unknown (did you mean 'inversion'?)",
    ),
    "unknown target": (
        "target: next",
        "target: nxt",
        "derived.D_det.method.target: 'nxt' is unknown (did you mean 'next'?)",
    ),
    "negative eps of a derived set": (
        "target: next, norm: l2, eps: 0.9",
        "target: next, norm: l2, eps: -0.9",
        "derived.D_det.method.eps: input should be greater than or equal to 0, not -0.9",
    ),
    "misspelt field of a method": (
        "target: next, norm",
        "targte: next, norm",
        "derived.D_det.method.targte: unknown field (did you mean 'target'?)",
    ),
    "a radius of zero": ("eps: [0.25,", "eps: [0.0,", "robustness.eps.0: input should be greater than 0, not 0.0"),
    "a radius twice": ("eps: [0.25,", "eps: [0.5,", "robustness.eps: a radius appears twice"),
    "a set without images to train on": (
        "splits: [train, validation]",
        "splits: [validation]",
        "derived.D_det.splits: 'train' is missing; a network is trained on it",
    ),
    "a split twice": (
        "splits: [train, validation]",
        "splits: [train, train]",
        "derived.D_det.splits: 'train' appears twice",
    ),
    "no validation split for B1": (
        "splits: [train, validation]",
        "splits: [train]",
        "derived.D_det.splits: 'validation' is missing; experiment B1 needs it",
    ),
    "a source without its file": (
        "source: digits",
        "source: npz",
        "data.path: the source 'npz' needs the path of your files",
    ),
    "a file that is not there": (
        "source: digits",
        "source: npz\n  path: none.npz\n  sha256: abc",
        "data.path: none.npz does not exist",
    ),
    "unknown source model": (
        "D_rand: {source: standard",
        "D_rand: {source: standrd",
        "derived.D_rand.source: 'standrd' is unknown (did you mean 'standard'?)",
    ),
    "unknown training": (
        "D_rand: {source: standard, training: downstream",
        "D_rand: {source: standard, training: downstrem",
        "derived.D_rand.training: 'downstrem' is unknown (did you mean 'downstream'?)",
    ),
    "noise for a start from images": (
        "start: images, step_size",
        "start: images, noise_deviation: 0.05, step_size",
        "derived.D_NR-images.method.noise_deviation: the start 'images' takes none; 'noise' does",
    ),
    "derived from the test split": (
        "splits: [train, validation]",
        "splits: [train, test]",
        "derived.D_det.splits: a set to train on must not be derived from the test split",
    ),
    "missing derived set": (
        "D_R-noise:",
        "D_R-nois:",
        "derived: 'D_R-noise' is missing (did you mean 'D_NR-noise'?); experiment A1 needs it",
    ),
    "text in place of a mapping": (
        "training:\n  standard: &standard\n    epochs: 2",
        "training:\n  other: 3\n  standard: &standard\n    epochs: 2",
        "training.other: should be a mapping, `name: value`, not 3",
    ),
    "a number in place of a list": ("seeds: [0]", "seeds: 0", "seeds: should be a list, `[value, value]`, not 0"),
    "too many samples": (
        "test: 0.25",
        "test: 0.25\n  operations: [{kind: subset, split: train, samples: 2000}]",
        "data.operations.0.samples: 2000 is more than the 1077 images of train",
    ),
    "unknown experiment": ("A7: {}", "A77: {}", "experiments.A77: there is no such experiment (did you mean 'A7'?)"),
    "unknown setting": (
        "pathway_1: pathway-1",
        "pathway1: pathway-1",
        "experiments.B1.pathway1: unknown field (did you mean 'pathway_1'?)",
    ),
    "unknown pathway": (
        "pathway_2: pathway-2",
        "pathway_2: pathway-3",
        "experiments.B1.pathway_2: training: 'pathway-3' is missing (did you mean 'pathway-",
    ),
    "splits too large": ("test: 0.25", "test: 0.9", "data.test: validation and test leave nothing to train on"),
    "seeds that meet": ("seeds: [0]", "seeds: [7, 3, 2007]", "seeds: 7 and 2007 differ by 2000, so some of"),
    "no seeds": ("seeds: [0]", "seeds: []", "seeds: should have at least 1 item"),
    "seed twice": ("seeds: [0]", "seeds: [0, 0]", "seeds: a seed appears twice"),
    "a name that leaves its folder": (
        "D_rand: {source",
        "../D_rand: {source",
        "derived: a name has letters, digits, _, . and - alone, and begins with a letter or a digit, not '../D_rand'",
    ),
    "a name for the shell": (
        "D_rand: {source",
        "$(touch x): {source",
        "derived: a name has letters, digits, _, . and - alone, and begins with a letter or a digit, not '$(touch x)'",
    ),
    "a class out of range": (
        "target: random",
        "target: 10",
        "derived.D_rand.method.target: 10 is no class of data; the last one is 9; experiments A2 and A10",
    ),
    "name twice": ("seeds: [0]", "seeds: [0]\nseeds: [1]", "'seeds' appears twice"),
    "no YAML": ("seeds: [0]", "seeds: [0", "line "),
    "no fields": ("", "", "the file must hold named fields"),
}

CONFIG_CASES = {
    "unknown study": ("study: smoke", "study: smok", "study: 'smok' is unknown (did you mean 'smoke'?)"),
    "a study elsewhere": ("study: smoke", "study: ../smoke", "study: string should match pattern"),
    "unknown device": ("device: auto", "device: gpu", "device: 'gpu' is unknown"),
    "unknown field": ("device: auto", "divice: auto", "divice: unknown field (did you mean 'device'?)"),
    "no threads": ("threads_per_job: 1", "threads_per_job: 0", "threads_per_job: input should be greater than 0"),
    "too many parts": (
        "derived_parts: 1",
        "derived_parts: 1000000000",
        "derived_parts: input should be less than or equal to 1000, not 1000000000",
    ),
    "not a number": ("seeds_per_job: 8", "seeds_per_job: many", "seeds_per_job: input should be a valid integer"),
}


def test_a_dry_run_says_the_same(workspace: Workspace) -> None:
    old, new, expected = STUDY_CASES["unknown field"]
    workspace.edit(STUDY, old, new)
    done = workspace.snakemake("-n", check=False)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert not list(workspace.folder.glob("results/**/*.json"))
    (line,) = [line for line in text.splitlines() if ".yaml: " in line]
    assert f"{STUDY}: " in line
    assert expected in line


@pytest.mark.parametrize("case", CONFIG_CASES)
def test_bad_configuration(tmp_path: Path, case: str) -> None:
    old, new, expected = CONFIG_CASES[case]
    text = (REPOSITORY / "config.yaml").read_text().replace("study: digits", "study: smoke")
    assert old in text
    (tmp_path / "config.yaml").write_text(text.replace(old, new))
    with pytest.raises(UserError) as refused:
        unfold(read_config(read_yaml(tmp_path / "config.yaml")), REPOSITORY / "workflow" / "studies")
    assert str(refused.value).startswith(f"config.yaml: {expected}")


def test_a_message_names_what_gives_the_value() -> None:
    given = {"study": "smoke", "longest_minutes": "24h"}
    with pytest.raises(UserError, match=r"^config\.yaml: longest_minutes: .*, not '24h'$"):
        read_config(given)
    with pytest.raises(UserError, match=r"^--config: longest_minutes: "):
        read_config(given, elsewhere={"longest_minutes": "--config"})
    with pytest.raises(UserError, match=r"^other\.yaml: longest_minutes: "):
        read_config(given, "other.yaml", {"study": "--study"})
    for folder in ("store", "raw"):
        with pytest.raises(UserError, match=rf"^config\.yaml: {folder}: string should have at least 1 character"):
            read_config({"study": "smoke", folder: ""})


def test_the_configuration_that_is_named_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    path = tmp_path / "c.yaml"
    for text, told in (
        ("study: smok\n", r"study: 'smok' is unknown \(did you mean 'smoke'\?\)$"),
        ("study: smoke\ndivice: cpu\n", "divice: unknown field"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=rf"^{path}: {told}"):
            read_configuration(path)
    path.write_text("study: smoke\n")
    with pytest.raises(UserError, match=r"^--study: 'smok' is unknown"):
        read_configuration(path, "smok")


def test_a_number_as_text_is_told_without_its_quotes() -> None:
    with pytest.raises(
        UserError, match=r"^config\.yaml: gpus_per_job: '1' is another kind of value; write 1 without qu"
    ):
        read_config({"study": "smoke", "gpus_per_job": "1"})


def test_a_truth_value_is_no_number_of_gpus() -> None:
    for value in (True, False):
        with pytest.raises(UserError, match=rf"^config\.yaml: gpus_per_job: should be auto, 0 or 1, not {value}$"):
            read_config({"study": "smoke", "gpus_per_job": value})
    given: tuple[object, ...] = ("auto", 0, 1)
    assert [read_config({"study": "smoke", "gpus_per_job": value}).gpus_per_job for value in given] == list(given)


def test_words_and_homes_in_a_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Snakemake leaves `--config remote=null` as text."""
    monkeypatch.setenv("HOME", str(tmp_path))
    words = {
        "mix_gpu_models": "true",
        "gpu_fast_path": "false",
        "remote": "null",
        "study": "smoke",
        "threads_per_job": 2,
    }
    config = read_config({**read_words(words), "store": "~/store", "raw": "images"})
    assert (config.mix_gpu_models, config.gpu_fast_path, config.remote, config.threads_per_job) == (
        True,
        False,
        None,
        2,
    )
    assert (config.store, config.raw) == (str(tmp_path / "store"), "images")


@pytest.mark.parametrize("content", ["", "- a list\n", "digits\n"])
def test_a_configuration_without_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(content)
    for arguments in (["status"], ["status", "--study", "smoke"], ["verify"]):
        with pytest.raises(UserError, match=r"^config\.yaml: the file must hold named fields$"):
            app(arguments, standalone_mode=False)


def test_the_option_that_names_an_unknown_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    for command in ("status", "fetch", "list"):
        with pytest.raises(UserError, match=r"^--study: 'smok' is unknown \(did you mean 'smoke'\?\)$"):
            app([command, "--study", "smok"], standalone_mode=False)
