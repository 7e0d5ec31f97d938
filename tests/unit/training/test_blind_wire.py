"""What a peer sends in blind training is refused with a `WireError`, or in range: `fuzz_blind.py` in short."""

from __future__ import annotations

import pytest

pytest.importorskip("seal")

from fuzz_blind import blind_targets, fuzz_blind
from veracausa.errors import WireError
from veracausa.wire.codec import encode
from veracausa.wire.message import Message


@pytest.mark.xdist_group("bfv")
def test_mutated_messages_of_every_kind():
    found = fuzz_blind(3000, seed=1, seconds=20)
    assert found["messages"] > 500
    for kind in ("head", "answer", "ask", "labels", "width", "mask_seed", "hello", "head_kept"):
        assert any(count and what.startswith(f"{kind}: refused") for what, count in found.items()), kind


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("ask", {"split": "train", "start": 0, "rows": 5}),
        ("ask", {"split": "test", "start": -5, "rows": 5}),
        ("ask", {"split": "test", "start": 12, "rows": 1}),
        ("ask", {"split": "test", "start": 0, "rows": 1}),  # one row at a time
        ("width", {"features": 0}),
        ("width", {"features": 1025}),
        ("labels", {"classes": 2}),
        ("hello", {"train": 11, "validation": 12, "test": 12, "held": 12}),
    ],
)
def test_well_formed_lies(kind, changed):
    (target,) = (target for target in blind_targets() if target.kind.name == kind)
    good = target.good
    lie = Message(good.sender, good.receiver, good.kind, good.step, good.tensors, changed)
    with pytest.raises(WireError, match=kind):
        target.read(bytes(encode(lie)))
