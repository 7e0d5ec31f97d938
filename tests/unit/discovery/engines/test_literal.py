"""The protocol as published: its integers, its plaintext twin, and what it refuses and says."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.crypto.randomness import make_draws
from veracausa.discovery.engines.literal import protocol
from veracausa.discovery.engines.literal.launch import run_literal
from veracausa.discovery.engines.literal.numbers import PaillierNumbers, PlainNumbers, decoded, encoded
from veracausa.discovery.engines.literal.party import LiteralParty, norms, pulled
from veracausa.discovery.engines.literal.plaintext_twin import LiteralTwin
from veracausa.discovery.engines.literal.validator import random_split
from veracausa.discovery.engines.shares.plan import make_plan
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.errors import InputError, WireError

NAMES = ("a", "b", "c", "d")
KEPT = {"profile": "literal", "protocol": "literal", "epochs": 2, "batch": 4, "width": 2, "key_bits": 1024}
ROUNDING = 2.0**-20
"""What the numbers' room says."""


def columns(parties: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4))
    x[:, 2] += x[:, 0]
    cuts = {3: (1, 3), 2: (2,)}[parties]
    return dict(zip("pqr", np.split(x, cuts, axis=1), strict=False))


def test_numbers_are_multiplied_and_masked_under_paillier_as_in_clear():
    own, other = PaillierNumbers(1024), PaillierNumbers(1024)
    other.meet("own", own.key())
    rng = np.random.default_rng(1)
    left, right, masks = (encoded(rng.normal(size=shape), 20) for shape in ((3, 2), (2, 4), (3, 4)))
    held = np.array(other.read("own", own.encrypt(right), 8), dtype=object).reshape(2, 4)
    sent = other.masked_product("own", left, held, masks)
    plain = PlainNumbers()
    assert own.decrypt(sent, 12) == plain.decrypt(plain.masked_product("", left, right, masks), 12)
    np.testing.assert_array_equal(decoded(own.decrypt(sent, 12), 20, (3, 4)), (left @ right - masks) / 2**20)
    assert other.counts == {"encrypted": 0, "multiplied": 24, "masked": 12, "decrypted": 0}
    with pytest.raises(WireError):
        other.read("own", own.encrypt(right)[:-1], 8)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_the_parties_compute_what_their_twin_in_floats_computes(parties: int, fresh: bool):
    held, settings = columns(parties), Settings(**KEPT)
    seen: list[np.ndarray] = []

    def watch(party: LiteralParty) -> None:
        if party.name == "q":
            party.see = lambda what, told: seen.append(told["values"]) if what == "features" else None

    found = run_literal(held, NAMES, settings, seed=3, fresh=fresh, watch=watch)
    twin = LiteralTwin(make_plan(held, NAMES, settings, None, 3), held, ~np.eye(4, dtype=bool), 3, fresh=fresh)
    np.testing.assert_allclose(found.strengths, twin.run(), atol=ROUNDING)
    assert len(seen) == len(twin.features) == 8
    for opened, expected in zip(seen, twin.features, strict=True):
        np.testing.assert_allclose(opened, expected["q"], atol=ROUNDING)


def test_under_paillier_the_same_integers_cross():
    held = {name: values[:8] for name, values in columns(2).items()}
    small = KEPT | {"epochs": 1, "held_out": 0.0}
    plain, hidden = (
        run_literal(held, NAMES, Settings(**small, encryption=encryption), seed=5)
        for encryption in ("none", "paillier")
    )
    np.testing.assert_array_equal(plain.strengths, hidden.strengths)
    assert hidden.sent["p"]["messages"] == plain.sent["p"]["messages"]
    assert hidden.sent["p"]["bytes"] > 5 * plain.sent["p"]["bytes"]


def test_copies_of_other_parties_fragments_go_stale():
    """Algorithm 4 sends p_t's fragments anew and nobody else's, while algorithm 6 changes all of them."""
    held = columns(3)
    plan = make_plan(held, NAMES, Settings(**KEPT), None, 3)
    printed, fresh = (LiteralTwin(plan, held, ~np.eye(4, dtype=bool), 3, fresh=fresh) for fresh in (False, True))
    first = {name: copy.copy() for name, copy in printed.copies.items()}
    for twin in (printed, fresh):
        twin.run()
    # p's fragment of the encoder from q to r is never sent again, though it moved.
    between = plan.own("q"), plan.own("r")
    np.testing.assert_array_equal(printed.copies["p"][between], first["p"][between])
    assert not np.allclose(printed.parties["p"].fragments[between], first["p"][between])
    np.testing.assert_array_equal(fresh.copies["p"], fresh.parties["p"].fragments)


def test_the_published_sum_of_norms_is_not_the_norm_of_the_sum():
    held = columns(2)
    twin = LiteralTwin(make_plan(held, NAMES, Settings(**KEPT), None, 3), held, ~np.eye(4, dtype=bool), 3)
    published = twin.run()
    between = ~np.eye(4, dtype=bool)
    assert (published > norms(twin.weights) - 1e-2)[between].all()
    assert np.median(published[between] / norms(twin.weights)[between]) > 1.1


def test_a_split_gradient_adds_up_and_moves_each_fragment_along_itself():
    rng = make_draws(0, "v").generator("x")
    gradient = rng.normal(size=(3, 3))
    np.testing.assert_allclose(sum(random_split(gradient, 4, rng, 2.0)), gradient)
    fragments = rng.normal(size=(3, 3, 2))
    np.testing.assert_allclose(norms(pulled(fragments, np.full((3, 3), 0.1), 0.5)), norms(fragments) - 0.05)
    assert not pulled(np.zeros((1, 1, 2)), np.ones((1, 1)), 1.0).any()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"refit_epochs": 5}, "refit_epochs"),
        ({"threshold": "held_out"}, "threshold"),
        ({"sparsity": "l2"}, "sparsity"),
        ({"start": "moments"}, "start"),
        ({"noisy_rate": 3.0}, "noisy_rate"),
        ({"encryption": "bfv"}, "encryption"),
        ({"bottleneck": 1}, "bottleneck"),
        ({"epochs": 500_000, "encryption": "paillier"}, "ciphertexts"),
    ],
)
def test_what_the_algorithms_do_not_have_is_refused(change: dict, named: str):
    with pytest.raises(InputError, match=named):
        run_literal(columns(2), NAMES, Settings(**KEPT | change), seed=0)


def test_the_estimator_runs_it_and_says_what_it_is():
    held = np.column_stack([*columns(2).values()])
    parties = {"one": ["x0", "x1"], "two": ["x2", "x3"]}
    fitted = VFedCD(**KEPT | {"key_bits": 2048}).fit(held, parties=parties)
    assert fitted.warnings_[0] == protocol.WARNING
    assert set(fitted.sent_) == {"one", "two", "validator"}
    assert not any("key_bits" in said for said in fitted.warnings_), "nothing was encrypted"
    with pytest.raises(InputError, match="name the parties"):
        VFedCD(**KEPT).fit(held)
    assert protocol.SHORT_KEY.format(bits=1024) in protocol.published_warnings(Settings(**KEPT, encryption="paillier"))


def test_it_keeps_no_checkpoints():
    with pytest.raises(InputError, match="keeps no checkpoints"):
        run_literal(columns(2), NAMES, Settings(**KEPT), seed=0, resume=True)
