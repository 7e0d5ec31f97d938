"""Every registered defense keeps to the contract, and the contract catches those that do not."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import PROTOCOLS, RENAMED, Prepares, Stochastic, members
from veracausa.defenses.risk_map import NotDifferentiable, RiskMap, independent_noise
from veracausa.registry import Options
from veracausa.testing.defense import check_defense

SUITS = {"greyscale": ("maps",)}
"""Defenses that are made for one sort of rows."""


@pytest.mark.parametrize("name", defenses.names())
def test_every_registered_defense(name):
    check_defense(name, toys=SUITS.get(name, ("vectors", "maps")))


class Noise(Defense, Stochastic):
    """Honest noise: from its own generator in training, and from a copy of it for a question; its size is stated."""

    asked = None

    class Options(Options):
        scale: float = 0.1

    def forward(self, x, ids, step):
        payload, context = super().forward(x, ids, step)
        return payload + self.drawn(payload, self.rng), context

    def infer(self, x, ids):
        rng = self.asked
        if rng is None:
            rng = torch.Generator()
            rng.set_state(self.rng.get_state())
        r = super().infer(x, ids)
        return r + self.drawn(r, rng)

    def drawn(self, r, rng):
        return self.options.scale * torch.randn(r.shape, generator=rng)

    def noise_power(self, r, x):
        return independent_noise(torch.tensor(self.options.scale), r) if self.options.scale else None

    @contextmanager
    def resampling(self, rng):
        self.asked = rng
        yield
        self.asked = None


class Masked(Defense, Prepares):
    """Learns a mask of its own, prepares a mean, adds a penalty."""

    def bind(self, bottom, optimizer, rng, runner=None):
        super().bind(bottom, optimizer, rng, runner)
        self.mean, self.count = torch.zeros(()), 0

    def prepare(self, data, progress=None):
        self.mean = data.take(torch.arange(len(data))).mean()

    def penalty(self, r, x):
        return 0.1 * r.square().mean()

    def protect(self, r, x, ids):
        return r * torch.sigmoid(self.mean)

    def backward(self, context, grad, local_steps=1):
        super().backward(context, grad, local_steps)
        self.count += 1

    def state(self):
        return {"mean": self.mean, "count": self.count}

    def load_state(self, state):
        self.mean, self.count = state["mean"], state["count"]


class KeepsMean(Defense, Prepares):
    """Keeps what it prepared once, apart from its state."""

    mean = None

    def prepare(self, data, progress=None):
        self.mean = data.take(torch.arange(len(data))).mean()

    def prepared(self):
        return {"mean": self.mean}

    def load_prepared(self, kept, data=None):
        self.mean = kept["mean"]

    def protect(self, r, x, ids):
        return r + self.mean


@pytest.mark.parametrize("defense", [Defense, Noise, Masked, KeepsMean])
def test_a_good_defense_passes(defense):
    check_defense(defense)


def test_options_reach_the_defense():
    check_defense(Noise, {"scale": 2.0})
    check_defense(Noise, Noise.Options(name="noise", scale=0.0))
    with pytest.raises(ValidationError):
        check_defense(Noise, {"scael": 2.0})


class WrongShape(Defense):
    def protect(self, r, x, ids):
        return r.flatten(1)[:, :3]


class KeepsGraph(Defense):
    def forward(self, x, ids, step):
        r = self.bottom(x)
        return r, Context(x, ids, step, r, r)


class NotFinite(Defense):
    def protect(self, r, x, ids):
        return r / 0


class WrongType(Defense):
    def protect(self, r, x, ids):
        return r.double()


class GlobalNoise(Defense):
    def protect(self, r, x, ids):
        return r + torch.randn_like(r)


class GlobalPrepare(Defense, Prepares):
    def prepare(self, data, progress=None):
        torch.rand(1)


class GlobalSeed(Defense):
    def protect(self, r, x, ids):
        torch.manual_seed(0)
        return r + torch.randn_like(r)


class ChangesRows(Defense):
    def forward(self, x, ids, step):
        x.clamp_(0, 0.1)
        return super().forward(x, ids, step)


class ChangesSent(Defense):
    def backward(self, context, grad, local_steps=1):
        super().backward(context, grad, local_steps)
        context.payload.detach().zero_()


class Frozen(Defense):
    def backward(self, context, grad, local_steps=1):
        pass


class Forgets(Defense):
    """Its payload depends on how often it was asked, which no checkpoint keeps."""

    count = 0

    def backward(self, context, grad, local_steps=1):
        super().backward(context, grad, local_steps)
        self.count += 1

    def protect(self, r, x, ids):
        return r * (1 + self.count)


class ForgetsToLoad(Forgets):
    def state(self):
        return {"count": self.count}


class PreparesOnly(Defense, Prepares):
    """What it prepared is not in its state: a resumed party, which does not prepare again, answers otherwise."""

    mean = 0.0

    def prepare(self, data, progress=None):
        self.mean = float(data.take(torch.arange(len(data))).mean())

    def protect(self, r, x, ids):
        return r + self.mean


class DoesNotLoadPrepared(KeepsMean):
    def load_prepared(self, kept, data=None):
        self.mean = torch.zeros(())


class ChangesPrepared(KeepsMean):
    def backward(self, context, grad, local_steps=1):
        super().backward(context, grad, local_steps)
        self.mean = self.mean + 1


class ForgetsItsModel(Defense):
    """A masker of its own that learns, is checkpointed without its optimiser."""

    def bind(self, bottom, optimizer, rng, runner=None):
        super().bind(bottom, optimizer, rng, runner)
        self.scale = nn.Parameter(torch.ones(()))
        self.own = torch.optim.Adam([self.scale], lr=0.1)

    def protect(self, r, x, ids):
        return r * self.scale

    def backward(self, context, grad, local_steps=1):
        self.own.zero_grad()
        super().backward(context, grad, local_steps)
        self.own.step()

    def state(self):
        return {"scale": self.scale}

    def load_state(self, state):
        self.scale.data.copy_(state["scale"])


class InferTrains(Defense):
    def infer(self, x, ids):
        with torch.no_grad():
            return self.bottom(x)


class InferLeavesEval(Defense):
    def infer(self, x, ids):
        self.bottom.eval()
        with torch.no_grad():
            return self.bottom(x)


class InferDraws(Defense):
    def infer(self, x, ids):
        r = super().infer(x, ids)
        return r + torch.randn(r.shape, generator=self.rng)


class InferCounts(Masked):
    def infer(self, x, ids):
        self.count += 1
        return super().infer(x, ids)


class InferSteps(Defense):
    def infer(self, x, ids):
        r = super().infer(x, ids)
        self.optimizer.step()
        return r


class InferKeepsGraph(Defense):
    def infer(self, x, ids):
        self.bottom.eval()
        r = self.bottom(x)
        self.bottom.train()
        return r


class RoundsWithoutSlope(Defense):
    """Hides nothing: a thousandth. The gradient goes straight through in `forward`, so its map's Jacobian is 0."""

    def protect(self, r, x, ids):
        return (r * 1000).round() / 1000

    def forward(self, x, ids, step):
        r = self.run_bottom(x)
        payload = r + (self.protect(r, x, ids) - r).detach()
        return payload.detach(), Context(x, ids, step, r, payload)


