"""UnSplit with a clone for each exchange: one row must explain all payloads of it that crossed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toys
from torch import Tensor, nn

from veracausa.attacks.base import AdversaryView, Exchange, Grant
from veracausa.attacks.methods.features.unsplit_clones import UnSplitClones, UnSplitClonesOptions
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter
from veracausa.errors import InputError
from veracausa.seeding import drawing_from

COUNT = 8


def bottom(rng: torch.Generator) -> nn.Module:
    with drawing_from(rng):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU())


def pictures() -> Tensor:
    return toys.pictures(COUNT, 1)[0]


def transcript(folder: Path, epochs: int) -> Transcript:
    writer = TranscriptWriter(folder, Head(victim="bank", payload_shape=(4, 8, 8)))
    for step in range(1, epochs + 1):
        with torch.no_grad():
            writer.add(Exchange(step, torch.arange(COUNT - 1), bottom(toys.rng(step))(pictures()[:-1]), None))
    writer.close()
    return Transcript(folder)


def view(told: Transcript | None) -> AdversaryView:
    return AdversaryView(
        grants=Grant.ARCHITECTURE,
        victim="bank",
        payload_shape=(4, 8, 8),
        row_shape=(1, 8, 8),
        pixels=True,
        rng=toys.rng(9),
        device=torch.device("cpu"),
        bottom=bottom,
        transcript=told,
    )


def made(exchanges: int, **settings) -> UnSplitClones:
    small = {"main": 25, "input_steps": 5, "clone_steps": 5, "input_lr": 0.02, "clone_lr": 0.01, "tv": 0.02, "l2": 0.0}
    return UnSplitClones(
        UnSplitClonesOptions(name="unsplit_clones", exchanges=exchanges, post="none", **{**small, **settings})
    )


def test_every_exchange_has_a_clone_of_its_own_and_all_are_matched(tmp_path: Path) -> None:
    attack = made(3)
    attack.begin(view(transcript(tmp_path, 3)))
    ids = torch.tensor([2, 0, -1, COUNT - 1])
    read = attack.reconstruct(torch.zeros(4, 4, 8, 8), ids)
    assert read.shape == (4, 1, 8, 8)
    assert torch.equal(read[2:], torch.full((2, 1, 8, 8), 0.5)), "who never crossed is not searched for"
    assert float((read[:2] - 0.5).abs().max()) > 0.1
    weights = next(iter(attack.clones.values()))
    assert weights.shape[0] == 3
    assert not torch.equal(weights[0], weights[1]), "they part as they learn"
    notes = attack.notes()
    assert notes["representation_share"] < 0.5, "one row and three clones explain most of three payloads"
    assert notes["exchanges"] == 3


def test_it_searches_like_unsplit_and_draws_nothing(tmp_path: Path) -> None:
    told, ids = transcript(tmp_path, 2), torch.arange(3)
    readings = []
    for _ in range(2):
        attack = made(2, main=3)
        attack.begin(view(told))
        readings.append(attack.reconstruct(torch.zeros(3, 4, 8, 8), ids))
    assert torch.equal(*readings)


def test_without_a_transcript_it_is_refused() -> None:
    with pytest.raises(InputError, match="record a transcript"):
        made(2).begin(view(None))
