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
from typing import Any

import msgpack
import torch
from torch import Tensor

from veracausa.errors import WireError
from veracausa.wire.message import DTYPE_NAMES, DTYPES, Kind, Message, shown

MAGIC = b"VCW1"
PREFIX = struct.Struct("<4sIQ")
LENGTH = struct.Struct("<Q")
MAX_HEADER = 1 << 16
MAX_INDEX = 1 << 20
MAX_TENSORS = 1 << 10
MAX_RANK = 8
DEFAULT_MAX_BODY = 1 << 30


@dataclass(frozen=True)
class Layout:
    """Where each part of an encoded message goes; nothing of the tensors is copied yet."""

    head: bytes
    places: tuple[tuple[int, Tensor], ...]
    nbytes: int

    def write(self, buffer: Tensor) -> None:
        """Write the message into a uint8 tensor of `nbytes`; each tensor's bytes are copied once."""
        buffer[: len(self.head)] = torch.frombuffer(bytearray(self.head), dtype=torch.uint8)
        for offset, tensor in self.places:
            size = tensor.numel() * tensor.element_size()
            if size:
                buffer[offset : offset + size].view(tensor.dtype).view(tensor.shape).copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for _, tensor in self.places):
            torch.cuda.current_stream().synchronize()


def layout(message: Message, max_body: int = DEFAULT_MAX_BODY) -> Layout:
    """Plan the encoding of a message: its head and the offset of every tensor."""
    if len(message.tensors) > MAX_TENSORS:
        raise WireError("body.index", f"{len(message.tensors)} tensors, at most {MAX_TENSORS} may cross")
    entries: dict[str, Any] = {}
    relative: list[tuple[int, Tensor]] = []
    end = 0
    # Widest elements first keeps every tensor aligned, as the safetensors library does.
    ordered = sorted(message.tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, tensor in ordered:
        if tensor.dtype not in DTYPE_NAMES:
            raise WireError(f"{message.kind}.{name}", f"{tensor.dtype} may not cross")
        if tensor.layout != torch.strided or tensor.dim() > MAX_RANK:
            raise WireError(f"{message.kind}.{name}", f"only dense tensors of at most {MAX_RANK} dimensions may cross")
        size = tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        relative.append((end, tensor.detach()))
        end += size
    index = json.dumps(entries, separators=(",", ":")).encode()
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
    head = PREFIX.pack(MAGIC, len(header), body) + header + LENGTH.pack(len(index)) + index
    places = tuple((len(head) + offset, tensor) for offset, tensor in relative)
    return Layout(head, places, len(head) + end)


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
) -> Message:
    """The message, its tensors copied out of `data`; refused unless it is of a declared kind and shape."""
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
    tensors = {
        name: _copy_out(name, whole[data_start + begin : data_start + end], dtype, shape, device)
        for name, (dtype, shape, begin, end) in entries.items()
    }
    return Message(fields["sender"], fields["receiver"], fields["kind"], fields["step"], tensors, fields["meta"])


def _copy_out(
    name: str, raw: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device | None
) -> Tensor:
    if raw.storage_offset() % dtype.itemsize or dtype is torch.bool:
        raw = raw.clone()
    # A bool that is neither 0 nor 1 is undefined behaviour in the kernels that read it.
    if dtype is torch.bool and bool((raw > 1).any()):
        raise WireError(f"body.{name}", "holds bytes that are neither true nor false")
    try:
        shaped = raw.view(dtype).view(shape) if raw.numel() else torch.empty(shape, dtype=dtype)
    except RuntimeError:  # an empty tensor whose other sizes overflow the strides
        raise WireError(f"body.{name}.shape", "is not a size that a tensor can have") from None
    return shaped.to(device) if device is not None and device.type == "cuda" else shaped.clone()


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


def _index(view: memoryview, start: int) -> tuple[dict[str, tuple[torch.dtype, tuple[int, ...], int, int]], int]:
    if len(view) < start + LENGTH.size:
        raise WireError("body", "is shorter than its own length field")
    (length,) = LENGTH.unpack_from(view, start)
    if length > MAX_INDEX:
        raise WireError("body.index", f"announces {length} bytes, at most {MAX_INDEX} are taken")
    data_start = start + LENGTH.size + length
    if data_start > len(view):
        raise WireError("body.index", f"announces {length} bytes, {len(view) - start - LENGTH.size} are there")
    try:
        index = json.loads(str(view[start + LENGTH.size : data_start], "utf-8"), object_pairs_hook=_unique)
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
    if data_start + end != len(view):
        raise WireError("body", f"holds {len(view) - data_start} bytes of tensors, {end} are described")
    return entries, data_start


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
