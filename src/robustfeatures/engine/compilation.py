"""torch.compile, as `compile: true` in a study asks for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from robustfeatures.errors import UserError


def compile_module(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The forward of a module, compiled when it is first called; it follows the module's weights.

    Calling it raises a UserError where torch's compiler fails.
    """
    # The numbers must not depend on what was computed before: so one kernel serves all batch sizes, and none is chosen
    # by its time.
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
