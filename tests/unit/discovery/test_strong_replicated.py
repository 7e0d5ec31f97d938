"""The strong mode without a dealer: three servers, any parties, and one clear twin that gives the same integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Field

from veracausa.crypto.ring64 import waves
from veracausa.crypto.ring64.arithmetic import Masked
from veracausa.crypto.ring64.fixed64 import Words, decode, encode
from veracausa.crypto.ring64.replicated import CipherStream, ReplicatedInTheClear
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.mpc.network import RATE_BITS, SQUARE_BITS, WEIGHT_BITS, Targets, shapes
from veracausa.discovery.engines.mpc.plaintext_twin import FloatTwin, StrongTwin
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.mpc.servers import rounders, servers_of
from veracausa.discovery.engines.mpc.wave_network import WaveNetwork
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, RunError, WireError
from veracausa.runs.store import Store
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message

SMALL = Settings(
    strong="replicated", width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=[]
)
ROWS = 60
BETWEEN_SERVERS = ("server words", "column shares", "rate shares", "given shares")


def parties(*sizes: int, rows: int = ROWS) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """A chain: every attribute follows from the one before it."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, sum(sizes)))
    for at in range(1, sum(sizes)):
        values[:, at] = np.sin(1.5 * values[:, at - 1]) + 0.4 * values[:, at]
    values = (values - values.mean(0)) / values.std(0)
    ends = np.cumsum(sizes)
    columns = {f"p{at}": values[:, end - size : end] for at, (end, size) in enumerate(zip(ends, sizes, strict=True))}
    return columns, tuple(f"x{at}" for at in range(sum(sizes)))


def fit(*sizes: int, settings: Settings = SMALL, rows: int = ROWS, **more: Any) -> DiscoveryResult:
    columns, names = parties(*sizes, rows=rows)
    return run_federation(columns, names, settings, **{"seed": 1, "timeout": 30.0, **more})


def twin(*sizes: int, settings: Settings = SMALL, seed: int = 1, kind: type[StrongTwin] = StrongTwin) -> StrongTwin:
    columns, names = parties(*sizes)
    d = sum(sizes)
    plan = strong_plan(columns, names, settings, None, seed)
    made = kind(plan, columns, ~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool), seed)
    made.run()
    return made


@dataclass
class Record:
    """What every member received, in order."""

    messages: list[Message] = field(default_factory=list)

    def words(self, receiver: str, *kinds: str) -> list[Words]:
        return [
            message.tensors["words"].numpy().view(np.uint64)
            for message in self.messages
            if message.receiver == receiver and message.kind in kinds
        ]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Record:
    kept = Record()
    receive = Link.receive

    def watched(self: Link, sender: str, kind: Kind, step: int) -> Message:
        message = receive(self, sender, kind, step)
        kept.messages.append(message)
        return message

    monkeypatch.setattr(Link, "receive", watched)
    return kept


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [
        ((2, 1, 2), {}),
        ((2, 2), {"depth": 0}),
        ((1, 2, 1, 1), {}),
        ((1, 1, 1, 2), {"servers": ("p3", VALIDATOR, "p1")}),
        ((2, 2), {"depth": 2, "likelihood": "mse", "threshold": "mixture"}),
    ],
)
def test_the_federation_gives_the_integers_of_the_twin(sizes: tuple[int, ...], changes: dict[str, Any]) -> None:
    settings = SMALL.model_copy(update=changes)
    found, clear = fit(*sizes, settings=settings), twin(*sizes, settings=settings).judge
    assert (found.strengths == clear.strengths).all()
    assert found.strengths.max() > 0.05
    assert (found.threshold, found.held_out_loss, found.history) == (
        clear.threshold,
        clear.held_out_loss,
        clear.history,
    )
    assert (found.allowed == clear.structure.allowed[0]).all()


