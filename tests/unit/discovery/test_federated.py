"""The federation of VFedCD on shares: every party a program, small enough to run in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Names
from scipy.stats import chi2

from veracausa.crypto import fixed_point, ring
from veracausa.crypto.fixed_point import WEIGHT_BITS
from veracausa.crypto.randomness import make_draws
from veracausa.crypto.ring import P
from veracausa.crypto.shares import FORWARD_BITS, NORM_BITS
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.shares.offline_phase import OfflinePhase
from veracausa.discovery.engines.shares.plan import Plan, pairing
from veracausa.discovery.engines.shares.share_engine import ShareEngine
from veracausa.discovery.engines.shares.triples import TripleSpec
from veracausa.discovery.methods.vfedcd.settings import Search, Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, VeracausaError
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink, run_threads, thread_links

ROWS = 60
SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())
SEVERAL = SMALL.model_copy(update={"searches": (Search(), Search(epochs=1), Search(acyclicity="spectral", epochs=3))})


def table(d: int, rows: int = ROWS) -> np.ndarray:
    """A chain: every attribute follows from the one before it."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, d))
    for at in range(1, d):
        values[:, at] = np.sin(1.5 * values[:, at - 1]) + 0.4 * values[:, at]
    return (values - values.mean(0)) / values.std(0)


def parties(*sizes: int, rows: int = ROWS) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    values = table(sum(sizes), rows)
    ends = np.cumsum(sizes)
    columns = {f"p{at}": values[:, end - size : end] for at, (end, size) in enumerate(zip(ends, sizes, strict=True))}
    return columns, tuple(f"x{at}" for at in range(sum(sizes)))


def fit(*sizes: int, settings: Settings = SMALL, **more: Any) -> DiscoveryResult:
    columns, names = parties(*sizes)
    return run_federation(columns, names, settings, **{"seed": 1, "timeout": 30.0, **more})


def same(first: DiscoveryResult, second: DiscoveryResult) -> bool:
    return bool(
        (first.strengths == second.strengths).all()
        and first.threshold == second.threshold
        and first.held_out_loss == second.held_out_loss
        and first.history == second.history
    )


class Lab:
    """Holders in threads, whose shares a test may look at together."""

    def __init__(self, *sizes: int) -> None:
        columns, names = parties(*sizes)
        self.plan = Plan(SMALL, tuple(columns), sizes, names, ROWS, 48, 0)
        self.fixed = {
            name: fixed_point.encode_columns(values, names[self.plan.own(name)]) for name, values in columns.items()
        }
        self.holders = {
            name: ShareEngine(self.plan, name, self.batches(name), make_draws(None, name)) for name in self.fixed
        }

    def batches(self, name: str) -> list[np.ndarray]:
        return [self.fixed[name][rows] for rows in (*self.plan.batches, *self.plan.held_out)]

    def run(self, program: Callable[[ShareEngine, ThreadLink], Any]) -> dict[str, Any]:
        results = {}
        allowed = ~np.eye(self.plan.d, dtype=bool)

        def bound(name: str) -> Callable[[Any], None]:
            def run(link: Any) -> None:
                holder = self.holders[name]
                holder.declare(link)
                order = TripleSpec(name, "none", pairing(self.plan, name), self.batches(name), None, 0)
                with OfflinePhase(self.plan, name, order) as preparation:
                    preparation.set_up(link)
                    holder.share_first_weights(link, allowed)
                    holder.use({0: preparation.epoch(link, self.plan.searches[0], 0)})
                    results[name] = program(holder, link)

            return run

        run_threads({name: bound(name) for name in self.holders}, thread_links(list(self.holders), 20.0))
        return results

    def weights(self, share: str, bits: int) -> np.ndarray:
        """W, from both shares of every block; a party's own blocks are 0."""
        plan = self.plan
        total = np.zeros((plan.d, plan.d, plan.settings.width), dtype=np.int64)
        for name, holder in self.holders.items():
            total[plan.foreign(name), plan.own(name)] += getattr(holder.into, share)[0]
            total[plan.own(name), plan.foreign(name)] += getattr(holder.out, share)[0]
        return fixed_point.decode(ring.reduce(total), WEIGHT_BITS + bits)


