"""The codec: what comes out is what went in, and whatever else comes in is refused by name."""

from __future__ import annotations

import json
import math
import random
import tracemalloc

import msgpack
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from veracausa.errors import WireError
from veracausa.wire.codec import LENGTH, MAGIC, MAX_HEADER, MAX_INDEX, MAX_TENSORS, PREFIX, check_prefix, decode, encode
from veracausa.wire.message import DTYPES, Kind, Message, TensorSpec

KIND = Kind(
    "payload",
    {
        "x": TensorSpec(torch.float32, (None, 3)),
        "ids": TensorSpec(torch.int64, (None,)),
        "flags": TensorSpec(torch.bool, (2,), optional=True),
    },
    {"epoch": int, "loss": float, "note": str},
)
KINDS = {KIND.name: KIND}
META = {"epoch": 3, "loss": 0.25, "note": "né"}
HEADER = {"sender": "a", "receiver": "b", "kind": "payload", "step": 7, "meta": META}


def message(**changes: object) -> Message:
    tensors = {"x": torch.arange(6.0).reshape(2, 3), "ids": torch.tensor([5, 9])}
    fields = {"sender": "a", "receiver": "b", "kind": "payload", "step": 7, "tensors": tensors, "meta": META}
    return Message(**{**fields, **changes})


def kind_of(sent: Message) -> Kind:
    """The kind that declares exactly this message."""
    specs = {name: TensorSpec(t.dtype, tuple(t.shape)) for name, t in sent.tensors.items()}
    return Kind(sent.kind, specs, {name: type(value) for name, value in sent.meta.items()})


def frame(header: object = HEADER, index: object = None, data: bytes = b"", **lengths: int) -> bytes:
    """A message put together by hand, so that any part of it can be a lie."""
    head = header if isinstance(header, bytes) else msgpack.packb(header)
    text = index if isinstance(index, bytes) else json.dumps(index if index is not None else {}).encode()
    body = LENGTH.pack(lengths.get("index_length", len(text))) + text + data
    return (
        PREFIX.pack(MAGIC, lengths.get("header_length", len(head)), lengths.get("body_length", len(body))) + head + body
    )


