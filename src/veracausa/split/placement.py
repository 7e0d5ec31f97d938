"""Where and in which form a party computes: device, memory format, the type of what it sends."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veracausa.config import Runtime
from veracausa.data.vertical import Part
from veracausa.errors import InputError


def choose_device(name: str) -> torch.device:
    """The device that a job's `runtime.device` means here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"runtime.device: {name!r} is no device; use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"runtime.device: {name!r} is wanted, and PyTorch sees no GPU here; use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"runtime.device: {name!r} is wanted, and there are {torch.cuda.device_count()} GPUs here")
    return device


def wire_dtype(runtime: Runtime) -> torch.dtype:
    """The type in which payloads and gradients cross."""
    return torch.bfloat16 if runtime.precision == "bf16" else torch.float32


def placed(module: nn.Module, runtime: Runtime, device: torch.device) -> nn.Module:
    """The module on the device, its weights in the memory format of the job."""
    memory_format = torch.channels_last if runtime.channels_last else torch.preserve_format
    return module.to(device=device, memory_format=memory_format)  # type: ignore[call-overload, no-any-return]


def rows_of(part: Part, ids: Tensor, runtime: Runtime) -> Tensor:
    """The features at these positions, in the memory format of the job."""
    rows = part.take(ids)
    channels_last = runtime.channels_last and rows.ndim == 4
    return rows.contiguous(memory_format=torch.channels_last) if channels_last else rows
