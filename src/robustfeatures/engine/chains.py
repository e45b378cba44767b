"""Frozen layers that follow one another, whose gradient is worked out by hand: autograd is long beside small layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.utils import _pair

from robustfeatures.models.network import GlobalAverage

# Pixels of an image times weights of a filter up to which a product takes the place of oneDNN's convolution, which is
# the faster one on large images.
MOST_PATCH_VALUES = 3 << 8


class Link(Protocol):
    """One layer: its values, with what its gradient needs to know of them, and that gradient."""

    def forward(self, values: Tensor) -> tuple[Tensor, Any]:
        """What follows from `values`, and what to keep for `backward`."""
        ...

    def backward(self, gradient: Tensor, kept: Any) -> Tensor:
        """The gradient by the values, of that by what followed."""
        ...


class Convolution:
    """Padding is by zeros, as everywhere here."""

    def __init__(self, layer: nn.Conv2d) -> None:
        self.weight, self.bias = layer.weight, layer.bias
        self.stride, self.dilation, self.groups = layer.stride, layer.dilation, layer.groups
        self.padding = _pair(layer.padding)

    def forward(self, values: Tensor) -> tuple[Tensor, Any]:
        found = functional.conv2d(values, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return found, values

    def backward(self, gradient: Tensor, kept: Any) -> Tensor:
        found: tuple[Tensor, None, None] = torch.ops.aten.convolution_backward(
            gradient,
            kept,
            self.weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            (0, 0),
            self.groups,
            (True, False, False),
        )
        return found[0]


class GreyConvolution(Convolution):
    """Of images (N, 1, H, W), which oneDNN treats as if they had a whole block of channels.

    Small images are cut into patches here, whose product with the weights is the convolution; the gradient is a matrix
    product too, folded back to pixels.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__(layer)
        down, across = self.padding
        self.margins = (across, across, down, down)
        self.everywhere = self.stride == self.dilation == (1, 1)

    def forward(self, values: Tensor) -> tuple[Tensor, Any]:
        shape = values.shape
        if self.everywhere and self.weight[0].numel() * shape[2] * shape[3] <= MOST_PATCH_VALUES:
            return self._product(functional.pad(values, self.margins)), shape
        found, _ = super().forward(values)
        return found, shape

    def _product(self, padded: Tensor) -> Tensor:
        filters, _, height, width = self.weight.shape
        image, _, row, pixel = padded.stride()
        places = (len(padded), padded.shape[2] - height + 1, padded.shape[3] - width + 1)
        patches = padded.as_strided((height, width, *places), (row, pixel, image, row, pixel))
        found = functional.linear(patches.reshape(height * width, -1).mT, self.weight.view(filters, -1), self.bias)
        return found.view(*places, filters).permute(0, 3, 1, 2)

    def backward(self, gradient: Tensor, kept: Any) -> Tensor:
        weights = self.weight.view(1, len(self.weight), -1).mT.expand(len(gradient), -1, -1)
        shares = torch.bmm(weights, gradient.flatten(2))
        # The images as channels of one: torch goes through images one by one.
        folded = functional.fold(
            shares.view(1, -1, shares.shape[2]),
            kept[2:],
            self.weight.shape[2:],
            self.dilation,
            self.padding,
            self.stride,
        )
        return folded.view(kept)


class Maximum:
    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.sizes = [_pair(size) for size in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        self.ceil_mode = layer.ceil_mode

    def forward(self, values: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        found, places = torch.ops.aten.max_pool2d_with_indices(values, *self.sizes, self.ceil_mode)
        return found, (values, places)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, Tensor]) -> Tensor:
        values, places = kept
        found: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, values, *self.sizes, self.ceil_mode, places
        )
        return found


class Rectifier:
    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        found = values.relu()
        return found, found

    def backward(self, gradient: Tensor, kept: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten.threshold_backward(gradient, kept, 0)
        return found


class Average:
    """Of `GlobalAverage`, in fewer operations than the layer, which sees to the layout of autograd's gradient."""

    def forward(self, values: Tensor) -> tuple[Tensor, torch.Size]:
        return functional.avg_pool2d(values, values.shape[2:]).flatten(1), values.shape

    def backward(self, gradient: Tensor, kept: torch.Size) -> Tensor:
        return (gradient / kept[2:].numel()).view(*kept[:2], 1, 1).expand(kept)


class Flattening:
    def __init__(self, layer: nn.Flatten) -> None:
        self.flatten = layer.forward

    def forward(self, values: Tensor) -> tuple[Tensor, torch.Size]:
        return self.flatten(values), values.shape

    def backward(self, gradient: Tensor, kept: torch.Size) -> Tensor:
        return gradient.reshape(kept)


class Product:
    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, values: Tensor) -> tuple[Tensor, None]:
        return functional.linear(values, self.weight, self.bias), None

    def backward(self, gradient: Tensor, kept: None) -> Tensor:
        return gradient @ self.weight


