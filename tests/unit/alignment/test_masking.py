"""Ids become points as RFC 9380 says, and masks commute, with or without gmpy2."""

from __future__ import annotations

import builtins
import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veracausa.alignment import masking
from veracausa.alignment.masking import SMALL_ORDER, Workers, fault, shuffle
from veracausa.errors import InputError, RunError

DOMAIN = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
VECTORS = (
    (b"", "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
     "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b"),
    (b"abc", "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
     "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb"),
    (b"abcdef0123456789", "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
     "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f"),
)  # fmt: skip
"""Of the RFC's appendix: message, the field element it is hashed to, and the x-coordinate of its point."""

KEYS = st.binary(min_size=32, max_size=32)


def without_gmpy2(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as it is where gmpy2 is not installed."""
    usual = builtins.__import__

    def importing(name: str, *rest: Any, **named: Any) -> Any:
        if name == "gmpy2":
            raise ImportError(name)
        return usual(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", importing)
    spec = importlib.util.spec_from_file_location("curve_without_gmpy2", masking.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.mpz is int
    return module


@pytest.mark.parametrize(("message", "element", "x"), VECTORS)
def test_ids_become_the_points_of_the_standard(message: bytes, element: str, x: str) -> None:
    uniform = masking.expand(message, DOMAIN)
    assert int.from_bytes(uniform, "big") % masking.P == int(element, 16)
    assert masking.to_curve(uniform) == bytes.fromhex(x)[::-1]


def test_the_slow_way_gives_the_same_points(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = without_gmpy2(monkeypatch)
    for message in (b"a", b"b", b"c", b"d"):
        uniform = masking.expand(message, DOMAIN)
        assert slow.to_curve(uniform) == masking.to_curve(uniform)


@given(st.binary(min_size=48, max_size=48))
def test_every_point_is_on_the_curve_and_not_on_its_twist(uniform: bytes) -> None:
    u = int.from_bytes(masking.to_curve(uniform), "little")
    assert pow(u**3 + masking.A * u**2 + u, (masking.P - 1) // 2, masking.P) in (0, 1)


@given(st.text(), KEYS, KEYS)
def test_masks_commute(name: str, one: bytes, other: bytes) -> None:
    point = masking.to_curve(masking.expand(name.encode("utf-8", "surrogatepass"), b"test"))
    a, b = masking.masking(one), masking.masking(other)
    assert a(b(point)) == b(a(point)) != point


def test_another_session_gives_unrelated_points() -> None:
    assert masking.expand(b"17", b"one") != masking.expand(b"17", b"other")


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_point_of_small_order_is_never_masked(point: bytes) -> None:
    with pytest.raises(masking.SmallOrder):
        masking.masking(masking.new_key())(point)


def rows(*values: int) -> Any:
    return np.frombuffer(b"".join(value.to_bytes(32, "little") for value in values), dtype=np.uint8).reshape(-1, 32)


def test_only_canonical_points_are_taken() -> None:
    assert fault(rows(2, masking.P - 2, 2**254)) is None
    for value in (masking.P, masking.P + 1, 2**255 - 1, 2**255, 2**256 - 1, 9 + 2**255):
        assert "canonical" in str(fault(rows(9, value)))
    for small in SMALL_ORDER:
        assert "small order" in str(fault(rows(9, int.from_bytes(small, "little"))))


@given(st.integers(0, 50))
def test_a_shuffle_has_every_place_once(count: int) -> None:
    assert sorted(shuffle(count).tolist()) == list(range(count))


def test_two_shuffles_differ() -> None:
    assert shuffle(64).tolist() != shuffle(64).tolist()


def test_processes_mask_as_this_process_does_and_in_order() -> None:
    key = masking.new_key()
    points = [masking.expand(bytes([i]), b"t") + masking.expand(bytes([i, i]), b"t") for i in range(6)]
    points.insert(3, b"")
    with Workers(key, 0) as here, Workers(key, 2) as there:
        assert list(there.mask(points, masking.UNIFORM)) == list(here.mask(points, masking.UNIFORM))
        good = masking.to_curve(points[0][:48])
        with pytest.raises(masking.SmallOrder):
            list(there.mask([good, SMALL_ORDER[1]], masking.POINT))
        # Whoever was asked for something impossible still works.
        assert next(there.mask([good], masking.POINT)) == next(here.mask([good], masking.POINT))
        for process in there._all:
            process.kill()
        with pytest.raises(RunError, match="align again"):
            list(there.mask([good], masking.POINT))


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.x25519", None)
    with pytest.raises(InputError, match=r"veracausa\[federation\]"):
        masking.masking(masking.new_key())
