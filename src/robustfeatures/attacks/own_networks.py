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
from robustfeatures.errors import UserError
from robustfeatures.models.representation import Representation, with_representation

if TYPE_CHECKING:
    from robustfeatures.attacks.settings import NormName


def check_pixels(name: str, images: Tensor) -> None:
    """Check that images are float (N, C, H, W) in [0, 1]; `name` is the argument.

    Raises:
        UserError: they are not.
    """
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
        UserError: the images are not float (N, C, H, W) in [0, 1], the labels no integers, or a gradient no number.
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative.
    """
    check_pixels("images", images)
    if labels.is_floating_point():
        raise UserError(f"labels: type {str(labels.dtype).removeprefix('torch.')}; give integers")
    found = projected_gradient_descent.pgd(
        model,
        images,
        labels.long(),
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
        ValueError: `step_size` or `steps` is negative.
    """
    _check_pairs("start", start, targets)
    represented = with_representation(model, representation, start[:1])
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
        ValueError: the norm is unknown, or `eps`, `step_size` or `steps` is negative.
    """
    _check_pairs("images", images, targets)
    represented = with_representation(extractor, representation, images[:1])
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