def steps_of(holder: ShareEngine, link: ThreadLink) -> list[np.ndarray]:
    """A few batches with made-up gradients, and structure in between; the features of the last one."""
    rng = np.random.default_rng(holder.own.start)
    for batch in range(3):
        holder.features(link, (batch,))
        holder.descend((batch,), rng.integers(-4000, 4000, (1, 8, holder.count * holder.h)).astype(float))
    holder.norms(link, [0])
    d = holder.plan.d
    factors = np.random.default_rng(5).uniform(0.5, 1, (d, d))
    holder.shrink(factors[None, :, holder.own], factors[None, holder.own], [0])
    return [holder.features(link, (3,))[0]]


def test_opened_features_are_the_float_product() -> None:
    lab = Lab(2, 1, 3)
    opened = lab.run(steps_of)
    weights = lab.weights("forward", FORWARD_BITS)
    rows = lab.plan.batches[3]
    x = np.concatenate([lab.fixed[name] for name in lab.plan.parties], axis=1)[rows] / 2.0**7
    assert np.abs(weights).max() > 0.5
    for name, (features,) in opened.items():
        expected = x @ weights[:, lab.plan.own(name)].reshape(lab.plan.d, -1)
        assert np.abs(features - expected).max() < 2.0**-12


def test_shares_of_norms_open_to_norms_and_norms_of_shares_do_not() -> None:
    lab = Lab(2, 1, 3)
    plan = lab.plan

    def program(holder: ShareEngine, link: ThreadLink) -> Any:
        steps_of(holder, link)
        return [part[0] for part in holder.norms(link, [0])]

    shares = lab.run(program)
    exact = np.square(lab.weights("norm", NORM_BITS)).sum(2)
    opened = np.zeros((plan.d, plan.d), dtype=np.int64)
    of_shares = np.zeros((plan.d, plan.d))
    for name, (into, out) in shares.items():
        holder = lab.holders[name]
        opened[plan.foreign(name), plan.own(name)] += into
        opened[plan.own(name), plan.foreign(name)] += out
        for share, place in ((holder.into, (plan.foreign(name), plan.own(name))),
                             (holder.out, (plan.own(name), plan.foreign(name)))):  # fmt: skip
            signed = fixed_point.ring.centred(share.norm[0]) / 2.0 ** (WEIGHT_BITS + NORM_BITS)
            of_shares[place] += np.sqrt(np.square(signed).sum(2))
    between = exact > 0
    assert between.sum() == plan.d**2 - sum(size**2 for size in plan.sizes)
    norms = fixed_point.decode(ring.reduce(opened), 2 * (WEIGHT_BITS + NORM_BITS))
    assert np.allclose(norms, exact, rtol=0, atol=1e-9)
    # The published formula adds the norms of the fragments: with uniform fragments that says nothing of the weights.
    assert (of_shares[between] > 1e6 * np.sqrt(exact[between])).all()


def test_the_same_seed_gives_the_same_bits() -> None:
    threads = fit(2, 1, 1)
    assert same(threads, fit(2, 1, 1))
    assert not same(threads, fit(2, 1, 1, seed=2))


@pytest.mark.slow
def test_processes_give_the_bits_that_threads_give() -> None:
    assert same(fit(2, 1, 1), fit(2, 1, 1, link="processes", timeout=300.0))


@pytest.mark.slow
@pytest.mark.parametrize("link", ["threads", "processes"])
def test_triples_made_in_a_process_give_the_same_bits_and_messages(link: str) -> None:
    here, apart = fit(2, 1, 1), fit(2, 1, 1, precompute="process", link=link, timeout=300.0)
    assert same(here, apart)
    assert here.sent == apart.sent


