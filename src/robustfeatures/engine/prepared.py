"""A network made ready for attacks: frozen, in eval mode, batch norm folded, in a fast layout and precision."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from robustfeatures.engine.grey import with_grey_convolutions
from robustfeatures.engine.precision import autocast, laid_out, warn_if_emulated
from robustfeatures.models.network import Network

if TYPE_CHECKING:
    from robustfeatures.engine.compiling import Compilation, ForOneShape
    from robustfeatures.recipes.parameters import Precision


class Prepared(nn.Module):
    """A frozen copy of a network for gradients with respect to images; `refresh` follows the network as it trains.

    Each batch norm that follows a convolution is folded into it, which is exact in eval mode up to rounding. With
    `precision` "bfloat16" the features are computed in bfloat16; representation and logits are float32.
    """

    def __init__(self, network: Network, *, precision: Precision = "float32") -> None:
        super().__init__()
        self._original = [network]  # in a list, so that it is no submodule
        self.precision = precision
        self.copy = copy.deepcopy(network).eval()
        self.copy.features, self.folded = _without_batch_norm(self.copy.features)
        self.copy.requires_grad_(False)
        device = next(network.parameters()).device
        warn_if_emulated(device, precision)
        if precision == "bfloat16":
            for module in self.copy.features.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    module.to(torch.bfloat16)
        self.copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        if device.type == "cpu" and precision == "float32":
            with_grey_convolutions(self.copy.features)
        self.compiled: ForOneShape | None = None
        self.refresh()
        self.eval()

    def compile_where_it_pays(self, compilation: Compilation, shape: tuple[int, ...]) -> None:
        """Compile for gradients on batches of `shape` (N, C, H, W), if that was measured to be faster."""
        self.compiled = compilation.compiled(self.copy.features, shape, torch.channels_last, self.precision)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the network's weights and running statistics as they are now."""
        original = self._original[0]
        fused: dict[str, Tensor] = {}
        for conv_name, norm_name in self.folded.items():
            conv, norm = original.features.get_submodule(conv_name), original.features.get_submodule(norm_name)
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            weight, bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            fused |= {f"features.{conv_name}.weight": weight, f"features.{conv_name}.bias": bias}
        current = original.state_dict() | fused
        for name, value in self.copy.state_dict().items():
            value.copy_(current[name])

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


def _without_batch_norm(features: nn.Module) -> tuple[fx.GraphModule, dict[str, str]]:
    """The features with each batch norm after a convolution taken out, and the names of those pairs."""
    graph_module = fx.symbolic_trace(features)
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