@pytest.mark.slow
def test_processes_give_the_integers_of_the_twin() -> None:
    found, clear = fit(2, 2, link="processes"), twin(2, 2).judge
    assert (found.strengths == clear.strengths).all()
    assert found.held_out_loss == clear.held_out_loss


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_step_is_gradient_descent(depth: int) -> None:
    """The increments of all weights against automatic differentiation in floating point."""
    d, n, h, rate = 4, 8, 3, 0.1
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal((n, d)) * 2**7) / 2**7
    real = {name: rng.uniform(-0.7, 0.7, shape) for name, shape in shapes(d, h, depth).items()}
    allowed = ~np.eye(d, dtype=bool)
    real["encoder"] *= allowed[..., None]
    plain = ReplicatedInTheClear([CipherStream(bytes([at]) * 32) for at in range(3)], np.zeros(d, dtype=np.int64))
    network = WaveNetwork(plain, {name: encode(value, WEIGHT_BITS, 8.0) for name, value in real.items()}, allowed)
    words = encode(x, 7, 16.0)
    there = network.forward(Masked(words, np.zeros_like(words)))
    precision = rng.uniform(0.5, 2, (d, 1))

    def curve(u: torch.Tensor) -> torch.Tensor:
        omega = 2 * np.pi / 16
        return sum(4 * np.pi / 16 / np.sinh(k * np.pi**2 / 16) * torch.sin(k * omega * u) for k in (1, 3, 5))

    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in real.items()}
    hidden = curve(torch.einsum("ni,ijh->jnh", torch.tensor(x), leaves["encoder"]) + leaves["bias"])
    for layer in range(depth):
        hidden = curve(hidden @ leaves[f"weight_{layer}"] + leaves[f"bias_{layer}"])
    mean = (hidden @ leaves["readout"] + leaves["offset"])[..., 0]
    squares = (mean - torch.tensor(x.T)) ** 2
    (0.5 * (torch.tensor(precision) * squares).mean(1).sum()).backward()
    rates = encode(-rate * precision / n, RATE_BITS, 1.0)[..., None]
    network.backward(there, Masked(rates, np.zeros_like(rates)))
    opened = decode(network.squared_residuals(there), SQUARE_BITS)
    assert np.abs(opened - squares.detach().numpy().sum(1)).max() < 0.01
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        expected = -rate * leaf.grad.numpy()
        if name == "encoder":
            expected = expected * allowed[..., None]
        found = decode(network.shares[name], WEIGHT_BITS) - real[name]
        assert np.abs(expected).max() > 1e-3
        assert np.abs(found - expected).max() < 2e-4, name
    assert waves.WAVE_BITS == 24


def test_floating_point_from_the_same_weights_learns_the_same_strengths() -> None:
    settings = SMALL.model_copy(update={"epochs": 6, "refit_epochs": 0})
    real, whole = twin(2, 2, settings=settings, kind=FloatTwin), twin(2, 2, settings=settings)
    assert real.judge.strengths.max() > 0.05
    # Entries of tables are rounded to 2^-12, right on average: seen was 4e-6.
    assert np.abs(real.judge.strengths - whole.judge.strengths).max() < 5e-5
    assert abs(real.judge.history[-1]["loss"] - whole.judge.history[-1]["loss"]) < 5e-4


def test_what_members_receive_is_uniform_and_never_the_same(record: Record) -> None:
    """Every server, and the validator of the shares of strengths. Columns of zeros are among what is shared."""
    fit(2, 1, 1, 1, seed=None)
    for receiver in ("p0", "p1", "p2", VALIDATOR):
        kinds = BETWEEN_SERVERS if receiver != VALIDATOR else ("strength shares",)
        words = np.concatenate([part.ravel() for part in record.words(receiver, *kinds)])
        assert len(words) > 300
        assert len(np.unique(words)) == len(words)
        for shift in (0, 30, 60):
            counts = np.bincount(((words >> np.uint64(shift)) & np.uint64(15)).astype(np.int64), minlength=16)
            statistic = (np.square(counts - len(words) / 16) / (len(words) / 16)).sum()
            assert statistic < 15 + 8 * np.sqrt(30), (receiver, shift)


def test_a_member_is_sent_only_what_its_part_takes(record: Record) -> None:
    fit(2, 1, 1, 1)
    seen = {name: {m.kind for m in record.messages if m.receiver == name} for name in ("p0", "p3", VALIDATOR)}
    assert seen["p3"] == {"sums", "order", "graphs"}
    assert seen[VALIDATOR] == {"strength shares", "loss", "losses"}
    assert seen["p0"] == {"server key", *BETWEEN_SERVERS, "sums", "order", "graphs"}
    assert all(part.shape == (1,) for part in record.words("p3", "sums")), "of rows only sums are opened to a target"


def test_two_servers_together_have_the_columns_and_one_has_not(record: Record) -> None:
    """The attack that the terms warn of; alone, the same attack finds nothing."""
    fit(1, 1, 1, 2)
    columns, _ = parties(1, 1, 1, 2)
    shares = {
        name: [m for m in record.messages if m.receiver == name and m.kind == "column shares"] for name in columns
    }
    of_p3 = {name: next(m for m in shares[name] if m.sender == "p3") for name in ("p0", "p1")}
    first, second = (of_p3[name].tensors["words"].numpy().view(np.uint64).reshape(2, -1, 2) for name in ("p0", "p1"))
    plan = strong_plan(*parties(1, 1, 1, 2), SMALL, None, 1)
    rows = np.concatenate([*plan.batches, np.arange(plan.train_rows, plan.rows)])
    hidden = columns["p3"][rows]
    together = decode(first.sum(0, dtype=np.uint64) + second[1], 7)
    assert np.abs(together - hidden).max() < 0.01
    for alone in (first, second):
        for guess in (alone[0], alone[1], alone[0] + alone[1], alone[0] - alone[1]):
            assert abs(np.corrcoef(guess.view(np.int64)[:, 0], hidden[:, 0])[0, 1]) < 0.6


