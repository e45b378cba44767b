"""The import of torchvision with any build of torch."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from types import ModuleType

log = logging.getLogger(__name__)

# Operators that torchvision refers to during its import. The compiled library of its CUDA wheel defines them, but does
# not load with a CPU build of torch. Data sets, models and transforms never call these operators.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def import_torchvision() -> ModuleType:
    """The module torchvision, without its compiled operators if they cannot be loaded, which the log then says once.

    Where torchvision was built for the installed torch, nothing is declared here.

    Raises:
        ImportError: torchvision is not installed.
    """
    try:
        return import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    log.warning(
        "torchvision was built for another torch, so its compiled operators are missing; install a pair that fits"
    )
    import torch

    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    module = import_module("torchvision")
    # The operators live as long as this object.
    module.__dict__["_robustfeatures_operators"] = library
    return module
