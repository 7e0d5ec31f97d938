"""Messages as bytes: a fixed prefix, a msgpack header, a safetensors body. Never pickle.

    4 bytes  magic "VCW1"
    4 bytes  length of the header, little-endian
    8 bytes  length of the body, little-endian
    header   msgpack map: sender, receiver, kind, step, meta
    body     the safetensors format: 8 bytes length, JSON, tensor bytes

The body is written here rather than by the safetensors library so that a tensor is copied once, straight into the
memory that crosses (a pinned arena, a socket buffer), and so that a refusal can name the field that is wrong; a test
has each read what the other wrote.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
import torch
from torch import Tensor

from veracausa.errors import WireError
from veracausa.wire.memory import copy_bytes
from veracausa.wire.message import DTYPE_NAMES, DTYPES, Described, Kind, Message, shown

MAGIC = b"VCW1"
PREFIX = struct.Struct("<4sIQ")
LENGTH = struct.Struct("<Q")
MAX_HEADER = 1 << 16
MAX_INDEX = 1 << 20
MAX_TENSORS = 1 << 10
MAX_RANK = 8
SMALL_INDEX = 1 << 12
"""Bytes of an index up to which what was made of it is kept: a stranger must not fill the memory with large ones."""
DEFAULT_MAX_BODY = 1 << 30
_ONLY_DENSE = f"only dense tensors of at most {MAX_RANK} dimensions may cross"
ALIGNMENT = 64
"""Where torch lets the memory of a new tensor begin."""


Entries = Mapping[str, tuple[torch.dtype, tuple[int, ...], int, int]]
"""Of each tensor its type, its shape, and where its bytes begin and end."""


@dataclass(slots=True)
class Layout:
    """Where each part of an encoded message goes; nothing is put together yet, and nothing of the tensors copied."""

    header: bytes
    index: bytes
    tensors: Mapping[str, Tensor]
    order: tuple[str, ...]
    offsets: tuple[int, ...]
    """Where each tensor starts among the bytes of all; last, where they end."""
    nbytes: int

    def write(self, buffer: Tensor) -> None:
        """Write the message into a uint8 tensor of `nbytes`; each tensor's bytes are copied once."""
        start = self.nbytes - self.offsets[-1]
        body = self.nbytes - PREFIX.size - len(self.header)
        head = PREFIX.pack(MAGIC, len(self.header), body) + self.header + LENGTH.pack(len(self.index)) + self.index
        memoryview(buffer.numpy())[:start] = head  # type: ignore[arg-type]
        cuda = False
        for name, offset in zip(self.order, self.offsets, strict=False):
            tensor, at = self.tensors[name].detach(), start + offset
            copy_bytes(buffer[at : at + tensor.numel() * tensor.element_size()], tensor)
            cuda = cuda or tensor.is_cuda
        if cuda:
            torch.cuda.current_stream().synchronize()


def layout(message: Message, max_body: int = DEFAULT_MAX_BODY) -> Layout:
    """Plan the encoding of a message: its head and the offset of every tensor."""
    tensors = message.tensors
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided:
            raise WireError(f"{message.kind}.{name}", _ONLY_DENSE)
    index, order, offsets = _describe(tuple([(name, t.dtype, t.shape) for name, t in tensors.items()]), message.kind)
    end = offsets[-1]
    fields = {
        "sender": message.sender,
        "receiver": message.receiver,
        "kind": message.kind,
        "step": message.step,
        "meta": dict(message.meta),
    }
    if not 0 <= message.step < 1 << 63:
        raise WireError("header.step", "is out of range")
    try:
        header = msgpack.packb(fields)
    except (ValueError, OverflowError, TypeError) as error:
        raise WireError("header", f"cannot be written: {error}") from None
    # Tensors must start on an 8-byte boundary of the whole message to be copied without an intermediate buffer.
    padding = -(PREFIX.size + len(header) + LENGTH.size + len(index)) % 8
    index += b" " * padding
    if len(index) > MAX_INDEX:
        raise WireError("body.index", f"{len(index)} bytes, at most {MAX_INDEX} may cross")
    body = LENGTH.size + len(index) + end
    if len(header) > MAX_HEADER:
        raise WireError("header", f"{len(header)} bytes, at most {MAX_HEADER} may cross")
    if body > max_body:
        raise WireError("body", f"{body} bytes, at most {max_body} may cross")
    return Layout(header, index, tensors, order, offsets, PREFIX.size + len(header) + body)