def test_a_step_costs_what_the_page_says(record: Record) -> None:
    changes = {"epochs": 1, "refit_epochs": 0, "structure_every": "epoch", "held_out": 0.0, "threshold": 0.3}
    fit(2, 1, 1, settings=SMALL.model_copy(update=changes))
    steps, n, d, h = ROWS // 8, 8, 4, 3
    weights = d * d * h + d * h * h + d * h
    units = 14 * 2 * n * d * h + 8 * 4 * n * d * h + 8 * 2 * n * d
    step = units + 11 * weights
    servers = [words for name in ("p0", "p1", "p2") for words in record.words(name, "server words")]
    # The look masks the encoder and scales it; it is masked once more for the strengths at the end.
    assert sum(words.size for words in servers) == steps * step + (3 + 8 + 3) * d * d * h
    numbers = {m.step for m in record.messages if m.kind == "server words"}
    assert len(numbers) == steps * 17 + 4
    assert len(record.words("p1", "sums")) == len(record.words("p1", "rate shares")) == 2 * steps


def test_a_fit_that_diverges_ends_everybody() -> None:
    with pytest.raises(RunError, match="diverged"):
        fit(2, 1, settings=SMALL.model_copy(update={"learning_rate": 3000.0}))


@pytest.mark.parametrize(("kind", "sender"), [("server words", "p1"), ("rate shares", "p3"), ("sums", "p2")])
def test_a_peer_who_sends_too_few_shares_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str, sender: str) -> None:
    send, sent = Link.send, [0]

    def short(self: Link, to: str, of: Kind, step: int, tensors: Any = None, **meta: Any) -> None:
        if self.me == sender and of.name == kind:
            sent[0] += 1
            if sent[0] == 3:
                tensors = {"words": tensors["words"][1:]}
        send(self, to, of, step, tensors, **meta)

    monkeypatch.setattr(Link, "send", short)
    with pytest.raises(WireError, check=Field(f"{kind}.words")):
        fit(2, 1, 1, 1)


def test_a_validator_who_announces_other_graphs_than_it_sends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for lie in (1, 1000):
        send = Link.send

        def lying(self: Link, to: str, of: Kind, step: int, *given: Any, lie: int = lie, **meta: Any) -> None:
            send(self, to, of, step, *given, **({"count": lie} if of.name == "graphs" else meta))  # noqa: B023

        with monkeypatch.context() as patched:
            patched.setattr(Link, "send", lying)
            with pytest.raises(WireError, check=Field("graphs.count")):
                fit(2, 1, 1)


def test_held_out_rows_count_alike_where_units_are_bounded() -> None:
    """A set of sixteen rows and one of eight; with a cubic the set in the middle counts."""
    sums = [(encode(np.array([total]), SQUARE_BITS, 2.0**40), rows) for total, rows in ((16.0, 16), (80.0, 8))]
    for strong, mean in (("replicated", 96 / 24), ("dealer", (1 + 10) / 2)):
        settings = SMALL.model_copy(update={"strong": strong})
        assert Targets(np.zeros((4, 1)), 16, settings).held_out_loss(sums) == pytest.approx(mean / 2)


def planned(*sizes: int, **changes: Any) -> Any:
    return strong_plan(*parties(*sizes), SMALL.model_copy(update=changes), None, 1)


def test_who_computes_and_who_can_not() -> None:
    assert servers_of(planned(1, 1, 1, 1)) == ("p0", "p1", "p2")
    assert servers_of(planned(1, 1)) == ("p0", "p1", VALIDATOR)
    assert servers_of(planned(1, 1, 1, 1, servers=("p3", "p1", VALIDATOR))) == ("p3", "p1", VALIDATOR)
    # Of what is opened to a server, another one drowns the last bits.
    plan = planned(1, 2, 1, 1, servers=("p3", "p1", VALIDATOR))
    assert rounders(plan).tolist() == [0, 2, 2, 0, 1]
    for named in (("p0", "p1"), ("p0", "p1", "p1"), ("p0", "p1", "p2", VALIDATOR)):
        with pytest.raises(InputError, match="replicated shares take three; name three members once each"):
            planned(1, 1, 1, servers=named)
    with pytest.raises(InputError, match=r"servers: 'p2' is no member; name parties \(p0, p1\) or 'validator'"):
        planned(1, 1, servers=("p0", "p1", "p2"))
    with pytest.raises(InputError, match="set strong to 'replicated', or leave servers out"):
        planned(1, 1, 1, strong="dealer", servers=("p0", "p1", "p2"))


