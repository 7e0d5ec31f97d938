"""Bytes that belong to whoever decodes them: tensors are made of them in place, exactly where that changes nothing."""

from __future__ import annotations

import pytest
import torch
from refusals import Field

from veracausa.errors import WireError
from veracausa.wire.codec import ALIGNMENT, decode, encode
from veracausa.wire.flare.frames import Assembly, room
from veracausa.wire.message import Kind, Message, TensorSpec

FLOATS = Kind("floats", {"x": TensorSpec(torch.float32, (None, 4))})
FLAGS = Kind("flags", {"x": TensorSpec(torch.bool, (None,))})
X = torch.arange(64, dtype=torch.float32).view(16, 4)


def laid(message: bytes, end: int = 0) -> torch.Tensor:
    """A message whose last byte lies `end` bytes before a place where a tensor's memory could begin."""
    whole = room(len(message) + end)[: len(message)]
    whole.copy_(torch.frombuffer(bytearray(message), dtype=torch.uint8))
    return whole


def inside(tensor: torch.Tensor, whole: torch.Tensor) -> bool:
    return whole.data_ptr() <= tensor.data_ptr() < whole.data_ptr() + len(whole)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_room_ends_where_a_tensor_could_begin(size: int) -> None:
    assert len(room(size)) == size
    assert (room(size).data_ptr() + size) % ALIGNMENT == 0


def test_an_aligned_tensor_of_owned_bytes_is_not_copied() -> None:
    whole = laid(encode(Message("a", "b", "floats", 0, {"x": X}, {})))
    got = decode(whole, {"floats": FLOATS}, owned=True).tensors["x"]
    assert inside(got, whole)
    assert got.storage_offset() == 0
    assert got.is_contiguous()
    assert torch.equal(got, X)
    kept = decode(whole, {"floats": FLOATS}).tensors["x"]
    assert not inside(kept, whole)
    assert torch.equal(kept, X)


@pytest.mark.parametrize("end", [4, 8, 32])
def test_elsewhere_it_is_copied_to_where_a_tensor_begins(end: int) -> None:
    whole = laid(encode(Message("a", "b", "floats", 0, {"x": X}, {})), end)
    got = decode(whole, {"floats": FLOATS}, owned=True).tensors["x"]
    assert not inside(got, whole)
    assert got.data_ptr() % ALIGNMENT == 0
    assert torch.equal(got, X)


def test_a_bool_is_still_looked_at() -> None:
    message = bytearray(encode(Message("a", "b", "flags", 0, {"x": torch.ones(64, dtype=torch.bool)}, {})))
    message[-1] = 2
    with pytest.raises(WireError, check=Field("body.x")):
        decode(laid(bytes(message)), {"flags": FLAGS}, owned=True)


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_message_in_pieces_that_nobody_may_write_is_put_together_in_such_room(pieces: int) -> None:
    message = encode(Message("a", "b", "floats", 0, {"x": X}, {}))
    assembly, step = Assembly(1 << 20), -(-len(message) // pieces)
    parts = [memoryview(message)[at : at + step] for at in range(0, len(message), step)]
    whole = [assembly.add(part) for part in parts][-1]
    assert whole is not None
    got = decode(whole, {"floats": FLOATS}, owned=True).tensors["x"]
    assert inside(got, whole)
    assert torch.equal(got, X)
