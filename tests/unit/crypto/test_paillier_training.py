"""A short federated discovery under Paillier: the same graph as the plaintext twin, to the last bit, also resumed.

The key is shorter than the product allows, so that this takes a second. A key of full length is in the slow
equivalence tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veracausa.crypto.randomness import Toss
from veracausa.discovery.engines.launch import run_federation
from veracausa.discovery.methods.vfedcd.settings import Settings
from veracausa.discovery.result import DiscoveryResult
from veracausa.errors import RunError
from veracausa.wire.message import Message
from veracausa.wire.threads import ThreadLink

KEYS = list[np.ndarray]


def fit(encryption: str, **more: Any) -> DiscoveryResult:
    values = np.random.default_rng(0).normal(size=(20, 3))
    settings = Settings(epochs=2, refit_epochs=1, batch=8, width=2, held_out=0.2, searches=())
    columns = {"a": values[:, :2], "b": values[:, 2:]}
    return run_federation(columns, ["x", "y", "z"], settings, encryption=encryption, **{"seed": 3, **more})


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> KEYS:
    """Every public key that was made; short ones."""
    pytest.importorskip("gmpy2")
    from veracausa.crypto.backends import paillier

    made: KEYS = []

    def quick_key(toss: Toss, party: str) -> paillier.Paillier:
        short = whole.with_insecure_key(768)
        made.append(short.public_key())
        return short

    whole = paillier.Paillier
    monkeypatch.setattr(paillier, "Paillier", quick_key)
    return made


def test_a_training_is_the_twins(keys: KEYS) -> None:
    ours, twin = fit("paillier"), fit("none")
    assert len(keys) == 2
    np.testing.assert_array_equal(ours.strengths, twin.strengths)
    np.testing.assert_array_equal(ours.allowed, twin.allowed)
    sent = [result.sent["a"]["offline_bytes"] for result in (ours, twin)]
    assert sent[0] > 2 * sent[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, None])
def test_a_training_that_was_killed_goes_on_with_new_keys_and_masks_to_the_twins_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: KEYS, seed: int | None
) -> None:
    """A mask that came back after the resume would show as a number that is sent, or opened by its key, twice."""
    from veracausa.crypto.backends.paillier import encryption

    sent: dict[str, list[np.ndarray]] = {}
    deliver, opens = ThreadLink._deliver, encryption.Paillier._open

    def watched(self: ThreadLink, message: Message, plan: Any) -> None:
        if message.kind in ("masked", "answer"):
            for name, tensor in message.tensors.items():
                sent.setdefault(f"{message.kind}.{name}", []).append(tensor.numpy().copy())
        deliver(self, message, plan)

    def opened(self: Any, purpose: str, *given: Any) -> Any:
        parts = opens(self, purpose, *given)
        sent.setdefault(purpose, []).extend(np.ravel(part).copy() for part in parts)
        return parts

    monkeypatch.setattr(ThreadLink, "_deliver", watched)
    monkeypatch.setattr(encryption.Paillier, "_open", opened)

    def kill(event: Mapping[str, Any]) -> None:
        if event["step"] == 2:
            raise RunError("killed")

    how = {"seed": seed, "out": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(RunError):
        fit("paillier", **how, observer=kill)
    before = {name: len(parts) for name, parts in sent.items()}
    resumed = fit("paillier", **how, resume=True)
    assert len({key.tobytes() for key in keys}) == 4
    assert {"masked.weights", "masked.gradients", "answer.features", "forward", "backward"} <= set(sent)
    assert all(0 < before[name] < len(parts) for name, parts in sent.items())
    words = np.concatenate([part for parts in sent.values() for part in parts])
    assert len(np.unique(words)) == len(words)  # two of 59 random bits are alike once in 10^11
    if seed is not None:
        twin = fit("none", seed=seed)
        np.testing.assert_array_equal(resumed.strengths, twin.strengths)
        assert (resumed.threshold, resumed.held_out_loss) == (twin.threshold, twin.held_out_loss)
        assert resumed.history == twin.history