LINKS: dict[type[nn.Module], Callable[[Any], Link]] = {
    nn.Conv2d: lambda layer: (GreyConvolution if layer.in_channels == 1 else Convolution)(layer),
    nn.MaxPool2d: Maximum,
    nn.ReLU: lambda layer: Rectifier(),
    GlobalAverage: lambda layer: Average(),
    nn.Flatten: Flattening,
    nn.Linear: Product,
}


class Chain(nn.Module):
    """Frozen layers, each of which is given what the one before it gives; they stay modules of their network."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.links = tuple(LINKS[type(layer)](layer) for layer in layers)

    def forward(self, values: Tensor) -> Tensor:
        if values.requires_grad and torch.is_grad_enabled():
            result: Tensor = _Pulled.apply(values, self)  # type: ignore[no-untyped-call]
            return result
        # Not by the layers: what a gradient leads to must be what is found without one, to the bit.
        for link in self.links:
            values, _ = link.forward(values)
        return values

    def run(self, values: Tensor) -> tuple[Tensor, list[Any]]:
        """What follows from `values`, and what `pull` has to be given of the way there; outside autograd."""
        made = []
        for link in self.links:
            values, kept = link.forward(values)
            made.append(kept)
        return values, made

    def pull(self, gradient: Tensor, made: Sequence[Any]) -> Tensor:
        """The gradient by the values, of that by what followed."""
        for link, kept in zip(reversed(self.links), reversed(made), strict=True):
            gradient = link.backward(gradient, kept)
        return gradient


class _Pulled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, chain: Chain) -> Tensor:
        ctx.chain = chain
        found, ctx.made = chain.run(values)
        # Not what was kept: what autograd keeps of its own result it could never let go of.
        return found.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.chain.pull(gradient, ctx.made), None


def with_chains(network: fx.GraphModule) -> None:
    """Put a chain in the place of layers that follow one another without a branch; their names stay.

    Of a network that branches only the layers from a convolution of grey images on: the values that a chain keeps are
    let go later than autograd's, which costs such networks more than it saves.
    """
    modules = dict(network.named_modules())
    runs = list(_runs(network, modules))
    whole = len(runs) == 1 and len(runs[0]) == len(_computing(network))
    for number, nodes in enumerate(runs):
        if not whole and getattr(modules[str(nodes[0].target)], "in_channels", 0) != 1:
            continue
        name = f"chain{number}"
        network.add_submodule(name, Chain([modules[str(node.target)] for node in nodes]))
        nodes[0].target = name
        for user in list(nodes[-1].users):
            user.replace_input_with(nodes[-1], nodes[0])
        for node in reversed(nodes[1:]):
            network.graph.erase_node(node)
    network.recompile()


def as_chain(network: fx.GraphModule) -> Chain | None:
    """The chain that a network is, or None where it branches."""
    first, *rest = _computing(network)
    found = network.get_submodule(str(first.target)) if first.op == "call_module" else None
    return found if isinstance(found, Chain) and not rest else None


def _computing(network: fx.GraphModule) -> list[fx.Node]:
    return [node for node in network.graph.nodes if node.op not in ("placeholder", "output")]


def _is_known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d) and (isinstance(layer.padding, str) or layer.padding_mode != "zeros"):
        # "same" may pad one side more than the other.
        return False
    return type(layer) in LINKS and not getattr(layer, "return_indices", False)


def _runs(network: fx.GraphModule, modules: dict[str, nn.Module]) -> Iterator[list[fx.Node]]:
    """The nodes of each run of layers that chains know, which only the next of them uses."""
    run: list[fx.Node] = []
    for node in network.graph.nodes:
        known = node.op == "call_module" and _is_known(modules[str(node.target)])
        if run and not (known and node.args == (run[-1],) and len(run[-1].users) == 1):
            yield run
            run = []
        if known:
            run.append(node)
    if run:
        yield run