class SendsZeros(Defense):
    """Sends nothing at all, with the gradient of an undefended party."""

    def protect(self, r, x, ids):
        return r - r.detach()


class StraightThrough(Defense):
    """Rounds to halves with a gradient that pretends it did not."""

    def protect(self, r, x, ids):
        return r + ((2 * r).round() / 2 - r).detach()


class AnotherMap(Defense):
    """States a map that hides half of what is sent."""

    def risk_map(self, x, ids):
        return RiskMap(lambda rows, ids: 0.5 * self.deterministic_payload(rows, ids))


class ClaimsNoise(Noise):
    """States ten times the noise that it sends."""

    def noise_power(self, r, x):
        return independent_noise(torch.tensor(10 * self.options.scale), r)


class HidesOnlyAtInference(Defense):
    """The risk of what is sent at inference is 0; in training everything crosses."""

    def infer(self, x, ids):
        return torch.zeros_like(super().infer(x, ids))

    def deterministic_payload(self, x, ids):
        return 0 * super().deterministic_payload(x, ids)


class RiskMapDraws(Defense):
    def risk_map(self, x, ids):
        torch.rand(3, generator=self.rng)
        return super().risk_map(x, ids)


class NoReason(Defense):
    def risk_map(self, x, ids):
        return NotDifferentiable(" ")