@pytest.mark.parametrize("more", [
    {},
    {"settings": SEVERAL},  # with fragments at all parties one after the other, else side by side
    pytest.param({"validator": "M1"}, marks=pytest.mark.slow),
    pytest.param({"local_steps": 2}, marks=pytest.mark.slow),
])  # fmt: skip
def test_fragments_at_all_parties_find_the_same_and_cost_more(more: dict[str, Any]) -> None:
    two, everybody = fit(2, 1, 3, **more), fit(2, 1, 3, shares="all", **more)
    assert same(two, everybody)
    for name in two.sent_to:
        if "settings" in more:
            continue
        assert abs(everybody.sent[name]["messages"] - two.sent[name]["messages"]) <= 2  # no secrets for pads
        assert everybody.sent[name]["offline_bytes"] > two.sent[name]["offline_bytes"]
        assert everybody.sent[name]["bytes"] > two.sent[name]["bytes"]


def test_a_validator_that_gets_the_weights_finds_the_same() -> None:
    norms, weights = fit(2, 2), fit(2, 2, validator="M1")
    assert np.allclose(norms.strengths, weights.strengths, atol=1e-6)
    assert weights.sent["p0"]["bytes"] != norms.sent["p0"]["bytes"]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 1, 4), (2, 1, 1, 1), (1, 1, 1, 1, 1)])
def test_parties_of_any_number_and_size(sizes: tuple[int, ...]) -> None:
    result = fit(*sizes)
    d = sum(sizes)
    assert result.strengths.shape == (d, d)
    assert np.isfinite(result.held_out_loss)
    assert (np.diag(result.strengths) == 0).all()
    assert (result.strengths[~result.allowed] == 0).all()
    assert len(result.history) == 3


@pytest.mark.parametrize(("rule", "openings", "scores"), [
    ("held_out", 1, 2),  # of the one own edge that the order leaves: kept, and ended
    ("held_out_graphs", 4, 4),
])  # fmt: skip
def test_messages_and_bytes_follow_from_the_plan(rule: str, openings: int, scores: int) -> None:
    sizes, h, n, held = (2, 1, 1), SMALL.width, 8, 12
    result = fit(*sizes, settings=SMALL.model_copy(update={"threshold": rule}))
    steps, looks = 6 * 3, 3 * 3
    peers = 2
    structure = looks + 2  # each look, the order, the end
    # Two more than the epochs and the end; one for held-out rows, where it is not known ahead how often they open.
    turns = 3 + 3 + (rule == "held_out_graphs")
    for name, size in zip(result.sent_to, sizes, strict=True):
        others = sum(sizes) - size
        sent = result.sent[name]
        exchanges = steps + structure + openings
        # To each peer: two of the toss, key, fingerprint, columns, triples, to later ones a secret for pads; then the
        # first share, and a question and an answer in every exchange.
        secrets = peers - list(result.sent_to).index(name)
        offline, online = peers * (5 + turns) + secrets, peers * (1 + 2 * exchanges) + structure + 1
        assert sent["messages"] == offline + online
        assert sent["offline_messages"] == offline
        rows = steps * n + openings * held
        blocks = size * others * h
        words = peers * (6 * n + held) * size  # columns
        words += structure * blocks  # masks of norms; for all that is masked goes a seed
        heads = sent["offline_bytes"] - 8 * words
        assert 0 < heads < 400 * offline
        words = blocks  # first share
        words += (steps + openings) * blocks + rows * others * h  # weights there, features back
        words += steps * n * peers * size * h  # gradients
        words += structure * (2 * blocks + 2 * size * others + size * size) + scores  # to the other holder, and on
        heads = sent["bytes"] - sent["offline_bytes"] - 8 * words
        assert 0 < heads < 400 * online
    assert result.sent["validator"]["messages"] == 3 * (structure + 2)  # candidates and result, too


