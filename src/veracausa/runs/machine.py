"""The machine that numbers were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe_machine(cuda: bool = True) -> dict[str, Any]:
    """What a measurement depends on; with `cuda` the GPU is named where there is one."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "device": torch.cuda.get_device_name() if cuda and torch.cuda.is_available() else "cpu",
    }


def usable_cores() -> int:
    """The cores that this process may use, which a container or a batch system can limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
