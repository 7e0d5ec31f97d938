"""The headline of attacks that read one model, several, or all that ever crossed."""

from __future__ import annotations

from typing import Any

import pytest

from veracausa.audit.snapshots import LAST, WHOLE, coverage_of, headline_of
from veracausa.audit.verdict import verdict


def read(leakage: float, **more: Any) -> dict[str, Any]:
    return {"train": {"leakage": leakage, "mse": 0.1, "blind_mse": 0.2}, **more}


def test_what_was_read_from_all_that_crossed_covers_the_whole_training() -> None:
    parties = {"lab": read(0.4, whole_training=1.0), "shop": read(0.6, whole_training=1.0)}
    found = headline_of(parties)
    assert (found["coverage"], found["party"], found["leakage"]) == (WHOLE, "shop", 0.6)
    sentence = verdict({"known_rows": {**found, "parties": parties, "works": True}}, "")
    assert "from its whole training at once, the most over the whole training" in sentence
    assert "last model" not in sentence


@pytest.mark.parametrize("more", [{}, {"whole_training": 0.0}])
def test_one_party_read_by_its_last_model_does_not_count_as_the_whole(more: dict[str, float]) -> None:
    assert coverage_of({"lab": read(0.4, whole_training=1.0), "shop": read(0.6, **more)}) == LAST