class NoAnswer(Defense):
    def risk_map(self, x, ids):
        return None


class SeesLabels(Defense, Prepares):
    def prepare(self, data, progress=None, labels=None):
        pass


@pytest.mark.parametrize(
    ("defense", "complaint"),
    [
        (WrongShape, r"a bottom that gives vectors: the payload has shape \(8, 3\), not \(8, 4\)"),
        (KeepsGraph, "the payload is not detached"),
        (NotFinite, "values that are not finite"),
        (WrongType, "the payload is torch.float64"),
        (GlobalNoise, "draws from the global random state"),
        (GlobalPrepare, "draws from the global random state"),
        (GlobalSeed, "draws from the global random state"),
        (ChangesRows, "forward changes the party's rows"),
        (ChangesSent, "backward changes the payload that was sent"),
        (Frozen, "backward leaves the bottom model as it was"),
        (Forgets, "after load_state, infer gives another payload"),
        (ForgetsToLoad, "load_state does not bring back what state gave"),
        (PreparesOnly, "after load_state, infer gives another payload"),
        (DoesNotLoadPrepared, "load_prepared does not bring back what prepared gave"),
        (ChangesPrepared, "an exchange changes what prepare made"),
        (ForgetsItsModel, "after load_state, the next payload differs"),
        (InferTrains, "infer changes the bottom's weights or statistics"),
        (InferLeavesEval, "infer leaves modules in another mode"),
        (InferDraws, "infer draws from the party's generators"),
        (InferCounts, "infer changes the defense's state"),
        (InferSteps, "infer changes the bottom's weights"),
        (InferKeepsGraph, "infer gives a payload with a graph"),
        (RoundsWithoutSlope, "Jacobian is not how the payload changes with the row: finite differences .* 100% off"),
        (SendsZeros, "Jacobian is not how the payload changes with the row: finite differences .* 100% off"),
        (StraightThrough, "Jacobian is not how the payload changes with the row: finite differences"),
        (AnotherMap, "its risk map gives other values than what is sent"),
        (ClaimsNoise, "the noise that is stated is not the noise that is sent"),
        (HidesOnlyAtInference, "forward sends something else than the risk map gives"),
        (RiskMapDraws, "risk_map changes the party"),
        (NoReason, "NotDifferentiable without a reason"),
        (NoAnswer, "risk_map gives a NoneType"),
        (SeesLabels, "SeesLabels.prepare takes 'labels': a defense never sees labels"),
    ],
)
def test_a_broken_defense_is_caught(defense, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_defense(defense)


class Coarse(StraightThrough):
    """Says of itself that it has no Jacobian."""

    def risk_map(self, x, ids):
        return NotDifferentiable("it rounds")


def test_a_defense_may_answer_that_it_has_no_jacobian():
    check_defense(Coarse)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_method_of_the_earlier_contract_is_named_with_its_new_name(old, new):
    defense = type("Earlier", (Defense,), {old: lambda self: None})
    with pytest.raises(AssertionError, match=f"Earlier has '{old}', which is called '{new}' now: rename it"):
        check_defense(defense)


def test_noise_stated_the_earlier_way_is_refused():
    defense = type("Earlier", (Defense,), {"noise_std": lambda self, r, x: None})
    with pytest.raises(AssertionError, match="state it by 'noise_power'"):
        check_defense(defense)


@pytest.mark.parametrize("protocol", [p for p in PROTOCOLS if len(members(p)) > 1])
def test_a_part_of_a_protocol_is_refused(protocol):
    """Nobody would call it: a caller asks for the whole protocol."""
    first, second = members(protocol)[:2]
    defense = type("Part", (Defense,), {first: lambda self: None})
    with pytest.raises(AssertionError, match=f"Part has '{first}' and lacks '{second}'.*inherit {protocol.__name__}"):
        check_defense(defense)


class FlatMaps(Defense):
    """Right for vectors, wrong for maps."""

    def protect(self, r, x, ids):
        return r.flatten(1)


def test_maps_are_tried_as_well_as_vectors():
    with pytest.raises(AssertionError, match="a bottom that gives maps: the payload has shape"):
        check_defense(FlatMaps)
    check_defense(FlatMaps, toys=("vectors",))