def test_searches_side_by_side_share_their_messages() -> None:
    """A further search brings its numbers along, and messages of its own only ahead of the steps and at its end."""
    once = fit(2, 1, 1)
    thrice = fit(2, 1, 1, settings=SMALL.model_copy(update={"searches": (Search(), Search(), Search())}))
    peers, ends = 2, 2  # a last look at the strengths, and the held-out rows
    for name, sent in once.sent.items():
        more = {what: thrice.sent[name][what] - number for what, number in sent.items()}
        if name == "validator":  # the end's factors, and the trials of edges
            assert more["messages"] == 2 * 2 * 3
            continue
        assert more["messages"] - more["offline_messages"] == 2 * (peers * 2 * ends + 2)
        assert more["offline_messages"] == 2 * peers * (3 + 3)
        online, of_two = (each["bytes"] - each["offline_bytes"] for each in (sent, more))
        assert online < of_two < 1.8 * online, "two more searches' numbers, without their messages' heads"


def test_local_steps_learn_without_more_messages() -> None:
    once, twice = fit(2, 2), fit(2, 2, local_steps=3)
    assert once.sent == twice.sent
    assert twice.history[-1]["loss"] < once.history[-1]["loss"]


def test_edges_are_kept_and_left_out_as_asked() -> None:
    never = np.zeros((4, 4), dtype=bool)
    must = never.copy()
    never[0, 3] = never[1, 0] = True  # between two parties, and inside one
    must[3, 1] = True
    result = fit(2, 2, forbidden=never, required=must)
    assert (result.strengths[never] == 0).all()
    assert result.allowed[3, 1]
    assert not result.allowed[never].any()


@pytest.mark.parametrize("settings", [
    Settings(profile="paper_repaired", width=3, batch=8, epochs=2),
    SMALL.model_copy(update={"structure_every": "epoch"}),
    SMALL.model_copy(update={"structure_every": 4}),  # two steps of an epoch are left over
    SMALL.model_copy(update={"threshold": "mixture"}),
    SMALL.model_copy(update={"threshold": 0.1, "held_out": 0.0}),
])  # fmt: skip
def test_settings_of_the_core(settings: Settings) -> None:
    result = fit(2, 1, settings=settings)
    assert np.isfinite(result.strengths).all()
    assert np.isnan(result.held_out_loss) == (settings.held_out == 0)


class Interrupted(VeracausaError):
    pass


