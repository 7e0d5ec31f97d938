"""A whole training under Paillier ends with the plaintext twin's integers."""

from __future__ import annotations

import numpy as np
import pytest

from veracausa.discovery.federated.run import FederatedFit, discover
from veracausa.discovery.settings import Settings


def fit(encryption: str) -> FederatedFit:
    values = np.random.default_rng(0).normal(size=(20, 3))
    settings = Settings(epochs=2, refit_epochs=1, batch=8, width=2, held_out=0.2)
    columns = {"a": values[:, :2], "b": values[:, 2:]}
    return discover(columns, ["x", "y", "z"], settings, seed=3, encryption=encryption)


def test_a_training_is_the_twins(monkeypatch):
    pytest.importorskip("gmpy2")
    from veracausa.crypto.backends import paillier

    made = []

    def quick_key() -> paillier.Paillier:
        made.append(whole.with_insecure_key(768))
        return made[-1]

    whole = paillier.Paillier
    monkeypatch.setattr(paillier, "Paillier", quick_key)
    ours, twin = fit("paillier"), fit("none")
    assert len(made) == 2
    np.testing.assert_array_equal(ours.strengths, twin.strengths)
    np.testing.assert_array_equal(ours.allowed, twin.allowed)
    sent = [result.sent["a"]["offline_bytes"] for result in (ours, twin)]
    assert sent[0] > 2 * sent[1]
