"""The devices that torch finds here. As a program it prints them, for the plan, which imports no torch."""

from __future__ import annotations

import json
import warnings

import torch

from robustfeatures.errors import UserError


def find_gpus() -> tuple[list[str], str]:
    """The UUIDs of the GPUs that torch can use, and why there are none."""
    if torch.version.hip is not None:
        return [], f"torch {torch.__version__} is built for AMD GPUs"
    if torch.version.cuda is None:
        return [], f"torch {torch.__version__} is built without CUDA"
    with warnings.catch_warnings(record=True) as caught:
        # A driver that is too old is a warning here.
        warnings.simplefilter("always")
        if not torch.cuda.is_available():
            said = [str(warning.message).strip().partition("\n")[0] for warning in caught]
            return [], said[0] if said else f"torch {torch.__version__} for CUDA {torch.version.cuda} sees no GPU"
    return [_uuid(number) for number in range(torch.cuda.device_count())], ""


def _uuid(number: int) -> str:
    """The UUID of a GPU, or of a part of a GPU (MIG), as CUDA_VISIBLE_DEVICES takes it."""
    properties = torch.cuda.get_device_properties(number)
    return f"{'MIG' if 'MIG' in properties.name else 'GPU'}-{properties.uuid}"


def open_device(kind: str) -> torch.device:
    """The device of this kind, "cpu" or "cuda".

    Raises:
        UserError: torch can use no GPU.
    """
    if kind == "cuda":
        gpus, reason = find_gpus()
        if not gpus:
            raise UserError(f"config.yaml: device: {kind}, but torch finds no GPU for this job: {reason}")
    return torch.device(kind)


def name_device(device: torch.device) -> str:
    """What decides the bits of a result on a device: "cpu", or "cuda" with the GPU's model and the version of cuDNN."""
    if device.type != "cuda":
        return device.type
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch's
    return f"{device.type}: {torch.cuda.get_device_name(device)}, cuDNN {cudnn}"


if __name__ == "__main__":
    print(json.dumps(find_gpus()))
