"""Networks of the user's own: any module with logits, split into a representation and what follows it."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn

from robustfeatures.engine.eval_mode import freeze
from robustfeatures.engine.frozen_network import FrozenNetwork
from robustfeatures.engine.layout import Tracer
from robustfeatures.errors import UserError
from robustfeatures.models.network import Network, is_composed
from robustfeatures.models.own_files import OwnFactory, find_file, parse_own
from robustfeatures.models.representation import find_last_linear, find_layer

log = logging.getLogger(__name__)


class OwnNetwork(Network):
    """A module of the user's own as features and head.

    original_names: for each weight's name in the module, its name in this network.
    """

    original_names: dict[str, str]


def create_from_file(name: str, *, num_classes: int, image_shape: tuple[int, int, int], **width: int) -> Network:
    """The network that a function in a declared file makes: `<file>.py:<function>`.

    The function gets the same arguments as the factories of this package. It returns a module that maps images
    (N, C, H, W), normalised as in `Network`, to logits (N, K); or this module and the name of a layer, whose output
    becomes the representation. Without a name it is the input of the last linear layer.

    Raises:
        UserError: the file cannot be imported, the function raises, or it returns something else.
    """
    own = parse_own(name)
    assert own is not None
    module = _import_file(own)
    try:
        made = getattr(module, own.function)(num_classes=num_classes, image_shape=image_shape, **width)
    # The user's code may raise anything.
    except Exception as error:
        raise UserError(f"architecture: {name} raises {type(error).__name__}: {_first_line(error)}") from error
    module, layer = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise UserError(f"architecture: {name} returns {type(made).__name__}, not a torch.nn.Module")
    if not (layer is None or isinstance(layer, str)):
        raise UserError(f"architecture: {name} returns {type(layer).__name__} in place of the name of a layer")
    return to_network(module, layer=layer, name=name, num_classes=num_classes, image_shape=image_shape)


def _import_file(own: OwnFactory) -> ModuleType:
    path = find_file(own.file)
    # A name that is also that of another module would hide it.
    spec = spec_from_file_location(f"robustfeatures_own_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses in the file look their module up.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"architecture: {path} raises {type(error).__name__}: {_first_line(error)}") from error
    if not callable(getattr(module, own.function, None)):
        raise UserError(f"architecture: {path} has no function {own.function!r}")
    return module


def to_network(
    module: nn.Module, *, layer: str | None, name: str, num_classes: int, image_shape: tuple[int, int, int]
) -> Network:
    """The module as a `Network` with the same logits; its representation is as in `create_from_file`.

    Raises:
        UserError: the module gives no finite logits (N, K), has no such layer, or cannot be split there; or the copy of
            it that attacks use gives other logits.
    """
    where = f"architecture: {name}"
    images = torch.linspace(0, 1, 2 * prod(image_shape)).view(2, *image_shape)
    logits = _compute_logits(module, images, num_classes, where)
    if isinstance(module, Network) and is_composed(module):
        _check_frozen(module, images, num_classes, where)
        return module
    names = {id(tensor): raw for raw, tensor in module.state_dict(keep_vars=True).items()}
    if not all(isinstance(tensor, Tensor) for tensor in module.state_dict().values()):
        raise UserError(f"{where}: has an extra state, which is not saved with the weights")
    drawn = None
    try:
        if layer is None:
            last = find_last_linear(module, images)
            drawn = module.get_submodule(last)
            with _drawn_weights(drawn):
                logits = _compute_logits(module, images, num_classes, where)
            features, head = _split_at_last_linear(module, last)
        else:
            features, head = _split_at_layer(module, layer, images)
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    network = OwnNetwork(features, head, image_shape[0])  # type: ignore[arg-type]  # any module that gives logits
    with _drawn_weights(drawn):
        found = _compute_logits(network, images, num_classes, where)
        if not torch.allclose(found, logits, rtol=1e-4, atol=1e-5):
            raise UserError(
                f"{where}: more follows the last linear layer than logits; return the module and the name of a layer"
            )
        _check_frozen(network, images, num_classes, where)
    network.original_names = {
        names[id(tensor)]: ours for ours, tensor in network.state_dict(keep_vars=True).items() if id(tensor) in names
    }
    return network


@contextmanager
def _drawn_weights(layer: nn.Module | None) -> Iterator[None]:
    """Draw those weights of a layer that are all 0, always the same; restore them on exit.

    A head that starts at zero would hide what follows it.
    """
    parameters = [] if layer is None else [parameter for parameter in layer.parameters() if not parameter.any()]
    kept = [parameter.detach().clone() for parameter in parameters]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)


@torch.no_grad()
def _check_frozen(network: Network, images: Tensor, num_classes: int, where: str) -> None:
    """Check that the copy of the network that attacks use gives the same logits, whatever its batch norms have learned.

    Raises:
        UserError: it fails, or gives others.
    """
    lived = copy.deepcopy(network)
    for module in lived.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.copy_(torch.linspace(-0.5, 0.5, module.num_features))
            module.running_var.copy_(torch.linspace(0.5, 2.0, module.num_features))
    expected = _compute_logits(lived, images, num_classes, where)
    try:
        found = FrozenNetwork(lived)(images)
    except Exception as error:
        hint = ", where images lie channels-last: use reshape or flatten" if "view size" in str(error) else ""
        message = f"{type(error).__name__}: {_first_line(error)}"
        raise UserError(f"{where}: fails as a frozen copy for attacks{hint}: {message}") from error
    if not torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
        raise UserError(f"{where}: a frozen copy for attacks gives other logits; one layer may read another's weights")


def _compute_logits(module: nn.Module, images: Tensor, num_classes: int, where: str) -> Tensor:
    try:
        with freeze(module), torch.no_grad():
            # The module may work in place.
            logits = module(images.clone())
    except UserError:
        raise
    except Exception as error:
        shape = tuple(images.shape)
        raise UserError(f"{where}: fails on images {shape}: {type(error).__name__}: {_first_line(error)}") from error
    if not isinstance(logits, Tensor) or logits.shape != (len(images), num_classes):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise UserError(f"{where}: gives {found} for 2 images, not logits of {num_classes} classes")
    if not logits.isfinite().all():
        raise UserError(f"{where}: gives NaN or infinite logits")
    return logits


def _split_at_last_linear(module: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """The module without its last linear layer, and this layer."""
    place, _, attribute = name.rpartition(".")
    head = module.get_submodule(name)
    if not place and not attribute:
        return nn.Flatten(), head
    setattr(module.get_submodule(place), attribute, nn.Identity())
    return _make_traceable(module), head


def _make_traceable(module: nn.Module) -> nn.Module:
    """The module, or a layer around it where torch.fx, which folds batch norms for attacks, cannot look into it."""
    try:
        with freeze(module):
            Tracer().trace(module)
    # torch.fx runs the module's own code on placeholders, which may raise anything.
    except Exception as error:
        log.info("torch.fx cannot trace the network, so attacks run it as it is: %s", _first_line(error))
        return nn.Sequential(_Untraced(module))
    return module


class _Untraced(nn.Module):
    """A module into which torch.fx does not look."""

    # torch.fx takes the layers of torch.nn as they are.
    __module__ = "torch.nn.untraced"

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.module(images)
        return output


class _LayerTracer(Tracer):
    """Takes one layer as it is, so that it is one node of the graph."""

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.layer = layer

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name == self.layer or super().is_leaf_module(m, module_qualified_name)


class _Rest(nn.Module):
    """What follows a representation of `shape`, given flattened (N, D)."""

    def __init__(self, graph: fx.GraphModule, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.graph = graph
        self.shape = shape
        self.out_features = num_classes

    def forward(self, representation: Tensor) -> Tensor:
        logits: Tensor = self.graph(representation.reshape(-1, *self.shape))
        return logits


def _split_at_layer(module: nn.Module, layer: str, images: Tensor) -> tuple[nn.Module, nn.Module]:
    """The module up to the output of a layer, flattened, and what follows.

    Raises:
        UserError: there is no such layer, torch.fx cannot trace the module, the module does not leave it to its layers
            what training changes, or the logits need more than this layer.
    """
    find_layer(module, layer)
    # A trace leaves constants in the module, so the second one takes a copy from before the first.
    before_tracing = copy.deepcopy(module)
    graph = _trace(module, layer, training=True)
    if str(graph) != str(_trace(before_tracing, layer, training=False)):
        raise UserError("its own forward depends on the mode of training; use layers, such as nn.Dropout")
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == layer]
    if len(calls) != 1:
        raise UserError(f"representation: a forward pass calls the layer {layer!r} {len(calls)} times, not once")
    before, after = fx.Graph(), fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    following: dict[fx.Node, fx.Node] = {calls[0]: after.placeholder("representation")}
    passed = False
    for node in graph.nodes:
        if passed:
            try:
                following[node] = after.node_copy(node, following.__getitem__)
            except KeyError:
                raise UserError(f"representation: the logits need more than the layer {layer!r}") from None
        else:
            copied[node] = before.node_copy(node, copied.__getitem__)
        if node is calls[0]:
            before.output(copied[node])
            passed = True
    parts = [fx.GraphModule(module, part) for part in (before, after)]
    for part in parts:
        part.delete_all_unused_submodules()
    with freeze(module), torch.no_grad():
        output, logits = parts[0](images.clone()), module(images.clone())
    if output.dim() < 2:
        raise UserError(f"representation: the layer {layer!r} gives shape {tuple(output.shape)}")
    return nn.Sequential(parts[0], nn.Flatten()), _Rest(parts[1], tuple(output.shape[1:]), logits.shape[1])


def _trace(module: nn.Module, layer: str, *, training: bool) -> fx.Graph:
    modes = {each: each.training for each in module.modules()}
    for each in modes:
        each.training = training
    try:
        return _LayerTracer(layer).trace(module)
    except Exception as error:
        raise UserError(f"torch.fx cannot trace it up to the layer {layer!r}: {_first_line(error)}") from error
    finally:
        for each, mode in modes.items():
            each.training = mode


def _first_line(error: Exception) -> Any:
    return str(error).strip().partition("\n")[0]
