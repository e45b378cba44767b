"""Attacks on any `nn.Module`, for use in Python: images are checked, and `representation=` says what g(x) is.

The functions compute the same as those that jobs call, in the modules that their docstrings name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from robustfeatures.attacks import inversion, projected_gradient_descent
from robustfeatures.attacks.representation_pgd import representation_pgd
from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network
from robustfeatures.models.representation import Representation, with_representation

if TYPE_CHECKING:
    from robustfeatures.attacks.settings import NormName


def check_pixels(name: str, images: Tensor) -> None:
    """Check that images are float (N, C, H, W) in [0, 1]; `name` is the argument.

    Raises:
        UserError: they are not.
    """
    if not isinstance(images, Tensor):
        raise UserError(f"{name}: type {type(images).__name__}, not torch.Tensor")
    if images.dim() != 4:
        raise UserError(f"{name}: shape {tuple(images.shape)}, not (N, C, H, W)")
    # In float16 the shortest gradients round to 0, and a step has no direction. In bfloat16 images leave the ball.
    if not images.dtype.is_floating_point or images.dtype in (torch.float16, torch.bfloat16):
        raise UserError(f"{name}: type {str(images.dtype).removeprefix('torch.')}; give float32 in 0 to 1")
    if not images.numel():
        raise UserError(f"{name}: there is no image")
    least, largest = (bound.item() for bound in images.aminmax())
    # NaN fails this comparison too.
    if not (least >= 0 and largest <= 1):
        raise UserError(f"{name}: values from {least!r} to {largest!r}; they must lie in 0 to 1")


def check_weights(model: nn.Module) -> None:
    """Check that gradients can pass through the weights.

    Raises:
        UserError: they cannot.
    """
    if any(values.is_inference() for values in model.parameters()):
        raise UserError("model: made inside torch.inference_mode(), so it has no gradients; make it outside")


def check_logits(logits: object, images: Tensor) -> Tensor:
    """The logits of a model for these images, if they are (N, K).

    Raises:
        UserError: they are not.
    """
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(images):
        raise UserError(f"model: gives no logits of shape (N, K) for images {tuple(images.shape)}")
    return logits


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Check that labels are below the number of classes, and not negative.

    Raises:
        UserError: they are not.
    """
    if labels.min() < 0 or labels.max() >= num_classes:
        found = f"classes from {labels.min()} to {labels.max()}"
        raise UserError(f"labels: {found}, but the model gives logits of {num_classes} classes")


