"""What a party is told that it will send is what leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veracausa
from veracausa.config import load_job
from veracausa.federation.training_messages import OwnPart, declared_training
from veracausa.wire.ledger import read_ledger


def blind_job(folder: Path, **blind: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 6))
    lines = ["id," + ",".join(f"c{i}" for i in range(6)) + ",label"]
    lines += [f"P{at}," + ",".join(f"{v:.4f}" for v in row) + f",{int(row.sum() > 0)}" for at, row in enumerate(x)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return {
        "data": {"name": "csv", "path": str(folder / "table.csv"), "id": "id", "label": "label"},
        "partition": {"active_has_features": True},
        "training": {"protocol": "blind"},
        "blind": {"encryption": "none", **blind},
        "features": {"name": "splines", "functions": 4},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }


@pytest.mark.parametrize(
    "blind", [{}, {"labels": "private"}, {"encryption": "bfv"}], ids=["none", "private labels", "bfv"]
)
def test_a_blind_run_sends_what_was_declared_and_not_much_more(blind, tmp_path):
    if blind.get("encryption") == "bfv":
        pytest.importorskip("seal")
    tree = blind_job(tmp_path, **blind)
    run = veracausa.train(tree, out=tmp_path / "run")
    for party in ("active", "passive_1", "passive_2"):
        part = OwnPart(load_job(tree), party, 1200, (2,), 2, 2)
        declared = {line.kind: line for line in declared_training(part)}
        sent: dict[str, int] = {}
        for line in read_ledger(run.path / "parties" / party / "ledger.jsonl"):
            assert line["to"] in declared[line["kind"]].to
            sent[line["kind"]] = sent.get(line["kind"], 0) + line["bytes"]
        for kind in ("moment_query", "moment_share", "answer", "labels", "key"):
            if kind in sent and (told := declared[kind].bytes) is not None:
                # Features are guessed before a map is fitted: here 16 for about 6.
                assert sent[kind] <= 1.2 * told + 2000


def test_the_words_say_what_is_not_encrypted_and_what_is_as_it_is(tmp_path):
    tree = blind_job(tmp_path, labels="shared")
    lines = {line.kind: line for line in declared_training(OwnPart(load_job(tree), "active", 100, (), None, 2))}
    assert "NOT ENCRYPTED" in lines["moment_query"].shape
    assert "AS IT IS" in lines["labels"].shape
    tree["blind"] = {"encryption": "bfv"}
    lines = {line.kind: line for line in declared_training(OwnPart(load_job(tree), "passive_1", 100, (4,), 4, None))}
    assert "encrypted" in lines["moment_query"].shape
    assert "labels" not in lines
    assert lines["answer"].bytes is None  # how many classes there are is the active party's to know
