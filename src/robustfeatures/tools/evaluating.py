"""Evaluate a network of one's own in Python, as a study does: robust accuracy under attacks, and warnings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn

from robustfeatures.attacks.evaluating.evaluation import (
    EvaluatedSplit,
    count_correct,
    count_diagnostics,
    evaluate_block,
    split_blocks,
)
from robustfeatures.attacks.evaluating.settings import PGD, Attack, Evaluation, Noise
from robustfeatures.attacks.own_networks import check_labels, check_logits, check_pixels, check_weights
from robustfeatures.engine.batches import InMemory, choose_batch_size
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.experiments.shared.masking import drop_noise_before_gradients, find_warnings
from robustfeatures.experiments.shared.units import percent
from robustfeatures.models.network import Network, is_composed
from robustfeatures.pipeline.report.building import add_attack_names
from robustfeatures.pipeline.study.checks import check_attacks, check_eps
from robustfeatures.pipeline.study.validation import validate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from robustfeatures.attacks.settings import NormName

# Those of the default study.
ATTACKS = (PGD(kind="pgd", steps=50, relative_step_sizes=(0.1,)), Noise(kind="noise", draws=10))


def evaluate(
    model: nn.Module,
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    *,
    norm: NormName = "l2",
    eps: Sequence[float | str] = (0.25, 0.5),
    attacks: Sequence[Attack | Mapping[str, Any]] = ATTACKS,
) -> pd.DataFrame:
    """The accuracy of a module with logits (N, K), clean and at each radius, under attacks one after another.

    `images` are float (N, C, H, W) in [0, 1], `labels` integer (N,). An attack is one of
    `robustfeatures.attacks.evaluating.settings`, or what a study writes: `{"kind": "noise", "draws": 10}`. The module
    is attacked on the device of its weights, in eval mode; afterwards its mode is restored. The default attacks take
    seconds. With more than two classes they leave too many images; for a number that you publish, add
    `{"kind": "autoattack"}`.

    Returns one row per radius (0 is clean) and attack: `eps`; `attack`, empty at 0; `accuracy` in percent, of the
    images that withstand this attack and those before it; `correct` of `total` images; and `final`, whether it is the
    last attack, so that its accuracy is the robust accuracy. Signs of masked gradients, random logits and probabilities
    in place of logits are Python warnings, and the list `attrs["warnings"]` of the table.

    Raises:
        UserError: an attack, a radius, images or labels are wrong; the weights are not float32; or the network gives
            NaN, no logits, or logits without a gradient.
    """
    settings = validate(
        Evaluation,
        {"split": "test", "norm": norm, "eps": _read_radii(eps), "attacks": list(attacks)},
        "evaluate: ",
    )
    check_attacks(norm, settings.attacks, "evaluate: attacks")
    check_eps(norm, settings.eps, "evaluate: eps")
    check_weights(model)
    _check_types(model)
    device = next((weights.device for weights in model.parameters()), torch.device("cpu"))
    pixels, classes = torch.as_tensor(images), torch.as_tensor(labels)
    if pixels.is_floating_point():
        pixels = pixels.float()
    check_pixels("images", pixels)
    # The caller may be inside torch.no_grad() or torch.inference_mode(), whose tensors never have a gradient.
    with torch.inference_mode(False), freeze(model), torch.enable_grad():
        split_images = InMemory(pixels.clone(memory_format=torch.contiguous_format).to(device))
        num_classes = _check_logits(model, split_images, classes)
        doubts = _find_doubts(model, split_images)
        network = FrozenNetwork(model) if isinstance(model, Network) and is_composed(model) else model
        split = EvaluatedSplit(network, split_images, classes.long().cpu(), num_classes)
        outcomes = [
            evaluate_block(split, rows, settings)
            for rows in split_blocks(len(split_images), split_images.image_shape, device)
        ]
    names = [attack.name for attack in settings.attacks]
    rows = pd.DataFrame([row for row, _ in count_correct(settings, outcomes, split.labels.numpy(), num_classes)])
    found = add_attack_names(rows, names).assign(accuracy=percent(rows["correct"] / rows["total"]))
    table = found[["eps", "attack", "accuracy", "correct", "total", "final"]]
    diagnostics = pd.DataFrame(list(count_diagnostics(settings, outcomes)))
    compared = drop_noise_before_gradients(diagnostics, names)
    table.attrs["warnings"] = [*doubts, *find_warnings(compared.assign(row=type(model).__name__))]
    for line in table.attrs["warnings"]:
        warnings.warn(line, stacklevel=2)
    return table


def _read_radii(eps: Sequence[float | str]) -> list[float]:
    """The radii and 0, in rising order; a radius may be written as "8/255"."""
    if isinstance(eps, (str, int, float)) or getattr(eps, "ndim", 1) == 0:
        raise UserError(f"evaluate: eps: {eps!r} is no list of radii; write [{eps}]")
    try:
        radii = [float(Fraction(each)) if isinstance(each, str) else float(each) for each in eps]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"evaluate: eps: {eps!r} has a radius that is no number") from error
    for number, radius in enumerate(radii):
        if not 0 <= radius < math.inf:
            raise UserError(f"evaluate: eps.{number}: {radius} is no radius; it has to be 0 or more, and finite")
    return sorted({0.0, *radii})


def _check_types(model: nn.Module) -> None:
    others = {str(values.dtype) for values in model.parameters() if values.is_floating_point()} - {"torch.float32"}
    if others:
        raise UserError(f"model: has weights of type {', '.join(sorted(others))}; give model.float()")


@torch.no_grad()
def _find_doubts(model: nn.Module, images: InMemory) -> list[str]:
    """Warnings about a module whose robust accuracy the attacks here overestimate, from the first images."""
    count = min(len(images), choose_batch_size(images.device, images.image_shape))
    ((_, first),) = images.batches(torch.arange(count), count)
    logits, again = (model(first.clone()) for _ in range(2))
    found = []
    if (logits - again).abs().max() > 1e-3 * logits.abs().max():
        found.append(
            "the logits of an image differ from call to call. Attacks here do not average over such randomness, so the "
            "true robust accuracy may be lower"
        )
    if logits.min() >= 0 and (logits.sum(dim=1) - 1).abs().max() < 1e-3:
        found.append(
            "the outputs are probabilities, not logits. Their gradients vanish where the network is sure, so the true "
            "robust accuracy may be lower; leave out the softmax"
        )
    return [f"{type(model).__name__}: {line}" for line in found]


@torch.no_grad()
def _check_logits(model: nn.Module, images: InMemory, labels: Tensor) -> int:
    """The number of classes K of the module, which gives finite logits (N, K) for all images."""
    if labels.shape != (len(images),) or labels.is_floating_point():
        raise UserError(f"labels: shape {tuple(labels.shape)} and type {labels.dtype}, not integers ({len(images)},)")
    num_classes = 0
    for _, batch in images.batches(torch.arange(len(images)), choose_batch_size(images.device, images.image_shape)):
        # The module may work in place.
        logits = check_logits(model(batch.clone()), batch)
        num_classes = int(logits.shape[1])
        if not logits.isfinite().all():
            raise UserError("model: gives NaN or infinite logits for these images")
    check_labels(labels, num_classes)
    return num_classes
