"""The output policy: what the validator can put into a party's last message, and what a party can take from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from refusals import Field

from veracausa.discovery.privacy.options import received, result_kind, sent_to
from veracausa.errors import WireError
from veracausa.wire.message import Message

D, OWN = 5, slice(1, 3)
STRENGTHS = np.random.default_rng(0).uniform(0.1, 1, (D, D))
GRAPH = np.triu(np.ones((D, D), dtype=bool), 1)


def message(tensors: dict[str, torch.Tensor]) -> Message:
    return Message("validator", "p1", "result", 0, tensors)


@pytest.mark.parametrize("output", ["own", "all"])
def test_a_party_gets_what_the_policy_says(output: str) -> None:
    tensors = sent_to(output, GRAPH, STRENGTHS, OWN)
    message(tensors).check(result_kind(output, D, 2))
    known = received(tensors, D, OWN)
    truth = np.where(GRAPH, STRENGTHS, 0.0)
    touching = np.zeros((D, D), dtype=bool)
    touching[OWN], touching[:, OWN] = True, True
    assert np.array_equal(known[touching], truth[touching])
    if output == "all":
        assert np.array_equal(known, truth)
    else:
        assert np.isnan(known[~touching]).all()


def test_the_kind_has_no_place_for_more() -> None:
    """A validator that sends the whole graph under `own` is refused at both ends, by the declared kind alone."""
    kind = result_kind("own", D, 2)
    with pytest.raises(WireError, check=Field("result.whole")):
        message(sent_to("all", GRAPH, STRENGTHS, OWN)).check(kind)
    with pytest.raises(WireError, check=Field("result.into")):
        message(sent_to("own", GRAPH, STRENGTHS, slice(0, 5))).check(kind)
