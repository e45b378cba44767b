"""A training that diverges ends early, names its recipe, and leaves no weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robustfeatures.engine.batches import InMemory
from robustfeatures.errors import UserError
from robustfeatures.models import create
from robustfeatures.pipeline.run import checkpoints
from robustfeatures.training.loop import CHECK_LOSS_EVERY, train
from robustfeatures.training.settings import Training
from tests.conftest import QUICK, Digits, Workspace

STEPS = 200
LONG = Training(epochs=2, batch_size=4, learning_rate=0.01, schedule="constant")


class Poison:
    """Returns the images of a batch, and NaN in one step. Counts the steps."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.steps = 0

    def __call__(self, images: Tensor, labels: Tensor, seed: int) -> Tensor:
        self.steps += 1
        return images * float("nan") if self.steps == self.step else images


def fresh() -> nn.Module:
    torch.manual_seed(0)
    return create("small-cnn", num_classes=10, image_shape=(1, 8, 8), width=4)


def test_nan_stops_within_few_steps(digits: Digits) -> None:
    """The training ends long before the end of an epoch of 200 steps. Only a few checks wait for the device."""
    images, labels = InMemory(digits.images[: 4 * STEPS]), digits.labels[: 4 * STEPS]
    waited = []
    for step in (1, CHECK_LOSS_EVERY - 1, CHECK_LOSS_EVERY, CHECK_LOSS_EVERY + 1, STEPS - 1, STEPS, STEPS + 5):
        poison = Poison(step)
        epoch = (step - 1) // STEPS + 1
        with pytest.raises(UserError, match=rf"loss is nan in epoch {epoch}, step \d+; lower training.learning_rate"):
            train(fresh(), images, labels, LONG, seed=0, perturbation=poison)
        waited.append(poison.steps - step)
    print(f"stopped {', '.join(map(str, waited))} steps after the first NaN")
    assert max(waited) < CHECK_LOSS_EVERY


def test_the_last_step_may_not_break_the_weights(digits: Digits) -> None:
    """The loss of a step is computed before the step changes the weights."""
    settings = Training(epochs=1, batch_size=64, learning_rate=1e38, schedule="constant", weight_decay=1000.0)
    with pytest.raises(UserError, match=r"training: \S+ is not finite after the last step; lower training"):
        train(fresh(), InMemory(digits.images[:64]), digits.labels[:64], settings, seed=0)


def test_no_checkpoint_holds_what_went_wrong(digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    kept = checkpoints.Checkpoints(tmp_path)
    images, labels = InMemory(digits.images[: 4 * STEPS]), digits.labels[: 4 * STEPS]
    with pytest.raises(UserError, match="loss is nan in epoch 1, step 31"):
        train(fresh(), images, labels, LONG, seed=0, perturbation=Poison(31), checkpoints=kept)
    state = kept.load(torch.device("cpu"))
    assert state is not None
    assert state["step"] == 30
    assert all(values.isfinite().all() for values in state["network"].values())


def test_looking_changes_nothing(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = InMemory(digits.images[:400]), digits.labels[:400]
    networks, histories = [fresh(), fresh()], []
    for network, every in zip(networks, (1, 10**9), strict=True):
        monkeypatch.setattr("robustfeatures.training.loop.CHECK_LOSS_EVERY", every)
        histories.append(train(network, images, labels, replace(QUICK, epochs=2), seed=0))
    assert histories[0] == histories[1]
    pairs = zip(networks[0].state_dict().values(), networks[1].state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_diverging_study_names_the_recipe_and_publishes_nothing(workspace: Workspace) -> None:
    workspace.edit("workflow/studies/smoke.yaml", "learning_rate: 0.2\n", "learning_rate: 1.0e+8\n")
    workspace.snakemake("-n")
    (data,) = (workspace.folder / "results/artifacts/.plan/data").glob("*.json")
    assert workspace.command("build", f"results/artifacts/data/{data.name}").returncode == 0
    payloads = workspace.payloads()
    for attempt in range(2):
        (plan,) = (workspace.folder / "results/artifacts/.plan/model").glob("digits-standard-seed0-*.json")
        done = workspace.command("build", f"results/artifacts/model/{plan.name}")
        assert done.returncode == 1, attempt
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"robustfeatures: model/{plan.stem}: training: the loss is ")
        assert line.endswith("lower training.learning_rate")
        assert workspace.payloads() == payloads
        assert not list((workspace.folder / "results/artifacts/model").glob("*.json"))
