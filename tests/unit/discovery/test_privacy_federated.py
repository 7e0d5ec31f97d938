"""The federation with noise: what the validator receives, what the noise is, what is refused, what parties are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.crypto.fixed_point import GRADIENT_BITS
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.graphs import greedy_cut
from veracausa.discovery.methods.vfedcd.as_published.laplace import LaplaceHeuristic
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.privacy.mechanism import make_mechanism
from veracausa.discovery.privacy.options import Privacy
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import InputError, RunError, VeracausaError
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink

SMALL = Settings(
    width=3, batch=10, epochs=2, refit_epochs=1, structure_every=2, threshold=0.1, held_out=0.0, searches=()
)
SIZES = (2, 1, 2)
D = sum(SIZES)
PRIVACY = Privacy(epsilon=50.0)


def fit(rows: int = 40, settings: Settings = SMALL, scale: float = 1.0, **more: Any) -> DiscoveryResult:
    values = scale * np.random.default_rng(0).standard_normal((rows, D))
    values[:, 3] = values[:, 0] + 0.3 * values[:, 3]
    ends = np.cumsum(SIZES)
    columns = {f"p{at}": values[:, end - size : end] for at, (end, size) in enumerate(zip(ends, SIZES, strict=True))}
    return run_federation(columns, tuple(f"x{at}" for at in range(D)), settings, **{"seed": 1, "timeout": 30.0, **more})


@pytest.fixture
def to_validator(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    sent: list[Message] = []
    deliver = ThreadLink._deliver

    def watched(self: ThreadLink, message: Message, plan: Any) -> None:
        if message.receiver == "validator":
            sent.append(message)
        deliver(self, message, plan)

    monkeypatch.setattr(ThreadLink, "_deliver", watched)
    return sent


@pytest.mark.parametrize("noise_from", ["target", "both"])
def test_the_noise_on_every_block_is_the_one_that_is_accounted_for(noise_from: str) -> None:
    """Rows of zeros teach nothing and no penalty pulls: what the strengths are then is noise alone."""
    privacy = Privacy(epsilon=0.5, clip=1.0, noise_from=noise_from)
    still = {
        "sparsity_weight": 0.0,
        "acyclicity_growth": 0.0,
        "refit_epochs": 0,
        "learning_rate": 1e-3,
        "width": 30,
        "epochs": 3,
    }
    settings = SMALL.model_copy(update=still)
    result = fit(settings=settings, scale=0.0, privacy=privacy)
    unit = 10 / (settings.learning_rate * 2.0**GRADIENT_BITS)
    mechanism = make_mechanism(privacy, D, settings.width, 3, unit)
    steps, noises = 4 * 3, 2 if noise_from == "both" else 1
    expected = settings.learning_rate / 10 * mechanism.deviation * np.sqrt(steps)
    party = np.repeat(np.arange(len(SIZES)), SIZES)
    foreign = party[:, None] != party
    own = ~foreign & ~np.eye(D, dtype=bool)
    first = 1 / (D * np.sqrt(3 * settings.width))  # of the weights that training began with
    for blocks, count in ((foreign, noises), (own, 1)):
        found = np.sqrt(np.square(result.strengths[blocks]).mean() / settings.width)
        assert found == pytest.approx(np.hypot(np.sqrt(count) * expected, first), rel=0.15)


def test_the_validator_gets_no_loss_and_the_record_says_what_holds(to_validator: list[Message]) -> None:
    heard: list[Any] = []
    result = fit(privacy=PRIVACY, observer=heard.append)
    assert {message.kind for message in to_validator} == {"norms"}
    assert all(message.tensors["losses"].tolist() == [0.0] for message in to_validator)
    assert all("loss" not in line for line in result.history)
    assert heard[0]["event"] == "noise"  # before the first epoch
    assert result.noise is not None
    assert result.noise["epsilon"] == pytest.approx(50.0, rel=1e-6)
    assert result.noise["releases"] == 3
    assert "opens" in str(result.noise["not_covered"])
    assert "a simulation" in str(result.noise["guarantee"])  # this one has a seed
    unseeded = fit(privacy=PRIVACY, seed=None).noise
    assert unseeded is not None
    assert unseeded["guarantee"] == "differential privacy"


def test_noise_follows_the_budget_and_a_seed_repeats_it() -> None:
    little, again, much = (fit(privacy=Privacy(epsilon=epsilon, clip=1.0)) for epsilon in (1e6, 1e6, 0.1))
    assert np.array_equal(little.strengths, again.strengths)
    assert much.strengths.max() > 3 * little.strengths.max()


class Interrupted(VeracausaError):
    pass


def test_a_resumed_run_says_that_it_released_more(tmp_path: Path) -> None:
    more = {"privacy": PRIVACY, "out": tmp_path / "run", "checkpoint_every": 1}

    def kill(event: Any) -> None:
        if event.get("step") == 2:
            raise Interrupted("now")

    with pytest.raises(VeracausaError):
        fit(**more, observer=kill)
    result = fit(**more, resume=True)
    assert result.noise is not None
    assert result.noise["releases"] == 4
    assert result.noise["epsilon"] > 55
    with pytest.raises(InputError, match="another checkpoint_every"):
        fit(**{**more, "checkpoint_every": 2}, resume=True)


@pytest.mark.parametrize(("change", "more", "message"), [
    ({"held_out": 0.2}, {}, "held-out rows"),
    ({"held_out": 0.2, "threshold": "held_out"}, {}, "held-out rows"),
    ({}, {"validator": "M1"}, "M1"),
    ({}, {"local_steps": 2}, "local_steps = 1"),
    ({}, {"shares": "all"}, "shares = 'two'"),
    ({}, {"privacy": None, "shares": "all", "output": "own"}, "shares = 'two'"),
    ({"bottleneck": 1}, {}, "bottleneck"),
    ({}, {"laplace": LaplaceHeuristic()}, "laplace"),
    ({}, {"output": "none"}, "output = 'none'"),
    ({}, {"privacy": Privacy(epsilon=1.0, clip=1e9)}, "shares can not hold"),
])  # fmt: skip
def test_what_would_not_be_covered_is_refused(change: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(settings=SMALL.model_copy(update=change), **{"privacy": PRIVACY, **more})


@pytest.mark.parametrize("rule", ["published", "sum"])
def test_the_heuristic_changes_the_strengths_and_claims_nothing(rule: str) -> None:
    settings = SMALL.model_copy(update={"acyclicity_growth": 0.5, "epochs": 3})
    plain = fit(settings=settings)
    noisy = fit(settings=settings, laplace=LaplaceHeuristic(epsilon=4.0, rule=rule))
    assert not np.array_equal(plain.strengths, noisy.strengths)
    assert noisy.noise is not None
    assert noisy.noise["guarantee"] == "heuristic, gives no guarantee"
    assert plain.noise is None
    with pytest.raises(InputError, match="M2"):
        fit(validator="M1", laplace=LaplaceHeuristic(rule=rule))


@pytest.mark.parametrize("link", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("output", ["own", "all"])
def test_every_party_is_told_what_the_policy_says(output: str, link: str) -> None:
    result = fit(output=output, link=link)
    graph = greedy_cut(result.strengths, result.threshold, np.zeros((D, D), dtype=bool), ~result.allowed)
    whole = np.where(graph, result.strengths, 0.0)
    assert graph.any()
    for at, (name, known) in enumerate(result.sent_to.items()):
        own = np.arange(D)[np.repeat(np.arange(len(SIZES)), SIZES) == at]
        touching = np.zeros((D, D), dtype=bool)
        touching[own], touching[:, own] = True, True
        assert np.array_equal(known[touching], whole[touching]), name
        assert np.isnan(known[~touching]).all() if output == "own" else np.array_equal(known, whole)


def test_noise_that_drowns_the_fit_ends_it_with_a_word() -> None:
    """Noise that a step can bear may be too much over many; noise that none can is refused before the first."""
    settings = SMALL.model_copy(update={"learning_rate": 0.05, "epochs": 40})
    with pytest.raises(RunError, match="diverged"), np.errstate(all="ignore"):
        fit(settings=settings, privacy=Privacy(epsilon=20.0))
    with pytest.raises(InputError, match="shares can not hold"):
        fit(settings=settings, privacy=Privacy(epsilon=0.1))