@lru_cache(maxsize=256)  # a training run sends the same few shapes over and over
def _describe(tensors: Described, kind: str) -> tuple[bytes, tuple[str, ...], tuple[int, ...]]:
    """The index of a body, its tensors in the order they are written, and where each starts; last, where all end."""
    for name, dtype, shape in tensors:
        if dtype not in DTYPE_NAMES:
            raise WireError(f"{kind}.{name}", f"{dtype} may not cross")
        if len(shape) > MAX_RANK:
            raise WireError(f"{kind}.{name}", _ONLY_DENSE)
    if len(tensors) > MAX_TENSORS:
        raise WireError("body.index", f"{len(tensors)} tensors, at most {MAX_TENSORS} may cross")
    # Widest elements first keeps every tensor aligned, as the safetensors library does.
    ordered = sorted(tensors, key=lambda tensor: (-tensor[1].itemsize, tensor[0]))
    offsets = [0]
    entries: dict[str, Any] = {}
    for name, dtype, shape in ordered:
        offsets.append(offsets[-1] + math.prod(shape) * dtype.itemsize)
        entries[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": offsets[-2:]}
    index = json.dumps(entries, separators=(",", ":")).encode()
    return index, tuple(name for name, _, _ in ordered), tuple(offsets)


def encode(message: Message, max_body: int = DEFAULT_MAX_BODY) -> bytes:
    """The message as bytes."""
    plan = layout(message, max_body)
    buffer = torch.empty(plan.nbytes, dtype=torch.uint8)
    plan.write(buffer)
    return buffer.numpy().tobytes()


def check_prefix(prefix: bytes, max_body: int = DEFAULT_MAX_BODY) -> int:
    """The length of the whole message, refused before anything of that size is allocated."""
    if len(prefix) < PREFIX.size:
        raise WireError("prefix", f"{len(prefix)} bytes of {PREFIX.size}")
    magic, header, body = PREFIX.unpack_from(prefix)
    if magic != MAGIC:
        raise WireError("prefix", "not a veracausa message")
    if header > MAX_HEADER:
        raise WireError("header", f"announces {header} bytes, at most {MAX_HEADER} are taken")
    if body > max_body:
        raise WireError("body", f"announces {body} bytes, at most {max_body} are taken")
    return int(PREFIX.size + header + body)


def decode(
    data: bytes | bytearray | memoryview | Tensor,
    kinds: Mapping[str, Kind],
    max_body: int = DEFAULT_MAX_BODY,
    device: torch.device | None = None,
    owned: bool = False,
) -> Message:
    """The message, its tensors copied out of `data`; refused unless it is of a declared kind and shape.

    With `owned` nobody else writes to `data`; what begins there where a tensor's memory would begin is not copied.
    """
    view: memoryview = memoryview(data.numpy() if isinstance(data, Tensor) else data)  # type: ignore[arg-type]
    # Read once: in shared memory the sender could still change it after the check.
    prefix = bytes(view[: PREFIX.size])
    total = check_prefix(prefix, max_body)
    if len(view) != total:
        raise WireError("body", f"{len(view)} bytes, {total} were announced")
    whole = data if isinstance(data, Tensor) else torch.frombuffer(bytearray(data), dtype=torch.uint8)
    header_length = PREFIX.unpack(prefix)[1]
    fields = _header(bytes(view[PREFIX.size : PREFIX.size + header_length]))
    if fields["kind"] not in kinds:
        raise WireError("kind", f"{shown(fields['kind'])!r} was not declared")
    start = PREFIX.size + header_length
    entries, data_start = _index(view, start)
    described = {name: (entry[0], entry[1]) for name, entry in entries.items()}
    kinds[fields["kind"]].check(described, fields["meta"])
    tensors = {}
    for name, (dtype, shape, begin, end) in entries.items():
        raw = whole[data_start + begin : data_start + end]
        # Elsewhere than a new tensor's memory would, a kernel may round differently.
        if owned and len(raw) and dtype is not torch.bool and not raw.data_ptr() % ALIGNMENT:
            tensors[name] = torch.frombuffer(view[data_start + begin : data_start + end], dtype=dtype).view(shape)
        else:
            tensors[name] = _copy_out(name, raw, dtype, shape, device)
    return Message(fields["sender"], fields["receiver"], fields["kind"], fields["step"], tensors, fields["meta"])


def _copy_out(
    name: str, raw: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device | None
) -> Tensor:
    try:
        copied = torch.empty(shape, dtype=dtype)
    except RuntimeError:  # an empty tensor whose other sizes overflow the strides
        raise WireError(f"body.{name}.shape", "is not a size that a tensor can have") from None
    if device is not None and device.type == "cuda" and not raw.storage_offset() % dtype.itemsize and raw.numel():
        copied = raw.view(dtype).view(shape).to(device)
    else:
        copy_bytes(copied, raw)
    # A bool that is neither 0 nor 1 is undefined behaviour in the kernels that read it.
    if dtype is torch.bool and bool((copied.view(torch.uint8) > 1).any()):
        raise WireError(f"body.{name}", "holds bytes that are neither true nor false")
    return copied if device is None else copied.to(device)


def _header(raw: bytes) -> dict[str, Any]:
    try:
        fields = msgpack.unpackb(raw, strict_map_key=True)
    except Exception as error:  # msgpack raises a family of its own on malformed bytes
        raise WireError("header", f"not msgpack ({type(error).__name__})") from None
    expected = {"sender": str, "receiver": str, "kind": str, "step": int, "meta": dict}
    if not isinstance(fields, dict) or set(fields) != set(expected):
        raise WireError("header", "must hold exactly sender, receiver, kind, step and meta")
    for name, kind in expected.items():
        if type(fields[name]) is not kind:
            raise WireError(f"header.{name}", f"is a {type(fields[name]).__name__}")
    if not 0 <= fields["step"] < 1 << 63:
        raise WireError("header.step", "is out of range")
    for name, value in fields["meta"].items():
        if not isinstance(name, str) or type(value) not in (str, int, float):
            raise WireError("header.meta", "holds something else than text and numbers")
    return fields


def _index(view: memoryview, start: int) -> tuple[Entries, int]:
    if len(view) < start + LENGTH.size:
        raise WireError("body", "is shorter than its own length field")
    (length,) = LENGTH.unpack_from(view, start)
    if length > MAX_INDEX:
        raise WireError("body.index", f"announces {length} bytes, at most {MAX_INDEX} are taken")
    data_start = start + LENGTH.size + length
    if data_start > len(view):
        raise WireError("body.index", f"announces {length} bytes, {len(view) - start - LENGTH.size} are there")
    raw = bytes(view[start + LENGTH.size : data_start])
    parse = _known_entries if length <= SMALL_INDEX else _entries
    return parse(raw, len(view) - data_start), data_start


def _entries(raw: bytes, size: int) -> Entries:
    """What an index says of the `size` bytes that follow it."""
    try:
        index = json.loads(raw.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise WireError("body.index", "not JSON") from None
    if not isinstance(index, dict) or len(index) > MAX_TENSORS:
        raise WireError("body.index", f"must be a map of at most {MAX_TENSORS} tensors")
    entries = {name: _entry(name, entry) for name, entry in index.items()}
    end = 0
    for name, (_, _, begin, stop) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != end:
            raise WireError(f"body.{shown(name)}.data_offsets", f"starts at {begin}, the one before ends at {end}")
        end = stop
    if end != size:
        raise WireError("body", f"holds {size} bytes of tensors, {end} are described")
    return entries


_known_entries = lru_cache(maxsize=256)(_entries)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers of a repeated name may see two different messages.
    if len(unique := dict(pairs)) != len(pairs):
        raise ValueError("a name is repeated")
    return unique


def _entry(name: str, entry: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    name = shown(name)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise WireError(f"body.{name}", "must hold exactly dtype, shape and data_offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise WireError(f"body.{name}.dtype", f"{shown(str(entry['dtype']))!r} may not cross")
    dtype = DTYPES[entry["dtype"]]
    shape = _sizes(name, "shape", entry["shape"], range(MAX_RANK + 1))
    begin, end = _sizes(name, "data_offsets", entry["data_offsets"], range(2, 3))
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise WireError(f"body.{name}.data_offsets", "do not match dtype and shape")
    return dtype, tuple(shape), begin, end


def _sizes(name: str, part: str, value: Any, lengths: range) -> list[int]:
    if not isinstance(value, list) or len(value) not in lengths:
        raise WireError(f"body.{name}.{part}", "must be a short list of sizes")
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in value):
        raise WireError(f"body.{name}.{part}", "must hold sizes")
    return value
