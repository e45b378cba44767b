"""A frozen copy of a network for attacks: eval mode, folded batch norms, fast layout and precision."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from robustfeatures.engine.compilation import compile_module
from robustfeatures.engine.cuda_graphs import CudaGraphs
from robustfeatures.engine.layout import Tracer, choose_attack_layout, convert_layout
from robustfeatures.engine.precision import autocast, warn_if_emulated

if TYPE_CHECKING:
    from robustfeatures.engine.settings import Precision
    from robustfeatures.models.network import Network


class FrozenNetwork(nn.Module):
    """A frozen copy of a network, for gradients with respect to images; `refresh` copies the network's new weights.

    Each batch norm after a convolution is folded into the convolution, which is exact in eval mode up to rounding. With
    `precision` "bfloat16" the features are computed in bfloat16; representation and logits are float32. With `compile`
    torch compiles the features.
    """

    def __init__(self, network: Network, *, precision: Precision = "float32", compile: bool = False) -> None:
        super().__init__()
        warn_if_emulated(network.mean.device, precision)
        self.precision = precision
        # A tuple hides the network from torch, so that it does not become a submodule of its copy.
        self._original = (network,)
        self.network = copy.deepcopy(network).eval()
        self.network.features, self._folded = remove_batch_norms(self.network.features)
        self.network.requires_grad_(False)
        if precision == "bfloat16":
            for module in self.network.features.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    module.to(torch.bfloat16)
        self.layout = choose_attack_layout(self.network.features, network.mean.device)
        self.network.to(memory_format=self.layout)  # type: ignore[call-overload]  # torch's stub lacks it
        self._compiled = compile_module(self.network.features) if compile else None
        # Of the steps that attacks take; the weights below stay where they are in memory.
        self.graphs = CudaGraphs()
        self.refresh()
        self.eval()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the network's current weights and running statistics."""
        state, own = _find_tensors(self._original[0]), _find_tensors(self.network)
        weights = {name: state[name] for name in own if name in state}
        for pair in self._folded:
            conv, norm = f"features.{pair.convolution}", f"features.{pair.batch_norm}"
            weights[f"{conv}.weight"], weights[f"{conv}.bias"] = fuse_conv_bn_weights(
                state[f"{conv}.weight"],
                state.get(f"{conv}.bias"),
                state[f"{norm}.running_mean"],
                state[f"{norm}.running_var"],
                pair.eps,
                state.get(f"{norm}.weight"),
                state.get(f"{norm}.bias"),
            )
        # A tensor of another type would keep all others of its call from being copied together. The other names of
        # `own` are constants of the forward pass.
        for dtype in {values.dtype for values in own.values()}:
            names = [name for name, values in own.items() if values.dtype == dtype and name in weights]
            torch._foreach_copy_([own[name] for name in names], [weights[name] for name in names])

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float32 (N, K), of images (N, C, H, W) in [0, 1]."""
        logits: Tensor = self.network.head(self.representation(images))
        return logits

    def representation(self, images: Tensor) -> Tensor:
        """g(x), float32 (N, D), of images (N, C, H, W) in [0, 1]."""
        with autocast(images.device, self.precision):
            normalised = self.network.normalise(convert_layout(images, self.layout))
            representation: Tensor = (self._compiled or self.network.features)(normalised)
        return representation.float()


def _find_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, also those that are not saved, under each of their names."""
    named = (network.named_parameters, network.named_buffers)
    return {name: values.detach() for each in named for name, values in each(remove_duplicate=False)}


class ConvBatchNorm(NamedTuple):
    """The names of a convolution and of the batch norm after it, and the batch norm's eps."""

    convolution: str
    batch_norm: str
    eps: float


def remove_batch_norms(features: nn.Module) -> tuple[fx.GraphModule, list[ConvBatchNorm]]:
    """Remove each batch norm after a convolution; return the traced features and the removed pairs.

    A layer that is called more than once stays, because each call may be followed by another layer. So does a layer of
    another class, such as a convolution with parametrised weights, and one that shares its weights with another layer.
    """
    traced = fx.GraphModule(features, Tracer().trace(features))
    modules = dict(traced.named_modules())
    owners = Counter(id(values) for module in modules.values() for values in module._parameters.values())
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    pairs: list[ConvBatchNorm] = []
    for node in traced.graph.nodes:
        previous = node.args[0] if node.args else None
        if calls[node.target] != 1 or not isinstance(previous, fx.Node) or calls[previous.target] != 1:
            continue
        convolution, batch_norm = modules[str(previous.target)], modules[node.target]
        if not (type(convolution) is nn.Conv2d and type(batch_norm) is nn.BatchNorm2d and len(previous.users) == 1):
            continue
        # Weight norm computes the weights anew in each forward pass.
        own = [values for values in convolution._parameters.values() if values is not None]
        is_simple = "weight" in convolution._parameters and all(owners[id(values)] == 1 for values in own)
        if is_simple and batch_norm.running_mean is not None:
            if convolution.bias is None:
                convolution.bias = nn.Parameter(convolution.weight.new_zeros(convolution.out_channels))
            pairs.append(ConvBatchNorm(str(previous.target), node.target, batch_norm.eps))
            node.replace_all_uses_with(previous)
            traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced, pairs
