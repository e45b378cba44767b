"""Our attacks beside AutoAttack's APGD-CE and foolbox's CW, on a real network and real photographs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import foolbox
import pandas as pd
import torch
from torch import Tensor, nn

from robustfeatures import load_model
from robustfeatures.attacks.carlini_wagner import carlini_wagner
from robustfeatures.attacks.evaluating.evaluation import EvaluatedSplit, evaluate_block
from robustfeatures.attacks.evaluating.settings import PGD, Attack, AutoAttack, Evaluation
from robustfeatures.engine.batches import InMemory
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.models.network import Network

OUR_PGD = PGD(kind="pgd", steps=100, relative_step_sizes=(0.1,))
APGD = AutoAttack(kind="autoattack", parts=("apgd-ce",))
# The same for both.
CW = {"steps": 30, "initial": 1.0, "searches": 3, "rate": 0.01}


def load_published_network() -> Network:
    """The CIFAR-10 ResNet-18 in AutoAttack's examples, which its authors trained in the standard way."""
    path = str(files("pyautoattack") / "examples" / "model_test.pt")
    return load_model(path, architecture="resnet18", num_classes=10, image_shape=(3, 32, 32))


def find_robust(network: nn.Module, images: Tensor, labels: Tensor, attack: Attack, radii: Sequence[float]) -> Tensor:
    """Return which images are robust against an L2 attack, bool (1 + radii, n); the first row is clean."""
    parameters = Evaluation(split="test", norm="l2", attacks=(attack,), eps=(0.0, *radii))
    found = evaluate_block(EvaluatedSplit(network, InMemory(images), labels, 10), torch.arange(len(images)), parameters)
    return torch.from_numpy(found.robust[0, 0])


def run_foolbox_cw(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """L2 distances (n,) of the nearest adversarial examples that foolbox's CW finds, infinite where it finds none."""
    attack = foolbox.attacks.L2CarliniWagnerAttack(
        binary_search_steps=int(CW["searches"]),
        steps=int(CW["steps"]),
        stepsize=CW["rate"],
        initial_const=CW["initial"],
    )
    model = foolbox.PyTorchModel(network, bounds=(0, 1), device=images.device)
    found, _, _ = attack(model, images, foolbox.criteria.Misclassification(labels), epsilons=None)
    # Where it finds none it gives a black image.
    success = (found > 0).flatten(1).any(dim=1)
    lengths = (found - images).flatten(1).norm(dim=1)
    return torch.where(success, lengths, torch.inf)


def compare_attacks(images: Tensor, labels: Tensor, radii: Sequence[float]) -> tuple[pd.DataFrame, list[str]]:
    """Return a table with the accuracy in percent under each attack at each radius, and notes on the distances."""
    network = FrozenNetwork(load_published_network().to(images.device))
    ours = find_robust(network, images, labels, OUR_PGD, radii)
    theirs = find_robust(network, images, labels, APGD, radii)
    right = ours[0]
    search = {"searches": int(CW["searches"]), "steps": int(CW["steps"])}
    _, lengths = carlini_wagner(
        network, images, labels, **search, learning_rate=CW["rate"], initial_constant=CW["initial"]
    )
    library = run_foolbox_cw(network, images, labels)
    rows = []
    for number, eps in enumerate((0.0, *radii)):
        robust = {
            "PGD, ours": ours[number],
            "APGD-CE, AutoAttack": theirs[number],
            "CW, ours": right & (lengths > eps),
            "CW, foolbox": right & (library > eps),
        }
        percent = {name: 100 * each.double().mean().item() for name, each in robust.items()}
        first, second = robust["PGD, ours"], robust["APGD-CE, AutoAttack"]
        rows.append(
            {
                "eps": eps,
                **percent,
                "PGD alone breaks": int((second & ~first).sum()),
                "APGD alone breaks": int((first & ~second).sum()),
            }
        )
    both = right & lengths.isfinite() & library.isfinite()
    ratio = lengths[both] / library[both]
    notes = [
        f"{len(images)} images, of which {int(right.sum())} are right. PGD: {OUR_PGD.steps} steps of 0.1 eps from the "
        f"image. CW: {search['searches']} constants from {CW['initial']:g}, {search['steps']} steps of Adam with rate "
        f"{CW['rate']:g} for each.",
        f"Distance of the nearest adversarial example by CW, ours over foolbox's, on the {int(both.sum())} right "
        f"images on which both find one: median {ratio.median():.3f}, least {ratio.min():.3f}, largest "
        f"{ratio.max():.3f}.",
        "With so few steps CW is no match for PGD; it is here for the comparison with foolbox's, which ends a search "
        "early where the loss of the whole batch stops falling, as ours does not.",
    ]
    return pd.DataFrame(rows), notes