def entry(dtype: object, shape: object, *offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


X, IDS = entry("F32", [2, 3], 16, 40), entry("I64", [2], 0, 16)
DATA = bytes(40)


def refused(data: bytes, field: str, kinds: dict[str, Kind] = KINDS) -> None:
    with pytest.raises(WireError) as error:
        decode(data, kinds)
    assert error.value.field == field, str(error.value)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, NaNs included."""
    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


def raw(tensor: Tensor) -> bytes:
    flat = tensor.clone(memory_format=torch.contiguous_format).flatten()
    return flat.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    size = math.prod(shape)
    content = bytearray(draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize)))
    if dtype is torch.bool:
        content = bytearray(byte & 1 for byte in content)
    tensor = torch.frombuffer(content, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    form = draw(st.sampled_from(["plain", "transposed", "strided", "channels last", "expanded"]))
    if form == "transposed":
        return tensor.transpose(0, -1) if tensor.dim() else tensor
    if form == "strided":
        return tensor[..., ::2] if tensor.dim() else tensor
    if form == "channels last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor.unsqueeze(0).expand(3, *tensor.shape) if form == "expanded" else tensor


names = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__" and name.isprintable())
metas = st.dictionaries(
    names,
    st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    max_size=3,
)


@given(st.dictionaries(names, tensors(), max_size=4), metas, st.integers(0, (1 << 63) - 1))
@settings(max_examples=150, deadline=None)
def test_round_trip(sent: dict[str, Tensor], meta: dict[str, str | int | float], step: int) -> None:
    before = message(tensors=sent, meta=meta, step=step)
    data = encode(before)
    after = decode(data, {before.kind: kind_of(before)})
    assert (after.sender, after.receiver, after.kind, after.step, after.meta) == ("a", "b", "payload", step, meta)
    assert after.tensors.keys() == sent.keys()
    assert all(same(after.tensors[name], sent[name]) for name in sent)
    assert check_prefix(data[: PREFIX.size]) == len(data)


@given(st.dictionaries(names, tensors(), max_size=4))
@settings(max_examples=60, deadline=None)
def test_safetensors_reads_our_body_and_we_read_theirs(sent: dict[str, Tensor]) -> None:
    ours = message(tensors=sent, meta={})
    data = encode(ours)
    loaded = safetensors.torch.load(data[PREFIX.size + PREFIX.unpack_from(data)[1] :])
    assert loaded.keys() == sent.keys()
    assert all(same(loaded[name], sent[name]) for name in sent)

    body = safetensors.torch.save(
        {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in sent.items()}
    )
    header = msgpack.packb({**HEADER, "meta": {}})
    theirs = decode(PREFIX.pack(MAGIC, len(header), len(body)) + header + body, {"payload": kind_of(ours)})
    assert all(same(theirs.tensors[name], sent[name]) for name in sent)


def test_what_is_decoded_shares_no_memory_with_the_bytes() -> None:
    data = bytearray(encode(message()))
    after = decode(data, KINDS)
    data[PREFIX.size :] = bytes(len(data) - PREFIX.size)
    assert same(after.tensors["x"], message().tensors["x"])


def test_a_message_by_hand_is_taken() -> None:
    """Else the refusals below could come from `frame` itself."""
    after = decode(frame(index={"x": X, "ids": IDS}, data=DATA), KINDS)
    assert after.tensors["x"].shape == (2, 3)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_every_truncation_and_every_tail_is_refused(as_tensor: bool) -> None:
    data = encode(message())
    for cut in [*(data[:length] for length in range(len(data))), data + b"\0", data + data]:
        given_as = torch.tensor(list(cut), dtype=torch.uint8) if as_tensor else cut
        with pytest.raises(WireError) as error:
            decode(given_as, KINDS)
        assert error.value.field == ("prefix" if len(cut) < PREFIX.size else "body")


def test_sizes_are_refused_from_the_prefix_alone() -> None:
    with pytest.raises(WireError, match="at most") as error:
        check_prefix(PREFIX.pack(MAGIC, 10, 1 << 62))
    assert error.value.field == "body"
    with pytest.raises(WireError) as error:
        check_prefix(PREFIX.pack(MAGIC, MAX_HEADER + 1, 10))
    assert error.value.field == "header"
    with pytest.raises(WireError) as error:
        check_prefix(PREFIX.pack(MAGIC, 10, 101), max_body=100)
    assert error.value.field == "body"
    assert check_prefix(PREFIX.pack(MAGIC, 10, 100), max_body=100) == PREFIX.size + 110


def test_what_is_announced_is_not_allocated() -> None:
    huge = entry("F32", [1 << 30], 0, 1 << 32)
    lies = [
        frame(body_length=1 << 62),
        frame(header_length=MAX_HEADER * 4),
        frame(index={"x": huge}),
        frame(index_length=1 << 40),
    ]
    tracemalloc.start()
    for lie in lies:
        with pytest.raises(WireError):
            decode(lie, KINDS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "prefix"),
        (b"XXXX" + encode(message())[4:], "prefix"),
        (frame(b"\xc1"), "header"),
        (frame(b"\x93" * 3000), "header"),
        (frame([1]), "header"),
        (frame({**HEADER, "more": 1}), "header"),
        (frame({k: v for k, v in HEADER.items() if k != "step"}), "header"),
        (frame({**HEADER, "sender": 1}), "header.sender"),
        (frame({**HEADER, "kind": b"payload"}), "header.kind"),
        (frame({**HEADER, "step": True}), "header.step"),
        (frame({**HEADER, "step": -1}), "header.step"),
        (frame({**HEADER, "step": 1 << 63}), "header.step"),
        (frame({**HEADER, "meta": [1]}), "header.meta"),
        (frame({**HEADER, "meta": {"epoch": [1]}}), "header.meta"),
        (frame({**HEADER, "meta": {b"epoch": 1}}), "header.meta"),
        (frame({**HEADER, "kind": "gossip"}), "kind"),
        (frame(index=b"{"), "body.index"),
        (frame(index=b"\xff\xfe"), "body.index"),
        (frame(index=b"[" * 100_000), "body.index"),
        (frame(index=b"[1]"), "body.index"),
        (frame(index=b" " * (MAX_INDEX + 8)), "body.index"),
        (frame(index={str(i): entry("U8", [0], 0, 0) for i in range(MAX_TENSORS + 1)}), "body.index"),
        (frame(index=b'{"x":1,"x":2}'), "body.index"),
        (frame(index_length=9), "body.index"),
        (frame(index={"x": 1}), "body.x"),
        (frame(index={"x": {"dtype": "F32", "shape": [1]}}), "body.x"),
        (frame(index={"x": entry("F99", [1], 0, 4)}), "body.x.dtype"),
        (frame(index={"x": entry(None, [1], 0, 4)}), "body.x.dtype"),
        (frame(index={"x": entry("F32", [-1], 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", [1 << 60], 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", [1.0], 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", [True], 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", [1] * 9, 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", "1", 0, 4)}), "body.x.shape"),
        (frame(index={"x": entry("F32", [])}), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [1], 4)}), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [1], 0, 4, 8)}), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [1], -4, 0)}), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [1], 4, 0)}), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [2, 3], 0, 20)}, data=bytes(20)), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [2, 3], 8, 32), "ids": IDS}, data=DATA), "body.x.data_offsets"),
        (frame(index={"x": entry("F32", [2, 3], 24, 48), "ids": IDS}, data=bytes(48)), "body.x.data_offsets"),
        (frame(index={"x": X, "ids": IDS}, data=DATA + b"\0"), "body"),
        (frame(index={"x": X, "ids": IDS}, data=DATA[:-1]), "body"),
        (frame(index={"x": X, "ids": IDS, "y": entry("U8", [0], 40, 40)}, data=DATA), "payload.y"),
        (frame(index={"ids": IDS}, data=bytes(16)), "payload.x"),
        (frame(index={"x": entry("F32", [3, 2], 16, 40), "ids": IDS}, data=DATA), "payload.x"),
        (frame(index={"x": entry("F32", [6], 16, 40), "ids": IDS}, data=DATA), "payload.x"),
        (frame(index={"x": entry("I32", [2, 3], 16, 40), "ids": IDS}, data=DATA), "payload.x"),
    ],
)
def test_a_refusal_names_the_part(data: bytes, field: str) -> None:
    refused(data, field)


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        ({**META, "secret": 1}, "payload.secret"),
        ({"epoch": 3, "loss": 0.25}, "payload.note"),
        ({**META, "epoch": "3"}, "payload.epoch"),
        ({**META, "epoch": True}, "header.meta"),
        ({**META, "loss": 1}, "payload.loss"),
        ({**META, "loss": math.nan}, "payload.loss"),
        ({**META, "loss": math.inf}, "payload.loss"),
    ],
)
def test_meta_is_held_to_its_declaration(meta: dict[str, object], field: str) -> None:
    refused(frame({**HEADER, "meta": meta}, {"x": X, "ids": IDS}, DATA), field)


def test_a_free_size_is_bounded() -> None:
    kinds = {"payload": Kind("payload", {"x": TensorSpec(torch.uint8, (None,), max_free=4)})}
    header = {**HEADER, "meta": {}}
    assert decode(frame(header, {"x": entry("U8", [4], 0, 4)}, bytes(4)), kinds).tensors["x"].shape == (4,)
    refused(frame(header, {"x": entry("U8", [5], 0, 5)}, bytes(5)), "payload.x", kinds)


def test_an_empty_tensor_with_impossible_strides_is_refused() -> None:
    shape = [0, *[1 << 24] * 7]
    kinds = {"payload": Kind("payload", {"x": TensorSpec(torch.float64, (None,) * 8)})}
    refused(frame({**HEADER, "meta": {}}, {"x": entry("F64", shape, 0, 0)}), "body.x.shape", kinds)


def test_a_bool_that_is_neither_true_nor_false_is_refused() -> None:
    index = {"x": X, "ids": IDS, "flags": entry("BOOL", [2], 40, 42)}
    assert decode(frame(index=index, data=DATA + b"\0\1"), KINDS).tensors["flags"].tolist() == [False, True]
    refused(frame(index=index, data=DATA + b"\0\2"), "body.flags")


def test_a_peers_words_are_shortened_and_printable_in_the_error() -> None:
    for data in (
        frame(index={"\ud800" * 500: entry("U8", [0], 0, 0)}),
        frame(index={"\x1b[2J" * 500: 1}),
        frame({**HEADER, "kind": "\x1b" * 9000}),
    ):
        with pytest.raises(WireError) as error:
            decode(data, KINDS)
        assert len(str(error.value)) < 600
        assert str(error.value).isascii()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tensors": {"x": torch.zeros(1, dtype=torch.complex64)}}, "payload.x"),
        ({"tensors": {"x": torch.zeros(1).to_sparse()}}, "payload.x"),
        ({"tensors": {"x": torch.zeros([1] * 9)}}, "payload.x"),
        ({"tensors": {str(i): torch.zeros(0) for i in range(MAX_TENSORS + 1)}}, "body.index"),
        ({"step": -1}, "header.step"),
        ({"meta": {"note": "x" * (MAX_HEADER + 1)}}, "header"),
        ({"meta": {"epoch": 1 << 70}}, "header"),
        ({"meta": {"note": "\ud800"}}, "header"),
    ],
)
def test_the_sender_refuses_what_no_receiver_takes(changes: dict[str, object], field: str) -> None:
    with pytest.raises(WireError) as error:
        encode(message(**changes))
    assert error.value.field == field


def test_the_sender_refuses_a_body_over_the_limit() -> None:
    with pytest.raises(WireError) as error:
        encode(message(), max_body=100)
    assert error.value.field == "body"


def test_mutated_messages_are_refused_or_valid() -> None:
    rng = random.Random(20261115)
    more = message(tensors={**message().tensors, "flags": torch.tensor([True, False])})
    seeds = [encode(message()), encode(more), frame(index={"x": X, "ids": IDS}, data=DATA)]
    taken = named = 0
    tracemalloc.start()
    for _ in range(3000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice([1, 1, 2, 5])):
            place = rng.randrange(len(data)) if data else 0
            match rng.choice(["flip", "flip", "byte", "cut", "splice", "digit"]):
                case "flip" if data:
                    data[place] ^= 1 << rng.randrange(8)
                case "byte" if data:
                    data[place] = rng.randrange(256)
                case "cut":
                    del data[place : place + rng.randrange(1, 9)]
                case "splice":
                    other = rng.choice(seeds)
                    start = rng.randrange(len(other))
                    data[place:place] = other[start : start + rng.randrange(1, 30)]
                case "digit":  # the numbers of the index are where a lie would pay
                    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
                    if digits:
                        data[rng.choice(digits)] = rng.randrange(48, 58)
        try:
            after = decode(bytes(data), KINDS)
        except WireError as error:
            named += bool(error.field)
        else:
            taken += 1
            after.check(KIND)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert taken + named == 3000
    assert taken > 50  # flips inside tensor bytes are no business of the codec