class _OnCopies(nn.Module):
    """A module that gets copies of the images, because it may work in place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images.clone())
        return logits

    def representation(self, images: Tensor) -> Tensor:
        found: Tensor = self.model.representation(images.clone())  # type: ignore[operator]  # a method
        return found


def _on_copies(model: nn.Module, images: Tensor, name: str) -> nn.Module:
    """The module, which leaves the images as they are; `name` is their argument.

    Raises:
        UserError: gradients cannot pass through the weights, or the images are of another type.
    """
    check_weights(model)
    types = {values.dtype for values in model.parameters() if values.is_floating_point()}
    if images.dtype == torch.float64 and types and torch.float64 not in types:
        raise UserError(f"{name}: type float64, unlike the weights of the model; give float32")
    # These do not work in place, and a frozen network has a fast path on a GPU.
    return model if isinstance(model, (Network, FrozenNetwork)) else _OnCopies(model)


def _count_classes(model: nn.Module, images: Tensor) -> int:
    """The number of classes of a module, by its logits for these images.

    Raises:
        UserError: it gives none.
    """
    network = model.network if isinstance(model, FrozenNetwork) else model
    if isinstance(network, Network):
        # A compiled network would be compiled again for another number of images.
        return network.head.out_features
    with freeze(model), torch.no_grad():
        return check_logits(model(images), images).shape[1]


def _check_outcome(images: Tensor) -> Tensor:
    """The images of an attack, if they are numbers.

    Raises:
        UserError: a gradient was NaN or infinite.
    """
    if not images.isfinite().all():
        raise UserError("model: its gradient at some images is NaN or infinite, as that of sqrt(x) at 0")
    return images


def _check_pairs(name: str, images: Tensor, targets: Tensor) -> None:
    """Check `images`, which is the argument `name`, and the targets, one for each of them.

    Raises:
        UserError: their shapes differ, or as `check_pixels`.
    """
    check_pixels(name, images)
    check_pixels("targets", targets)
    if images.shape != targets.shape:
        raise UserError(f"targets: shape {tuple(targets.shape)}, but {name} has {tuple(images.shape)}")


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    norm: NormName,
    eps: float,
    step_size: float,
    steps: int,
    targeted: bool = False,
    random_start: bool = False,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """`robustfeatures.attacks.projected_gradient_descent.pgd`, on any module with logits (N, K).

    Raises:
        UserError: the images are not float (N, C, H, W) in [0, 1], the labels are not one class for each image, the
            module gives no logits, or a gradient is no number.
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative or NaN.
    """
    check_pixels("images", images)
    if labels.is_floating_point():
        raise UserError(f"labels: type {str(labels.dtype).removeprefix('torch.')}; give integers")
    if labels.shape != images.shape[:1]:
        raise UserError(f"labels: shape {tuple(labels.shape)}, not ({len(images)},), one for each image")
    # Tensors of inference mode never have a gradient. Outside it their copies do.
    with torch.inference_mode(False):
        images, labels = images.clone(), labels.long().clone()
        network = _on_copies(model, images, "images")
        check_labels(labels, _count_classes(network, images[:1]))
        found = projected_gradient_descent.pgd(
            network,
            images,
            labels,
            norm=norm,
            eps=eps,
            step_size=step_size,
            steps=steps,
            targeted=targeted,
            random_start=random_start,
            generator=generator,
            progress=progress,
        )
    return _check_outcome(found)


def invert(
    model: nn.Module,
    start: Tensor,
    targets: Tensor,
    *,
    step_size: float,
    steps: int,
    representation: Representation = None,
    progress: Callable[[int], None] = lambda steps: None,
) -> Tensor:
    """`robustfeatures.attacks.inversion.invert`, on any module.

    `representation` is a function of images, or the name of a layer, whose output is flattened to (N, D). By default
    it is the module's method `representation`, or the input of its last linear layer.

    Raises:
        UserError: images are not float (N, C, H, W) in [0, 1], or not as many as the targets; the module has no such
            layer; or a gradient is no number.
        ValueError: `step_size` or `steps` is negative or NaN.
    """
    _check_pairs("start", start, targets)
    with torch.inference_mode(False):
        start, targets = start.clone(), targets.clone()
        represented = _on_copies(with_representation(model, representation, start[:1].clone()), start, "start")
        found = inversion.invert(
            represented,  # type: ignore[arg-type]  # any module with the method `representation`
            start,
            targets,
            step_size=step_size,
            steps=steps,
            progress=progress,
        )
    return _check_outcome(found)


def attack_representation(
    extractor: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    norm: NormName,
    eps: float,
    step_size: float,
    steps: int,
    representation: Representation = None,
) -> Tensor:
    """NRF-PGD and RF-PGD on any module: `robustfeatures.attacks.representation_pgd`; `representation` as in `invert`.

    Raises:
        UserError: images are not float (N, C, H, W) in [0, 1], or not as many as the targets; the module has no such
            layer; or a gradient is no number.
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative or NaN.
    """
    _check_pairs("images", images, targets)
    with torch.inference_mode(False):
        images, targets = images.clone(), targets.clone()
        represented = _on_copies(with_representation(extractor, representation, images[:1].clone()), images, "images")
        found = representation_pgd(
            represented,  # type: ignore[arg-type]  # any module with the method `representation`
            images,
            targets,
            norm=norm,
            eps=eps,
            step_size=step_size,
            steps=steps,
        )
    return _check_outcome(found)
