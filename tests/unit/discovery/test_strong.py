"""The strong mode of VFedCD: every party a program, and one clear twin that gives the same integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import Field

from veracausa.crypto.ring64.arithmetic import Masked, PlaintextArithmetic
from veracausa.crypto.ring64.fixed64 import Stream, decode, encode, fresh_seed
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.engines.launch import run_federation as discover_normally
from veracausa.discovery.engines.mpc.cubic_network import CubicNetwork
from veracausa.discovery.engines.mpc.network import (
    RATE_BITS,
    SQUARE_BITS,
    WEIGHT_BITS,
    draw_share,
    shapes,
)
from veracausa.discovery.engines.mpc.party import StrongParty
from veracausa.discovery.engines.mpc.plaintext_twin import FloatTwin, StrongTwin
from veracausa.discovery.engines.mpc.schedule import strong_plan
from veracausa.discovery.engines.shares.plan import VALIDATOR
from veracausa.discovery.methods.vfedcd.estimator import VFedCD
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, RunError, WireError
from veracausa.runs.store import Store
from veracausa.wire.link import Link
from veracausa.wire.message import Kind, Message

SMALL = Settings(width=3, batch=8, epochs=2, refit_epochs=1, structure_every=2, candidates=3, searches=())
ROWS = 60


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


def fit(*sizes: int, settings: Settings = SMALL, rows: int = ROWS, **more: Any) -> DiscoveryResult:
    columns, names = parties(*sizes, rows=rows)
    return run_federation(columns, names, settings, **{"seed": 1, "timeout": 30.0, "strong": "dealer", **more})


def twin(
    *sizes: int, settings: Settings = SMALL, rows: int = ROWS, train_rows: int | None = None, seed: int = 1
) -> StrongTwin:
    columns, names = parties(*sizes, rows=rows)
    d = sum(sizes)
    plan = strong_plan(columns, names, settings, train_rows, seed)
    made = StrongTwin(plan, columns, ~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool), seed)
    made.run()
    return made


@dataclass
class Record:
    """What every party received, in order."""

    messages: list[Message] = field(default_factory=list)

    def words(self, receiver: str, kind: str) -> list[np.ndarray]:
        return [
            message.tensors["words"].numpy()
            for message in self.messages
            if message.receiver == receiver and message.kind == kind
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


@pytest.mark.parametrize(("sizes", "depth"), [((2, 1, 2), 1), ((2, 2), 0)])
def test_the_federation_gives_the_integers_of_the_twin(sizes: tuple[int, ...], depth: int) -> None:
    settings = SMALL.model_copy(update={"depth": depth})
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
def test_processes_and_squared_errors_give_the_integers_of_the_twin() -> None:
    settings = SMALL.model_copy(update={"likelihood": "mse", "threshold": "mixture"})
    found, clear = fit(2, 2, settings=settings, link="processes"), twin(2, 2, settings=settings).judge
    assert (found.strengths == clear.strengths).all()
    assert found.held_out_loss == clear.held_out_loss


def test_a_step_is_gradient_descent() -> None:
    """The increments of all weights against automatic differentiation in floating point."""
    d, n, h, rate = 4, 8, 3, 0.1
    rng = np.random.default_rng(3)
    x = np.round(rng.standard_normal((n, d)) * 2**7) / 2**7
    real = {name: rng.uniform(-0.7, 0.7, shape) for name, shape in shapes(d, h, 1).items()}
    allowed = ~np.eye(d, dtype=bool)
    real["encoder"] *= allowed[..., None]
    plain = PlaintextArithmetic([Stream(fresh_seed(0, "rounding"))])
    network = CubicNetwork(plain, {name: encode(value, WEIGHT_BITS, 8.0) for name, value in real.items()}, allowed)
    words = encode(x, 7, 16.0)
    there = network.forward(Masked(words, np.zeros_like(words)))
    precision = rng.uniform(0.5, 2, (d, 1))

    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in real.items()}
    z = torch.einsum("ni,ijh->jnh", torch.tensor(x), leaves["encoder"]) + leaves["bias"]
    a = z - z**3 / 8
    v = a @ leaves["weight_0"] + leaves["bias_0"]
    mean = ((v - v**3 / 8) @ leaves["readout"] + leaves["offset"])[..., 0]
    squares = (mean - torch.tensor(x.T)) ** 2
    (0.5 * (torch.tensor(precision) * squares).mean(1).sum()).backward()
    rates = encode(-rate * precision / n, RATE_BITS, 1.0)
    network.backward(there, Masked(rates[..., None], np.zeros_like(rates[..., None])))
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


def test_floating_point_from_the_same_weights_learns_the_same_strengths() -> None:
    settings = SMALL.model_copy(update={"epochs": 6, "refit_epochs": 0})
    columns, names = parties(2, 2)
    none = np.zeros((4, 4), dtype=bool)
    plan = strong_plan(columns, names, settings, None, 1)
    real = FloatTwin(plan, columns, ~np.eye(4, dtype=bool), none, 1)
    real.run()
    whole = twin(2, 2, settings=settings)
    assert real.judge.strengths.max() > 0.05
    # Roundings of units move single steps, and are right on average: seen were 2e-6 and 2e-5.
    assert np.abs(real.judge.strengths - whole.judge.strengths).max() < 5e-5
    assert abs(real.judge.history[-1]["loss"] - whole.judge.history[-1]["loss"]) < 5e-4


def test_nobody_knows_the_first_weights_and_their_sum_has_the_scale_of_the_model() -> None:
    allowed = ~np.eye(6, dtype=bool)
    draws = [draw_share(Stream(fresh_seed(None)), 3, 1, allowed, 10) for _ in range(3)]
    for name, bound in (("encoder", 1 / (6 * np.sqrt(10))), ("weight_0", 1 / np.sqrt(10))):
        whole = decode(draws[0][name] + draws[1][name] + draws[2][name], WEIGHT_BITS)
        used = whole[allowed] if name == "encoder" else whole
        assert abs(used.std() / (bound / np.sqrt(3)) - 1) < 0.2
        for draw in draws:
            assert abs(np.corrcoef(decode(draw[name], WEIGHT_BITS).ravel(), whole.ravel())[0, 1]) < 0.75
    assert not decode(draws[0]["encoder"], WEIGHT_BITS)[np.eye(6, dtype=bool)].any()


def test_the_strengths_that_the_validator_sees_are_those_of_the_weights() -> None:
    clear = twin(2, 2)
    weights = decode(clear.network.shares["encoder"], WEIGHT_BITS)
    assert np.abs(clear.judge.strengths - np.sqrt(np.square(weights).sum(2))).max() < 1e-6


def test_what_parties_receive_is_uniform_and_never_the_same(record: Record) -> None:
    fit(2, 1, 2, seed=None)
    for receiver in ("p0", "p1", "p2", VALIDATOR):
        kinds = ("opening", "dealt", "given") if receiver != VALIDATOR else ("squares",)
        received = [words.ravel() for kind in kinds for words in record.words(receiver, kind)]
        words = np.concatenate(received).view(np.uint64)
        assert len(words) > 300
        # Openings of zeros, of small and of equal numbers are among them; a mask used twice would show.
        assert len(np.unique(words)) == len(words)
        for shift in (0, 30, 60):
            counts = np.bincount(((words >> np.uint64(shift)) & np.uint64(15)).astype(np.int64), minlength=16)
            statistic = (np.square(counts - len(words) / 16) / (len(words) / 16)).sum()
            assert statistic < 15 + 8 * np.sqrt(30), (receiver, shift)


def explained(known: np.ndarray, hidden: np.ndarray) -> float:
    """R² of a linear guess of a hidden attribute on the second half of the rows, learned on the first half."""
    design = np.column_stack([known, np.ones(len(known))])
    half = len(known) // 2
    guess = design[half:] @ np.linalg.lstsq(design[:half], hidden[:half], rcond=None)[0]
    return 1 - float(np.square(hidden[half:] - guess).mean() / hidden[half:].var())


def test_what_a_target_sees_of_a_row_tells_no_foreign_attribute_but_features_would(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """p1 knows half of the rows of x0 and guesses the others: by its own attribute; with all that was opened to it as
    well; and with the features that the normal mode opens."""
    opened: list[np.ndarray] = []
    add_up = StrongParty._add_up

    def watched(self: StrongParty, share: np.ndarray) -> np.ndarray:
        total = add_up(self, share)
        if self.name == "p1":
            opened.append(total)
        return total

    monkeypatch.setattr(StrongParty, "_add_up", watched)
    n, h = 300, SMALL.width
    settings = SMALL.model_copy(update={"epochs": 4, "refit_epochs": 0, "structure_every": "epoch", "batch": n})
    fit(2, 1, settings=settings, rows=n + 40, train_rows=n)
    clear = twin(2, 1, settings=settings, rows=n + 40, train_rows=n)
    (rows,) = clear.plan.batches
    values = table(3, n + 40)[rows]
    hidden, own = values[:, 0], values[:, 2:]
    blind = explained(own, hidden)
    views = [total.reshape(3, n, h)[2] for total in opened if total.size == 3 * n * h]
    views += [total.reshape(3, n, 1)[2] for total in opened if total.size == 3 * n]
    assert len(views) >= 14 * settings.epochs
    gains = [explained(np.column_stack([own, view / 2.0**63]), hidden) - blind for view in views]
    assert abs(np.mean(gains)) < 0.02
    assert max(gains) < 0.1
    assert all(words.shape == (1,) for words in record.words("p1", "sums")), "of rows only sums are opened to a target"
    features = values @ decode(clear.network.shares["encoder"], WEIGHT_BITS)[:, 2]
    assert blind < 0.9
    assert explained(np.column_stack([own, features]), hidden) > 0.99


def test_a_step_costs_what_the_page_says(record: Record) -> None:
    settings = SMALL.model_copy(
        update={"epochs": 1, "refit_epochs": 0, "structure_every": "epoch", "held_out": 0.0, "threshold": 0.3}
    )
    found = fit(2, 1, 1, settings=settings)
    steps, n, d, h = ROWS // 8, 8, 4, settings.width
    step = 16 * n * d * h + 4 * n * d + 2 * (d * d * h + d * h * h + d * h) + d
    openings = record.words("p1", "opening")
    # Columns once, the look, and the strengths at the end.
    assert sum(words.size for words in openings) == 2 * (steps * (step + n * d) + 3 * d * d * h)
    assert len(openings) == 2 * (1 + steps * 21 + 3)
    assert len(record.words("p1", "sums")) == 2 * steps
    assert found.sent["p1"]["messages"] == len(openings) + 2 * steps + 1 + 2  # a common seed, and two looks


def test_a_fit_that_diverges_ends_everybody() -> None:
    with pytest.raises(RunError, match="diverged"):
        fit(2, 1, settings=SMALL.model_copy(update={"learning_rate": 50.0}))


def test_a_peer_who_sends_too_few_shares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Link.send

    def short(self: Link, to: str, kind: Kind, step: int, tensors: Any = None, **meta: Any) -> None:
        if self.me == "p1" and kind.name == "opening" and step == 3:
            tensors = {"words": tensors["words"][1:]}
        send(self, to, kind, step, tensors, **meta)

    monkeypatch.setattr(Link, "send", short)
    with pytest.raises(WireError, check=Field("opening.words")):
        fit(2, 1)


def test_columns_that_do_not_fit_are_refused() -> None:
    columns, names = parties(2, 1)
    with pytest.raises(InputError, match="party by party"):
        run_federation(columns, names[:2], SMALL, strong="dealer")
    with pytest.raises(InputError, match="l2"):
        run_federation(columns, names, SMALL.model_copy(update={"sparsity": "l2"}), strong="dealer")
    for few in ({"batch": 7}, {"held_out": 0.1}):
        with pytest.raises(InputError, match="nearly rows"):
            run_federation(columns, names, SMALL.model_copy(update=few), strong="dealer")
    with pytest.raises(InputError, match="nothing is"):
        run_federation(columns, names, SMALL.model_copy(update={"row_noise": 0.1}), strong="dealer")
    columns["p0"][3, 1] = 99.0
    with pytest.raises(InputError, match="'x1'"):
        run_federation(columns, names, SMALL, strong="dealer")


@pytest.mark.parametrize("bernoulli", [None, False])
def test_columns_of_two_values_are_refused_unless_they_are_to_be_numbers(bernoulli: bool | None) -> None:
    values = table(4, 120)
    values[:, 2] = values[:, 2] > 0
    how = {"epochs": 1, "refit_epochs": 1, "width": 2, "bernoulli": bernoulli}
    method = VFedCD(strong="dealer", seed=1, searches=[], **how)
    asked = {"a": [0, 1], "b": [2, 3]}
    if bernoulli is None:
        with pytest.raises(InputError, match="column 'x2' has two values: the strong mode has no Bernoulli"):
            method.fit(values, parties=asked)
    else:
        assert np.isfinite(method.fit(values, parties=asked).strengths_).all()


def kill_at(step: int) -> Callable[[Any], None]:
    def kill(event: Any) -> None:
        if event.get("step") == step or event.get("share", 0) > 0.8:
            raise RunError("killed")

    return kill


@pytest.mark.parametrize("seed", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_a_run_that_was_killed_goes_on_with_new_masks_to_where_its_twin_goes_on(
    tmp_path: Path, record: Record, seed: int | None
) -> None:
    how = {"seed": seed, "out": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(RunError):
        fit(2, 1, **how, observer=kill_at(2))
    before = len(record.messages)
    heard: list[int] = []
    found = fit(2, 1, **how, resume=True, observer=lambda event: heard.append(event["step"]))
    for receiver in ("p0", "p1", VALIDATOR):
        kinds = ("opening", "dealt", "given") if receiver != VALIDATOR else ("squares",)
        words = np.concatenate([words.ravel() for kind in kinds for words in record.words(receiver, kind)])
        assert len(np.unique(words)) == len(words)
    steps = {(message.sender, message.kind, message.step) for message in record.messages[:before]}
    assert not steps & {(message.sender, message.kind, message.step) for message in record.messages[before:]}
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
    assert store.start_step in (1, 2)
    assert (found.strengths == second.judge.strengths).all()
    assert (found.threshold, found.held_out_loss) == (second.judge.threshold, second.judge.held_out_loss)
    assert found.history == second.judge.history
    assert (first.judge.strengths != second.judge.strengths).any()


@pytest.mark.slow
def test_an_estimator_resumes_it_and_neither_mode_goes_on_with_the_others_run(tmp_path: Path) -> None:
    method = VFedCD(strong="dealer", seed=1, epochs=12, refit_epochs=2, width=2, searches=[])
    asked, out = {"a": [0, 1], "b": [2]}, tmp_path / "run"
    heard: list[float] = []
    with pytest.raises(RunError):
        method.fit(table(3), parties=asked, out=out, observer=kill_at(0))
    columns, names = parties(2, 1)
    with pytest.raises(InputError, match=r"no discovery to go on with \(no plan.json\)"):
        discover_normally(columns, names, SMALL, out=out, resume=True)
    method.fit(table(3), parties=asked, out=out, resume=True, observer=lambda event: heard.append(event["share"]))
    assert heard[0] == pytest.approx(11 / 14)
    assert np.isfinite(method.strengths_).all()
    with pytest.raises(InputError, match="another epochs"):
        VFedCD(**method.get_params() | {"epochs": 13}).fit(table(3), parties=asked, out=out, resume=True)
