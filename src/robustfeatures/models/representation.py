"""The representation g(x) of any module: a layer that the user names, or the input of the last linear layer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from robustfeatures.engine.eval_mode import freeze
from robustfeatures.errors import UserError, suggest

log = logging.getLogger(__name__)

# A function of images (N, C, H, W), the name of a layer (its output), or None for the choice of `with_representation`.
Representation = Callable[[Tensor], Tensor] | str | None


class Represented(nn.Module):
    """A module with a method `representation`, as attacks on representations need it; its logits are the module's."""

    def __init__(self, model: nn.Module, represent: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.represent = represent

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K) of images (N, C, H, W)."""
        logits: Tensor = self.model(images)
        return logits

    def representation(self, images: Tensor) -> Tensor:
        """g(x), flattened to (N, D), of images (N, C, H, W)."""
        return self.represent(images).flatten(1)


def with_representation(model: nn.Module, representation: Representation, images: Tensor) -> nn.Module:
    """The module with a method `representation`, from a function, from the name of a layer, or by default.

    The default is the module's own method `representation`. A module without one is represented by the input of the
    last linear layer that a forward pass of `images` (N, C, H, W) calls; the log names this layer.

    Raises:
        UserError: the module has no layer of this name, or none that is linear.
    """
    if callable(representation):
        return Represented(model, representation)
    if representation is not None:
        return Represented(model, _Capture(model, representation, before=False))
    if callable(getattr(model, "representation", None)):
        return model
    name = find_last_linear(model, images)
    return Represented(model, _Capture(model, name, before=True))


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The layer of that name, such as "layer4.1".

    Raises:
        UserError: there is no such layer.
    """
    layers: dict[str, nn.Module] = dict(model.named_modules())
    layers.pop("", None)
    if name not in layers:
        raise UserError(f"representation: there is no layer {name!r}{suggest(name, layers)}")
    return layers[name]


def find_last_linear(model: nn.Module, images: Tensor) -> str:
    """The name of the linear layer that a forward pass of `images` calls last.

    Raises:
        UserError: it calls none.
    """
    called: list[str] = []
    linear = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    handles = [
        layer.register_forward_hook(lambda layer, inputs, output, name=name: called.append(name))
        for name, layer in linear
    ]
    try:
        with freeze(model), torch.no_grad():
            # The module may work in place.
            model(images.clone())
    finally:
        for handle in handles:
            handle.remove()
    if not called:
        raise UserError("representation: the network calls no linear layer; name the layer of its representation")
    log.info("the representation is the input of the last linear layer, %r", called[-1])
    return called[-1]


class _Capture:
    """The output of a layer, or its input if `before`, as a function of images."""

    def __init__(self, model: nn.Module, name: str, *, before: bool) -> None:
        self.model = model
        self.name = name
        self.layer = find_layer(model, name)
        self.before = before

    def __call__(self, images: Tensor) -> Tensor:
        found: list[Tensor] = []

        def keep(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            kept = [*inputs, *named.values()][0] if self.before else output
            if not isinstance(kept, Tensor):
                raise UserError(f"representation: the layer {self.name!r} gives {type(kept).__name__}, not a tensor")
            # A copy, because the next layer may work in place, as ReLU(inplace=True) does.
            found.append(kept.clone())

        handle = self.layer.register_forward_hook(keep, with_kwargs=True)
        try:
            self.model(images)
        finally:
            handle.remove()
        if not found:
            raise UserError(f"representation: a forward pass does not call the layer {self.name!r}")
        return found[-1]
