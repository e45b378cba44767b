"""torch.compile, for `compile: true` in a study."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustfeatures.errors import UserError


def compile_module(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Compile a module's forward at the first call; later changes of the module's weights take effect.

    The returned function raises a UserError if torch's compiler fails.
    """
    # Results must not depend on earlier computations. So one kernel serves all batch sizes, and no kernel is chosen by
    # a timing.
    forward = torch.compile(module, dynamic=True, options={"deterministic": True})

    def call(images: Tensor) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException

        try:
            result: Tensor = forward(images)
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(f"compile: torch's compiler fails here, set it to false: {reason}") from error
        return result

    return call
