"""Where blind training must lose: a label that exists only in the product of two parties' columns."""

from __future__ import annotations

from pathlib import Path

import veracausa
from veracausa.testing.synthetic import product_job


def test_blind_training_cannot_learn_a_product_of_two_parties_and_split_training_can(tmp_path: Path) -> None:
    blind = {"encryption": "none"}
    found = {
        protocol: veracausa.train(
            product_job(tmp_path, training={"protocol": protocol, "epochs": 15, "batch_size": 64}, blind=blind),
            out=tmp_path / protocol,
        ).summary["test"]["auc"]
        for protocol in ("blind", "split")
    }
    # 800 test rows: chance is .5 with a standard deviation of .02.
    assert abs(found["blind"] - 0.5) < 0.08
    assert found["split"] > 0.9
