"""Memory that several processes share: anonymous, passed on by file descriptor, gone when the last of them ends."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor


class SharedBytes:
    """A block of bytes as a uint8 tensor; a child process that gets it at its start sees the same bytes.

    An anonymous file rather than /dev/shm: containers often give that only 64 MiB.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._fd = _anonymous_file(size)
        self._map()

    def _map(self) -> None:
        weakref.finalize(self, os.close, self._fd)  # the mapping outlives the descriptor
        self._mmap = mmap.mmap(self._fd, max(self.size, 1))
        self.tensor = torch.frombuffer(self._mmap, dtype=torch.uint8)[: self.size]

    def pin(self) -> None:
        """Let a GPU copy to and from this memory directly."""
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        torch.cuda.check_error(cudart.cudaHostRegister(self.tensor.data_ptr(), self.size, 0))

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size, "fd": reduction.DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.size = state["size"]
        self._fd = state["fd"].detach()
        self._map()


class SharedTensor:
    """A tensor of any shape in shared memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.shape = tensor.dtype, tuple(tensor.shape)
        self._bytes = SharedBytes(tensor.numel() * tensor.element_size())
        if tensor.numel():
            self.tensor().copy_(tensor)

    def tensor(self) -> Tensor:
        if not self._bytes.size:
            return torch.empty(self.shape, dtype=self.dtype)
        return self._bytes.tensor.view(self.dtype).view(self.shape)


def copy_bytes(target: Tensor, source: Tensor) -> None:
    """Copy a tensor's values into another that holds as many bytes, on the CPU with this thread alone.

    The parties share the cores. Every thread and every process has a pool of torch's own, which spins for a while after
    each copy and gets in the others' way: on two cores a round trip of 256 KiB took thirty times as long.
    """
    size = source.numel() * source.element_size()
    if size != target.numel() * target.element_size() or not target.is_contiguous():
        raise ValueError(f"{size} bytes do not fit")
    if source.is_cpu and target.is_cpu and source.is_contiguous() and not source.is_neg():
        ctypes.memmove(target.data_ptr(), source.data_ptr(), size)
    elif size:
        target.view(source.dtype).view(source.shape).copy_(source, non_blocking=True)


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("veracausa")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, max(size, 1))
    return fd