@pytest.mark.parametrize("how", [
    {},
    {"shares": "all"},
    pytest.param({"link": "processes"}, marks=pytest.mark.slow),
    pytest.param({"precompute": "process"}, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_run_that_was_killed_goes_on_to_the_same_end(tmp_path: Path, how: dict[str, Any]) -> None:
    more = {**how, "timeout": 300.0, "checkpoint_every": 1, "settings": SMALL.model_copy(update={"structure_every": 4})}
    whole = fit(2, 1, **more, out=tmp_path / "whole")

    def kill(event: Any) -> None:
        if event["step"] == 3:
            raise Interrupted("now")

    with pytest.raises(VeracausaError):
        fit(2, 1, **more, out=tmp_path / "torn", observer=kill)
    heard = []
    again = fit(2, 1, **more, out=tmp_path / "torn", resume=True, observer=lambda event: heard.append(event["step"]))
    assert heard
    assert heard[0] > 1
    assert same(whole, again)
    with pytest.raises(InputError, match="another local_steps"):
        fit(2, 1, **more, out=tmp_path / "torn", resume=True, local_steps=2)
    with pytest.raises(InputError, match="already there"):
        fit(2, 1, **more, out=tmp_path / "torn")


@pytest.mark.parametrize("settings", [SMALL, SEVERAL])
@pytest.mark.parametrize("seed", [None, 1])
def test_nothing_uniform_crosses_twice_across_steps_and_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, settings: Settings
) -> None:
    """What is opened is a secret less a mask: a mask used twice shows as a number that comes again where secrets are 0,
    and masks and triples that were drawn before a resume must not come back after it."""
    sent: dict[str, list[np.ndarray]] = {}
    deliver = ThreadLink._deliver

    def watched(self: ThreadLink, message: Message, plan: Any) -> None:
        if message.kind in ("masked", "answer", "triples"):
            for name, tensor in message.tensors.items():
                sent.setdefault(f"{message.kind}.{name}", []).append(tensor.numpy().view(np.int64).copy())
        deliver(self, message, plan)

    monkeypatch.setattr(ThreadLink, "_deliver", watched)

    def kill(event: Any) -> None:
        if event["step"] == (2 if settings is SMALL else 5):
            raise Interrupted("now")

    how = {"settings": settings, "seed": seed, "out": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(VeracausaError):
        fit(2, 1, **how, observer=kill)
    before = {name: len(parts) for name, parts in sent.items()}
    fit(2, 1, **how, resume=True)
    assert set(sent) == {"masked.weights", "masked.gradients", "masked.norms", "answer.features", "answer.norms",
                         "triples.forward", "triples.backward", "triples.factors", "triples.products"}  # fmt: skip
    for name, parts in sent.items():
        assert 0 < before[name] < len(parts)
        if name in ("triples.forward", "triples.backward", "triples.products"):
            assert {part.size for part in parts} == {4}  # a seed
    words = np.concatenate([part for parts in sent.values() for part in parts])
    assert len(np.unique(words)) == len(words)  # two of 59 random bits are alike once in 10^9
    counts = np.histogram(
        np.concatenate([part for parts in sent.values() for part in parts if part.size > 4]), 64, (0, P)
    )[0]
    assert (np.square(counts - counts.mean()) / counts.mean()).sum() < chi2.ppf(1 - 1e-6, 63)


def test_what_shares_can_not_hold_is_refused_by_name() -> None:
    columns, names = parties(2, 1)
    columns["p1"] = columns["p1"].copy()
    columns["p1"][5, 0] = 17.0
    with pytest.raises(InputError, match="column 'x2' has outliers"):
        run_federation(columns, names, SMALL, seed=0)
    with pytest.raises(InputError, match="different numbers of rows"):
        run_federation({"a": np.zeros((4, 1)), "b": np.zeros((5, 1))}, ("x", "y"), SMALL)
    with pytest.raises(InputError, match="'l1'"):
        fit(1, 1, settings=SMALL.model_copy(update={"sparsity": "l1"}))
    with pytest.raises(InputError, match="needs two"):
        fit(3)
    with pytest.raises(InputError, check=Names("parties", "validator")):
        run_federation({"validator": np.zeros((9, 1)), "b": np.zeros((9, 1))}, ("x", "y"), SMALL)
    with pytest.raises(InputError, check=Names("names", "1", "2")):
        run_federation({"a": np.zeros((9, 1)), "b": np.zeros((9, 1))}, ("x",), SMALL)
    with pytest.raises(InputError, check=Names("names", "x")):
        run_federation({"a": np.zeros((9, 1)), "b": np.zeros((9, 1))}, ("x", "x"), SMALL)
    with pytest.raises(InputError, match="validator = 'M3'"):
        fit(1, 1, validator="M3")
    with pytest.raises(InputError, match="shares = 'some'"):
        fit(1, 1, shares="some")
    with pytest.raises(InputError, match="precompute = 'later'"):
        fit(1, 1, precompute="later")
    with pytest.raises(InputError, check=Names("local_steps", "0")):
        fit(1, 1, local_steps=0)
    with pytest.raises(InputError, match="no discovery to go on with"):
        fit(1, 1, out=Path("nowhere"), resume=True)


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.raises(VeracausaError, match="diverged"), np.errstate(all="ignore"):
        fit(2, 1, settings=SMALL.model_copy(update={"learning_rate": 1e4}))
