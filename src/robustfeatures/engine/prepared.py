"""A network made ready for attacks: frozen, in eval mode, batch norm folded, in a fast layout and precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from robustfeatures.engine.chains import Chain, as_chain, with_chains
from robustfeatures.engine.precision import autocast, laid_out, warn_if_emulated
from robustfeatures.models.network import GlobalAverage, Network

if TYPE_CHECKING:
    from robustfeatures.engine.compiling import Compilation, ForOneShape
    from robustfeatures.engine.settings import Precision


class Prepared(nn.Module):
    """A frozen copy of a network for gradients with respect to images; `refresh` follows the network as it trains.

    Each batch norm that follows a convolution is folded into it, which is exact in eval mode up to rounding. With
    `precision` "bfloat16" the features are computed in bfloat16; representation and logits are float32.
    """

    def __init__(self, network: Network, *, precision: Precision = "float32") -> None:
        super().__init__()
        self.precision = precision
        self.copy = copy.deepcopy(network).eval()
        self.copy.features, folded = _without_batch_norm(self.copy.features)
        self.copy.requires_grad_(False)
        device = next(network.parameters()).device
        warn_if_emulated(device, precision)
        if precision == "bfloat16":
            for module in self.copy.features.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    module.to(torch.bfloat16)
        self.copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        if device.type == "cpu" and precision == "float32":
            with_chains(self.copy.features)
        self.chain = as_chain(self.copy.features)
        self.compiled: ForOneShape | None = None
        # In tuples, so that what is the network's is no submodule here.
        self._folded = tuple(_triple(network, self.copy, *names) for names in folded.items())
        fused = {id(tensor) for _, _, into in self._folded for tensor in (into.weight, into.bias)}
        self._others = tuple(
            (value, network.get_submodule(path), name)
            for path, module in self.copy.named_modules()
            for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
            if id(value) not in fused
        )
        self.refresh()
        self.eval()

    def compile_where_it_pays(self, compilation: Compilation, shape: tuple[int, ...]) -> None:
        """Compile for gradients on batches of `shape` (N, C, H, W), if that was measured to be faster.

        A network that is one chain stays as it is: its gradients are not autograd's.
        """
        if self.chain is None:
            self.compiled = compilation.compiled(self.copy.features, shape, torch.channels_last, self.precision)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the network's weights and running statistics as they are now."""
        for conv, norm, into in self._folded:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            into.weight.copy_(weight)
            assert into.bias is not None
            into.bias.copy_(bias)
        for value, module, name in self._others:
            value.copy_(getattr(module, name))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float32 (N, K), of images (N, C, H, W) in [0, 1]."""
        logits: Tensor = self.copy.head(self.representation(images))
        return logits

    def representation(self, images: Tensor) -> Tensor:
        """g(x), float32 (N, D), of images (N, C, H, W) in [0, 1]."""
        with autocast(images.device, self.precision):
            normalised = self.copy.normalised(laid_out(images, torch.channels_last))
            representation: Tensor = (self.compiled or self.copy.features)(normalised)
        return representation.float()

    def gradient_by_hand(
        self, chain: Chain, images: Tensor, slope: Callable[[Tensor], Tensor], of: Literal["logits", "representation"]
    ) -> Tensor:
        """The gradient by images (N, C, H, W) of what has the slope (N, D), given logits or representation (N, D).

        For a network that is the `chain`; autograd would take as long as some of its layers do.
        """
        head = self.copy.head
        with torch.no_grad(), autocast(images.device, self.precision):
            normalised = self.copy.normalised(laid_out(images, torch.channels_last))
            representation, made = chain.run(normalised)
            gradient = slope(head(representation)) @ head.weight if of == "logits" else slope(representation)
            return chain.pull(gradient, made) / self.copy.std


def _triple(network: Network, copied: Network, conv: str, norm: str) -> tuple[nn.Conv2d, nn.BatchNorm2d, nn.Conv2d]:
    """A convolution and the batch norm after it, by their names, and that into which they are folded."""
    first, second = network.features.get_submodule(conv), network.features.get_submodule(norm)
    into = copied.features.get_submodule(conv)
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.BatchNorm2d)
    assert isinstance(into, nn.Conv2d)
    return first, second, into


class _Tracer(fx.Tracer):
    """Layers of this package stay whole, like torch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, GlobalAverage) or super().is_leaf_module(m, module_qualified_name)


def _without_batch_norm(features: nn.Module) -> tuple[fx.GraphModule, dict[str, str]]:
    """The features with each batch norm after a convolution taken out, and the names of those pairs."""
    graph_module = fx.GraphModule(features, _Tracer().trace(features))
    modules = dict(graph_module.named_modules())
    folded: dict[str, str] = {}
    for node in graph_module.graph.nodes:
        before = node.args[0] if node.args else None
        if (
            node.op == "call_module"
            and isinstance(modules[node.target], nn.BatchNorm2d)
            and isinstance(before, fx.Node)
            and before.op == "call_module"
            and isinstance(conv := modules[str(before.target)], nn.Conv2d)
            and len(before.users) == 1
        ):
            folded[str(before.target)] = node.target
            node.replace_all_uses_with(before)
            graph_module.graph.erase_node(node)
            if conv.bias is None:
                conv.bias = nn.Parameter(torch.zeros_like(conv.weight[:, 0, 0, 0]))
    graph_module.recompile()
    graph_module.delete_all_unused_submodules()
    return graph_module, folded
