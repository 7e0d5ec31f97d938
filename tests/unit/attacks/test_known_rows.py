"""An attacker that knows some rows reads the others from what crossed, and from nothing else."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor

from veracausa.attacks.base import AdversaryView, Exchange, Grant
from veracausa.attacks.methods.features.known_rows import KnownRowsOptions, KnownTrainingRows
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter, spread, stack
from veracausa.errors import InputError
from veracausa.metrics.leakage import leakage

SMALL = {"epochs": 12, "channels": 8, "blocks": 1, "batch_size": 32}
COUNT, COLUMNS = 300, 4
KNOWN = torch.arange(0, COUNT, 2)
OTHERS = torch.arange(1, COUNT, 2)


def rows() -> Tensor:
    return torch.randn(COUNT, COLUMNS, generator=toys.rng(1))


def transcript(folder, maps: list[Tensor], of: Tensor, name: str = "bank") -> Transcript:
    """What crosses of these rows while the bottom model is one map after the other; every id crosses every time."""
    writer = TranscriptWriter(folder, Head(victim=name, payload_shape=(maps[0].shape[1],)))
    for step, bottom in enumerate(maps, 1):
        writer.add(Exchange(step, torch.arange(len(of)), of @ bottom, None))
    writer.close()
    return Transcript(folder)


def view(told: Transcript | None, width: int, **changed) -> AdversaryView:
    settings = {
        "grants": Grant.KNOWN_ROWS,
        "victim": "bank",
        "payload_shape": (width,),
        "row_shape": (COLUMNS,),
        "pixels": False,
        "rng": toys.rng(),
        "device": torch.device("cpu"),
        "transcript": told,
        "known_ids": KNOWN,
        "known": rows()[KNOWN],
    }
    return AdversaryView(**{**settings, **changed})


def leaked(attack: KnownTrainingRows, granted: AdversaryView) -> float:
    attack.begin(granted)
    guess = attack.reconstruct(torch.zeros(len(OTHERS), granted.payload_shape[0]), OTHERS)
    truth = rows()[OTHERS]
    return leakage(float((guess - truth).square().mean()), float((truth - rows()[KNOWN].mean(0)).square().mean()))


def made(**settings) -> KnownTrainingRows:
    return KnownTrainingRows(KnownRowsOptions(name="known_rows", **{**SMALL, **settings}))


def test_all_exchanges_together_tell_what_none_tells_alone(tmp_path) -> None:
    """Every exchange sends one number of a row with four columns, each time another one."""
    maps = [torch.eye(COLUMNS)[:, [number % COLUMNS]] for number in range(4)]
    told = transcript(tmp_path, maps, rows())
    alone = leaked(made(exchanges=1), view(told, 1))
    assert alone < 0.5
    assert leaked(made(exchanges=4), view(told, 1)) > 0.9


def test_what_partners_sent_of_the_same_people_is_read_too(tmp_path) -> None:
    bottom = torch.eye(COLUMNS)
    told = transcript(tmp_path / "bank", [bottom[:, :2]], rows())
    partner = {"lab": transcript(tmp_path / "lab", [bottom[:, 2:]], rows(), "lab")}
    without = leaked(made(parties="victim"), view(told, 2, partners=partner))
    assert without < 0.7
    both = made()
    assert leaked(both, view(told, 2, partners=partner)) > 0.9
    assert both.notes()["parties_read"] == 2


def test_payloads_that_say_nothing_tell_nothing(tmp_path) -> None:
    told = transcript(tmp_path, [torch.zeros(COLUMNS, 3)], rows())
    assert abs(leaked(made(), view(told, 3))) < 0.05


def test_an_id_that_never_crossed_is_guessed_from_the_mean(tmp_path) -> None:
    told = transcript(tmp_path, [torch.eye(COLUMNS)], rows())
    attack = made()
    attack.begin(view(told, COLUMNS))
    guess = attack.reconstruct(torch.zeros(2, COLUMNS), torch.tensor([-1, 1]))
    assert guess[0].square().mean() < 0.3 < rows()[1].square().mean()


def test_steps_are_spread_and_the_last_is_among_them(tmp_path) -> None:
    told = transcript(tmp_path, [torch.eye(COLUMNS)] * 9, rows())
    assert spread(told, 4) == [3, 5, 7, 9]
    assert spread(told, 1) == [9]
    assert spread(told, 100) == list(range(1, 10))


def test_maps_are_stacked_as_channels_and_others_as_vectors() -> None:
    assert stack([torch.zeros(2, 3, 4, 5), torch.zeros(2, 1, 4, 5)]).shape == (2, 4, 4, 5)
    assert stack([torch.zeros(2, 3, 4, 5), torch.zeros(2, 7)]).shape == (2, 67)


def test_what_is_missing_is_named(tmp_path) -> None:
    told = transcript(tmp_path, [torch.eye(COLUMNS)], rows())
    with pytest.raises(InputError, match="transcript"):
        made().begin(view(None, COLUMNS))
    with pytest.raises(InputError, match="too few"):
        made().begin(view(told, COLUMNS, known_ids=torch.tensor([900, 901]), known=rows()[:2]))
    with pytest.raises(InputError, match="known rows"):
        made().begin(view(told, COLUMNS, grants=Grant.NONE))
