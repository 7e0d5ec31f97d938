"""A message, the declaration of the kinds that may cross, and what a party announces that it will send."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from veracausa.errors import WireError
from veracausa.escaping import escaped_ascii

Scalar = str | int | float

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The tensor types that may cross, by the names the safetensors format gives them."""

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

Described = tuple[tuple[str, torch.dtype, torch.Size], ...]
"""The tensors of a message, without what is in them."""
MOST_PASSED = 64


def shown(text: str) -> str:
    """A peer's text, short and printable enough to stand in an error, on a screen or in a log."""
    return escaped_ascii(text[:60])


@dataclass(frozen=True)
class TensorSpec:
    """What one tensor of a kind may look like. `None` in the shape is a free size, bounded by `max_free`."""

    dtype: torch.dtype
    shape: tuple[int | None, ...]
    max_free: int = 1 << 24
    optional: bool = False

    def check(self, field_name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        if dtype != self.dtype:
            raise WireError(field_name, f"is {dtype}, declared {self.dtype}")
        fits = len(shape) == len(self.shape) and all(
            (0 <= size <= self.max_free) if declared is None else size == declared
            for size, declared in zip(shape, self.shape, strict=True)
        )
        if not fits:
            declared = "×".join("?" if size is None else str(size) for size in self.shape)
            raise WireError(field_name, f"has shape {'×'.join(map(str, shape)) or 'scalar'}, declared {declared}")


@dataclass(frozen=True)
class Kind:
    """What may cross, declared once; anything else is refused at both ends."""

    name: str
    tensors: Mapping[str, TensorSpec] = field(default_factory=dict)
    meta: Mapping[str, type | tuple[type, ...]] = field(default_factory=dict)
    secret_shared: bool = False
    _passed: set[Described] = field(default_factory=set, init=False, repr=False, compare=False)
    """Descriptions of tensors that passed: a run sends the same few over and over."""

    def check_message(self, message: Message) -> None:
        """`check` of a whole message. A description that was seen to pass before is not looked at again."""
        described = tuple([(name, tensor.dtype, tensor.shape) for name, tensor in message.tensors.items()])
        if described not in self._passed:
            self._check_tensors({name: (dtype, tuple(shape)) for name, dtype, shape in described})
            if len(self._passed) >= MOST_PASSED:  # sizes may be a peer's choice: they must not fill the memory
                self._passed.clear()
            self._passed.add(described)
        if message.meta or self.meta:
            self._check_meta(message.meta)

    def check(self, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], meta: Mapping[str, Scalar]) -> None:
        """Raise a `WireError` that names the first tensor or meta field that was not declared so."""
        self._check_tensors(tensors)
        self._check_meta(meta)

    def _check_tensors(self, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> None:
        for name, (dtype, shape) in tensors.items():
            if name not in self.tensors:
                raise WireError(f"{self.name}.{shown(name)}", "no such tensor was declared")
            self.tensors[name].check(f"{self.name}.{name}", dtype, shape)
        for name, spec in self.tensors.items():
            if name not in tensors and not spec.optional:
                raise WireError(f"{self.name}.{name}", "is missing")

    def _check_meta(self, meta: Mapping[str, Scalar]) -> None:
        for name, value in meta.items():
            if name not in self.meta:
                raise WireError(f"{self.name}.{shown(name)}", "no such field was declared")
            if not isinstance(value, self.meta[name]) or isinstance(value, bool):
                raise WireError(f"{self.name}.{name}", f"is a {type(value).__name__}")
            if isinstance(value, float) and not math.isfinite(value):
                raise WireError(f"{self.name}.{name}", "is not finite")
        for name in self.meta:
            if name not in meta:
                raise WireError(f"{self.name}.{name}", "is missing")


@dataclass(frozen=True)
class Message:
    """One message between two parties."""

    sender: str
    receiver: str
    kind: str
    step: int
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Scalar] = field(default_factory=dict)

    def check(self, kind: Kind) -> None:
        kind.check_message(self)

    def shapes(self) -> dict[str, list[int]]:
        return {name: list(tensor.shape) for name, tensor in self.tensors.items()}


MESSAGE = 180
"""About how many bytes a message has beside its tensors."""


@dataclass(frozen=True)
class Declared:
    """What a party will send of one kind, as far as it can be known before anything runs."""

    kind: str
    to: tuple[str, ...]
    shape: str
    per: Literal["epoch", "run"]
    bytes: int | None
    """About so many to all receivers together; None: that depends on a partner, as `shape` says."""
