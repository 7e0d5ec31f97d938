"""What every defense must keep to, as one call: for our tests and for those who write plug-ins.

::

    from veracausa.testing.defense import check_defense

    def test_my_defense():
        check_defense(MyDefense, {"strength": 0.5})
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.defenses.protocols import PROTOCOLS, HasLayers, Prepares, Scheduled, contract_fault, members
from veracausa.defenses.risk_map import STRICT, NotDifferentiable, RiskMap, differs, fault
from veracausa.models.cut import payload_shape
from veracausa.models.layers import Dropout, bind_dropout
from veracausa.registry import Options
from veracausa.runs.store import deserialize_state, same, serialize_state
from veracausa.testing.synthetic import ToyBottom, toy_bottom

ROWS, BATCH, STEPS = 24, 8, 3


def check_defense(
    defense: str | type[Defense],
    options: Mapping[str, Any] | Options | None = None,
    toys: Sequence[Literal["vectors", "maps"]] = ("vectors", "maps"),
) -> None:
    """Raise `AssertionError`, with what is wrong, unless the defense keeps to its contract.

    `defense` is a registered name or a class; `options` are the settings of its `Options`, defaults where left out.
    It is run on two toy bottoms, one that gives vectors and one that gives maps, both with batch normalisation and
    dropout, the layers in which a careless defense leaves traces; `toys` names one of them where a defense suits only
    rows of columns (`vectors`) or pictures (`maps`).
    """
    make = _maker(defense, options)
    _check_interface(type(make()))
    for toy in (toy_bottom(name, ROWS) for name in toys):
        try:
            _check_exchanges(make, toy)
            _check_generator(make, toy)
            _check_infer(make, toy)
            _check_state(make, toy)
            _check_risk_map(make, toy)
        except AssertionError as error:
            raise AssertionError(f"{toy.name}: {error}") from error


def _maker(defense: str | type[Defense], options: Mapping[str, Any] | Options | None) -> Callable[[], Defense]:
    if isinstance(options, Options):
        settings = options
    elif isinstance(defense, str):
        settings = defenses.options(defense)(name=defense, **(options or {}))
    else:
        known: type[Options] = getattr(defense, "Options", Options)
        settings = known(name=defense.__name__, **(options or {}))
    build = defenses.get(defense) if isinstance(defense, str) else defense
    return lambda: build(settings)


class _Bound:
    """A defense bound to a fresh bottom, as a passive party binds it."""

    def __init__(self, make: Callable[[], Defense], toy: ToyBottom, seed: int = 1, prepared: bool = True) -> None:
        self.toy = toy
        self.rng, self.model_rng = seeding.generator(seed, "training"), seeding.generator(0, "model")
        with seeding.drawing_from(self.model_rng):
            self.bottom = toy.build()
        self.bottom.insert(2, Dropout(0.3, self.model_rng))
        with seeding.drawing_from(self.model_rng):
            other = make()  # of another object than the one bound, as for an attacker's copy
            layers = other.layers(toy.payload) if isinstance(other, HasLayers) else None
        if layers is not None:
            self.bottom.append(bind_dropout(layers, self.model_rng))
        self.payload = payload_shape(self.bottom, tuple(toy.rows.shape[1:]))
        self.optimizer = torch.optim.Adam(self.bottom.parameters(), lr=0.01)
        self.defense = make()
        if isinstance(self.defense, Scheduled):
            self.defense.on_schedule(2 * STEPS)
        self.defense.key = seeding.derive_key(0, "noise")  # a party has the same one when it goes on
        self.defense.bind(self.bottom, self.optimizer, self.rng)
        if prepared and isinstance(self.defense, Prepares):
            self.defense.prepare(Part(ROWS, toy.rows))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        ids = torch.arange(step * BATCH, (step + 1) * BATCH) % ROWS
        return self.toy.rows[ids].clone(), ids

    def exchange(self, step: int) -> Tensor:
        """The payload of one exchange, after which the defense has had its gradient."""
        payload, context = self.defense.forward(*self.batch(step), step)
        sent = payload.detach().clone()
        gradient = torch.randn(payload.shape, generator=seeding.generator(step, "gradient"))
        self.defense.backward(context, gradient)
        return sent

    def prepared(self) -> dict[str, Any]:
        """What the defense prepared, if it does."""
        return self.defense.prepared() if isinstance(self.defense, Prepares) else {}

    def kept(self) -> dict[str, Any]:
        """All that a checkpoint keeps of the party."""
        return {
            "bottom": self.bottom.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": [self.rng.get_state(), self.model_rng.get_state()],
            "prepared": self.prepared(),
            "defense": self.defense.state(),
        }

    def take_over(self, kept: Mapping[str, Any]) -> None:
        self.bottom.load_state_dict(kept["bottom"])
        self.optimizer.load_state_dict(kept["optimizer"])
        for rng, state in zip((self.rng, self.model_rng), kept["rng"], strict=True):
            rng.set_state(state)
        if isinstance(self.defense, Prepares):
            self.defense.load_prepared(kept["prepared"], Part(ROWS, self.toy.rows))
        self.defense.load_state(kept["defense"])


def _copied(state: Any) -> Any:
    """The state as a checkpoint would bring it back: a copy, through bytes."""
    return deserialize_state(serialize_state(state))


_METHODS = (
    *("check", "bind", "forward", "backward", "infer", "state", "load_state"),
    *("protect", "deterministic_payload", "risk_map"),
)


def _check_interface(defense: type) -> None:
    for name in _METHODS:
        assert callable(getattr(defense, name, None)), f"{defense.__name__} has no method {name!r}"
    fault = contract_fault(defense)
    assert not fault, fault
    for name in (*_METHODS, *(name for protocol in PROTOCOLS for name in members(protocol))):
        method = getattr(defense, name, None)
        if not callable(method):
            continue  # a property, or a protocol that it does not have
        for parameter in inspect.signature(method).parameters:
            labels = "label" in parameter or parameter in ("y", "target", "targets")
            assert not labels, f"{defense.__name__}.{name} takes {parameter!r}: a defense never sees labels"


def _check_exchanges(make: Callable[[], Defense], toy: ToyBottom) -> None:
    untouched = torch.get_rng_state()
    party = _Bound(make, toy)
    prepared = _copied(party.prepared())
    for step in range(STEPS):
        before = _copied(party.bottom.state_dict())
        x, ids = party.batch(step)
        given = x.clone()
        payload, context = party.defense.forward(x, ids, step)
        assert isinstance(payload, Tensor), f"forward gives a {type(payload).__name__}, not a tensor"
        expected = (BATCH, *party.payload)
        assert tuple(payload.shape) == expected, f"the payload has shape {tuple(payload.shape)}, not {expected}"
        assert payload.dtype == torch.float32, f"the payload is {payload.dtype}, not float32"
        assert not payload.requires_grad, "the payload is not detached: what is sent must not carry a graph"
        assert payload.isfinite().all(), "the payload holds values that are not finite"
        assert torch.equal(x, given), "forward changes the party's rows"
        sent = payload.clone()
        party.defense.backward(context, torch.ones_like(payload))
        assert torch.equal(payload, sent), "backward changes the payload that was sent"
        assert _weights_differ(party.bottom, before), "backward leaves the bottom model as it was"
        assert same(party.prepared(), prepared), (
            "an exchange changes what prepare made: it is kept once, what changes belongs into state"
        )
    assert torch.equal(torch.get_rng_state(), untouched), "it draws from the global random state; use the rng of bind"


def _weights_differ(bottom: nn.Module, before: Mapping[str, Tensor]) -> bool:
    return any(not torch.equal(value, before[name]) for name, value in bottom.named_parameters())


def _check_generator(make: Callable[[], Defense], toy: ToyBottom) -> None:
    first, second = _Bound(make, toy), _Bound(make, toy)
    torch.rand(3)  # who draws from the global state now sees another one
    for step in range(STEPS):
        assert torch.equal(first.exchange(step), second.exchange(step)), (
            f"two defenses with one seed send different payloads at step {step}"
        )
    assert same(first.kept(), second.kept()), "two defenses with one seed end in different states"


def _check_state(make: Callable[[], Defense], toy: ToyBottom) -> None:
    """A checkpoint in the middle: a fresh defense that takes it over goes on exactly as the old one."""
    old = _Bound(make, toy)
    for step in range(STEPS):
        old.exchange(step)
    fresh = _Bound(make, toy, seed=2, prepared=False)
    fresh.take_over(_copied(old.kept()))
    assert same(fresh.prepared(), old.prepared()), "load_prepared does not bring back what prepared gave"
    assert same(fresh.defense.state(), old.defense.state()), "load_state does not bring back what state gave"
    rows = old.batch(0)
    assert torch.equal(old.defense.infer(*rows), fresh.defense.infer(*rows)), (
        "after load_state, infer gives another payload: state does not keep all that it needs"
    )
    for step in range(STEPS, 2 * STEPS):
        assert torch.equal(old.exchange(step), fresh.exchange(step)), (
            "after load_state, the next payload differs: state does not keep all that it needs"
        )
    assert same(old.kept(), fresh.kept()), "after load_state, training goes another way"


def _check_infer(make: Callable[[], Defense], toy: ToyBottom) -> None:
    party = _Bound(make, toy)
    party.exchange(0)
    party.bottom[0].eval()  # a module may stand in another mode than the model
    modes = [module.training for module in party.bottom.modules()]
    before, untouched = _copied(party.kept()), torch.get_rng_state()
    x, ids = party.batch(1)
    payload = party.defense.infer(x, ids)
    expected = (BATCH, *party.payload)
    assert tuple(payload.shape) == expected, f"infer gives shape {tuple(payload.shape)}, not {expected}"
    assert not payload.requires_grad, "infer gives a payload with a graph"
    assert payload.isfinite().all(), "infer gives values that are not finite"
    kept = party.kept()
    for part, what in (("bottom", "the bottom's weights or statistics"), ("optimizer", "the optimiser")):
        assert same(kept[part], before[part]), f"infer changes {what}"
    assert same(kept["rng"], before["rng"]), "infer draws from the party's generators: a question must leave no trace"
    assert same(kept["prepared"], before["prepared"]), "infer changes what prepare made"
    assert same(kept["defense"], before["defense"]), "infer changes the defense's state"
    assert [module.training for module in party.bottom.modules()] == modes, "infer leaves modules in another mode"
    assert torch.equal(torch.get_rng_state(), untouched), "infer draws from the global random state"
    assert torch.equal(party.defense.infer(x, ids), payload), "infer gives another payload for the same rows"


def _check_risk_map(make: Callable[[], Defense], toy: ToyBottom) -> None:
    """The map whose Jacobian the risk meter takes is the map that is sent, at inference and in training."""
    party = _Bound(make, toy)
    party.exchange(0)
    x, ids = party.batch(1)
    before, untouched = _copied(party.kept()), torch.get_rng_state()
    answer = party.defense.risk_map(x, ids)
    if isinstance(answer, NotDifferentiable):
        assert answer.reason.strip(), "risk_map answers NotDifferentiable without a reason"
        return
    assert isinstance(answer, RiskMap), f"risk_map gives a {type(answer).__name__}, not a RiskMap or NotDifferentiable"
    wrong = fault(party.defense, answer, x, ids, STRICT)
    assert not wrong, wrong
    assert same(party.kept(), before), "risk_map changes the party: a question must leave no trace"
    assert torch.equal(torch.get_rng_state(), untouched), "risk_map draws from the global random state"
    if not answer.given:
        _check_sent_in_training(party, answer, x, ids)


def _check_sent_in_training(party: _Bound, answer: RiskMap, x: Tensor, ids: Tensor) -> None:
    """What crosses in training is that map, too, once batch statistics and dropout are out of the way."""
    with torch.no_grad():
        payload = answer.transmit(x, ids)
        noise = answer.noise(payload, x)
    party.bottom.eval()
    # No more exchanges than were planned: a row may have no new payload after them.
    sent = torch.stack([party.defense.forward(x, ids, 1)[0] for _ in range(1 if noise is None else STEPS)])
    draws, spread = len(sent), 0.0
    if noise is not None:
        spread = float(sent.var(0).mean())
        if spread == 0:  # noise that belongs to a row, the same in every exchange: as much as is stated
            u = torch.randn(8, BATCH, payload[0].numel(), generator=seeding.generator(0, "noise"))
            draws, spread = 1, float(noise(u).mean()) / payload[0].numel()
    allowed = STRICT.values + 2 * math.sqrt(spread / draws / max(1e-12, float(payload.square().mean())))
    assert not differs(payload, sent.mean(0), allowed), (
        "forward sends something else than the risk map gives: the risk would be that of inference alone; state it in "
        "`given`, or answer NotDifferentiable"
    )