def test_true_stands_for_replicated_shares() -> None:
    assert VFedCD(strong=True).settings().strong == "replicated"
    assert VFedCD(strong="dealer").settings().strong == "dealer"
    assert VFedCD().settings().strong is False
    with pytest.raises(InputError, match="strong"):
        VFedCD(strong="shamir").settings()


def kill_at(step: int) -> Callable[[Any], None]:
    def kill(event: Any) -> None:
        if event.get("step") == step:
            raise RunError("killed")

    return kill


@pytest.mark.parametrize("seed", [1, None])
def test_a_run_that_was_killed_goes_on_with_new_shares_to_where_its_twin_goes_on(
    tmp_path: Path, record: Record, seed: int | None
) -> None:
    how = {"seed": seed, "out": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(RunError):
        fit(2, 1, **how, observer=kill_at(2))
    before = len(record.messages)
    heard: list[int] = []
    found = fit(2, 1, **how, resume=True, observer=lambda event: heard.append(event["step"]))
    for receiver in ("p0", "p1", VALIDATOR):
        words = np.concatenate([w.ravel() for w in record.words(receiver, *BETWEEN_SERVERS, "strength shares")])
        assert len(np.unique(words)) == len(words), "no mask and no summand serves two starts"
    steps = {(message.sender, message.kind, message.step) for message in record.messages[:before]}
    assert not steps & {(message.sender, message.kind, message.step) for message in record.messages[before:]}
    assert heard[0] in (2, 3)
    with pytest.raises(InputError, match="another servers"):
        fit(2, 1, settings=SMALL.model_copy(update={"servers": ("p1", "p0", VALIDATOR)}), **how, resume=True)
    if seed is None:
        return
    # How numbers are rounded is new, too: the twin must go on from the same epoch in its second life.
    columns, names = parties(2, 1)
    plan, given = strong_plan(columns, names, SMALL, None, seed), (~np.eye(3, dtype=bool), np.zeros((3, 3), dtype=bool))
    store = Store(tmp_path / "twin", "twin")
    first = StrongTwin(strong_plan(columns, names, SMALL, None, seed, checkpoint_every=1), columns, *given, seed)
    first.run(store)
    store.start_step = heard[0] - 1
    second = StrongTwin(plan, columns, *given, seed, restart_index=1)
    second.run(store)
    assert (found.strengths == second.judge.strengths).all()
    assert (found.threshold, found.held_out_loss) == (second.judge.threshold, second.judge.held_out_loss)
    assert found.history == second.judge.history
    assert (first.judge.strengths != second.judge.strengths).any()


def test_a_checkpoint_holds_one_summand_and_no_key(tmp_path: Path, record: Record) -> None:
    fit(2, 1, out=tmp_path / "run", checkpoint_every=1, seed=None)
    keys = [m.tensors["seed"].numpy().tobytes() for m in record.messages if m.kind == "server key"]
    assert len(keys) == 3
    encoders = []
    for name in ("p0", "p1", VALIDATOR):
        files = sorted((tmp_path / "run").rglob(f"{name}/**/*.safetensors"))
        assert files
        for path in (path for path in (tmp_path / "run").rglob("*") if path.is_file()):
            assert not any(key in path.read_bytes() for key in keys)
        store = Store(tmp_path / "run", name)
        encoders.append(store.load(max(store.whole_steps()))["shares"]["encoder"].numpy().view(np.uint64))
    whole = np.abs(decode(encoders[0] + encoders[1] + encoders[2], WEIGHT_BITS))
    assert 0.01 < whole.max() < 4
    for two in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(decode(encoders[two[0]] + encoders[two[1]], WEIGHT_BITS)).max() > 2.0**32


@pytest.mark.parametrize("bernoulli", [None, False])
def test_columns_of_two_values_are_refused_unless_they_are_to_be_numbers(bernoulli: bool | None) -> None:
    values = np.concatenate([*parties(2, 2, rows=120)[0].values()], axis=1)
    values[:, 2] = values[:, 2] > 0
    how = {"epochs": 1, "refit_epochs": 1, "width": 2, "bernoulli": bernoulli}
    method = VFedCD(strong=True, seed=1, searches=[], **how)
    asked = {"a": [0, 1], "b": [2, 3]}
    if bernoulli is None:
        with pytest.raises(InputError, match="column 'x2' has two values: the strong mode has no Bernoulli"):
            method.fit(values, parties=asked)
    else:
        method.fit(values, parties=asked)
        assert np.isfinite(method.strengths_).all()
        assert "no two of the three that compute collude" in " ".join(method.notes_)
