"""The adaptive attackers: each beats the plain decoder where it is meant to, and not where there is nothing to gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
import toys
from torch import Tensor

from veracausa.attacks.base import AdversaryView, Exchange, Grant
from veracausa.attacks.methods.features.averaging import Averaging, AveragingOptions
from veracausa.attacks.methods.features.differencing import Differencing, DifferencingOptions, differences
from veracausa.attacks.methods.features.inverse import InverseNetwork, InverseOptions
from veracausa.attacks.methods.features.mismatch import Mismatch, MismatchOptions, late_from_early
from veracausa.attacks.methods.features.norm_inflation import NormInflation, NormInflationOptions, lengthening
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter, aligned, averaged, nearest_payloads
from veracausa.errors import InputError
from veracausa.metrics.leakage import leakage

SMALL = {"epochs": 12, "channels": 8, "blocks": 1, "batch_size": 32}
COUNT, COLUMNS, WIDTH = 300, 4, 8


class History(list[Exchange]):
    """A transcript in memory."""

    moments: ClassVar = {"start": 1, "half": 6, "end": 12}

    def step_of(self, moment: str) -> int:
        return self.moments[moment]

    def all_payloads(self, ids: Tensor, most: int) -> tuple[Tensor, Tensor]:
        latest = list(reversed(self))[:most]
        steps = torch.tensor([exchange.step for exchange in latest])
        return torch.stack([exchange.payload[ids] for exchange in latest], 1), steps.expand(len(ids), -1)


def rows() -> tuple[Tensor, Tensor]:
    """The attacker's, and the victims'."""
    drawn = torch.randn(2 * COUNT, COLUMNS, generator=toys.rng(1))
    return drawn[:COUNT], drawn[COUNT:]


def maps(count: int = 12) -> list[Tensor]:
    """A bottom model that moves on from exchange to exchange."""
    draws = toys.rng(2)
    start = torch.randn(COLUMNS, WIDTH, generator=draws)
    return [start + 0.3 * step * torch.randn(COLUMNS, WIDTH, generator=toys.rng(3)) for step in range(count)]


def view(oracle: Callable[[], Tensor], **changed) -> AdversaryView:
    auxiliary, _ = rows()
    settings = {
        "grants": ~Grant.NONE,
        "victim": "bank",
        "payload_shape": (WIDTH,),
        "row_shape": (COLUMNS,),
        "pixels": False,
        "rng": toys.rng(),
        "device": torch.device("cpu"),
        "auxiliary": auxiliary,
        "oracle": oracle,
        "transmit": oracle,
        "defense": oracle,
    }
    return AdversaryView(**{**settings, **changed})


def leaked(guess: Tensor) -> float:
    auxiliary, victims = rows()
    blind = float((victims - auxiliary.mean(0)).square().mean())
    return leakage(float((guess - victims).square().mean()), blind)


def noisy(payload: Tensor, draws: torch.Generator, size: float = 4.0) -> Tensor:
    return payload + size * torch.randn(payload.shape, generator=draws)


@pytest.mark.parametrize("recorded", [True, False])
def test_averaging_sees_through_fresh_noise(recorded: bool) -> None:
    auxiliary, victims = rows()
    bottom, draws, ids = maps()[0], toys.rng(4), torch.arange(COUNT)
    sent = [noisy(victims @ bottom, draws) for _ in range(12)]
    transcript = History(Exchange(step, ids, payload, None) for step, payload in enumerate(sent, 1))
    granted = view(lambda: noisy(auxiliary @ bottom, draws), fresh=True, transcript=transcript if recorded else None)
    single = InverseNetwork(InverseOptions(name="inverse", **SMALL))
    single.begin(granted)
    attack = Averaging(AveragingOptions(name="averaging", exchanges=12, **SMALL))
    attack.begin(granted)
    guess = attack.reconstruct(sent[-1] if recorded else torch.stack(sent, 1), ids)
    alone = leaked(single.reconstruct(sent[-1], ids))
    assert leaked(guess) > alone + 0.2
    if not recorded:
        with pytest.raises(InputError, match="several payloads"):
            attack.reconstruct(sent[-1], ids)


def test_averaging_gains_nothing_from_a_map_that_stays() -> None:
    auxiliary, victims = rows()
    bottom, ids = maps()[0][:, :3], torch.arange(COUNT)  # three numbers of four columns: something stays hidden
    transcript = History(Exchange(step, ids, victims @ bottom, None) for step in range(1, 13))
    granted = view(lambda: auxiliary @ bottom, transcript=transcript, payload_shape=(3,))
    single = InverseNetwork(InverseOptions(name="inverse", **SMALL))
    single.begin(granted)
    attack = Averaging(AveragingOptions(name="averaging", **SMALL))
    attack.begin(view(lambda: auxiliary @ bottom, transcript=transcript, payload_shape=(3,)))
    both = [leaked(reader.reconstruct(victims @ bottom, ids)) for reader in (single, attack)]
    assert abs(both[0] - both[1]) < 0.02
    assert both[1] < 0.95


def test_differencing_cancels_noise_that_is_fixed_for_an_id() -> None:
    auxiliary, victims = rows()
    moving, ids = maps(), torch.arange(COUNT)
    own, fixed = (20 * torch.randn(COUNT, WIDTH, generator=toys.rng(seed)) for seed in (5, 6))
    sent = [victims @ bottom + fixed for bottom in moving]
    transcript = History(Exchange(step, ids, payload, None) for step, payload in enumerate(sent, 1))
    at = {name: _at(auxiliary @ moving[step - 1] + own) for name, step in History.moments.items()}
    granted = view(at["end"], oracle_at=at, transcript=transcript)
    plain = InverseNetwork(InverseOptions(name="inverse", **SMALL))
    plain.begin(granted)
    attack = Differencing(DifferencingOptions(name="differencing", **SMALL))
    attack.begin(granted)
    assert leaked(plain.reconstruct(sent[-1], ids)) < 0.3
    assert leaked(attack.reconstruct(sent[-1], ids)) > 0.8
    given = torch.stack([sent[step - 1] for step in History.moments.values()], 1)
    assert leaked(attack.reconstruct(given, ids)) > 0.8
    unknown = attack.reconstruct(sent[-1][:2], torch.tensor([-1, COUNT]))
    assert torch.equal(unknown[0], unknown[1]), "nothing is known of either"
    with pytest.raises(InputError, match="is given 2"):
        attack.reconstruct(given[:, :2], ids)


def test_differencing_reads_nothing_where_the_model_stands_still() -> None:
    auxiliary, victims = rows()
    bottom, ids = maps()[0], torch.arange(COUNT)
    draws = toys.rng(7)
    transcript = History(Exchange(step, ids, noisy(victims @ bottom, draws), None) for step in range(1, 13))
    at = {name: _at(noisy(auxiliary @ bottom, draws)) for name in History.moments}
    attack = Differencing(DifferencingOptions(name="differencing", **SMALL))
    attack.begin(view(at["end"], oracle_at=at, transcript=transcript))
    assert leaked(attack.reconstruct(victims @ bottom, ids)) < 0.05


def test_differencing_says_what_is_missing() -> None:
    attack = Differencing(DifferencingOptions(name="differencing", **SMALL))
    with pytest.raises(InputError, match="`oracle_at` has 0"):
        attack.begin(view(lambda: torch.zeros(COUNT, WIDTH)))
    assert differences(torch.arange(12.0).view(1, 3, 2, 2)).tolist() == [[[4.0, 4.0]] * 4]


def test_mismatch_takes_from_an_ids_history_what_agrees_with_its_end() -> None:
    """Each exchange is disturbed anew, the last ones hardly; one early payload alone says little."""
    auxiliary, victims = rows()
    bottom, draws, ids = maps()[0], toys.rng(8), torch.arange(COUNT)
    sent = [noisy(victims @ bottom, draws, 2.0 if step < 11 else 0.1) for step in range(12)]
    transcript = History(Exchange(step, ids, payload, None) for step, payload in enumerate(sent, 1))
    attack = Mismatch(MismatchOptions(name="mismatch", early=6, **SMALL))
    attack.begin(view(lambda: auxiliary @ bottom, transcript=transcript))
    guess = attack.reconstruct(sent[0], ids)
    assert leaked(guess) > leaked(attack.reconstruct(sent[0], torch.full_like(ids, -1))) + 0.1
    assert 0.5 < attack.notes()["explained"] <= 1


def test_mismatch_reads_nothing_from_noise_and_needs_a_transcript() -> None:
    auxiliary, _ = rows()
    bottom, draws, ids = maps()[0], toys.rng(9), torch.arange(COUNT)
    noise = [torch.randn(COUNT, WIDTH, generator=draws) for _ in range(12)]
    transcript = History(Exchange(step, ids, payload, None) for step, payload in enumerate(noise, 1))
    attack = Mismatch(MismatchOptions(name="mismatch", **SMALL))
    attack.begin(view(lambda: auxiliary @ bottom, transcript=transcript))
    assert leaked(attack.reconstruct(noise[-1], ids)) < 0.05
    with pytest.raises(InputError, match="transcript"):
        Mismatch(MismatchOptions(name="mismatch", **SMALL)).begin(view(lambda: auxiliary @ bottom))


def test_maps_are_regressed_place_by_place() -> None:
    early = torch.randn(40, 2, 3, 4, 2, generator=toys.rng(1))
    weights = torch.randn(6, 3, generator=toys.rng(2))
    late = torch.einsum("nkchw,kcd->ndhw", early, weights.view(2, 3, 3))
    told = late_from_early(early, late, toys.rng())
    assert torch.allclose(
        told(early.flatten(1, 2).movedim(1, -1).reshape(-1, 6))[:8].view(4, 2, 3), late[0].movedim(0, -1), atol=0.05
    )


def test_norm_inflation_makes_payloads_grow_and_more_with_its_strength() -> None:
    growth = {}
    for strength in (0.0, 0.3, 3.0):
        toy = toys.Toy(lr=1e-3)
        attack = NormInflation(NormInflationOptions(name="norm_inflation", strength=strength, **SMALL))
        attack.begin(toy.view())
        toy.train(attack, 60)
        growth[strength] = sum(toy.norms[-10:]) / sum(toy.norms[:10])
        assert attack.notes()["exchanges"] == 60
        assert (attack.notes()["growth"] > 1.02) == (growth[strength] > 1.02)
    assert growth[3.0] > growth[0.0] + 0.05
    assert growth[3.0] >= growth[0.3]


def test_what_norm_inflation_adds_is_the_gradient_of_minus_the_mean_norm() -> None:
    payload = torch.randn(5, 2, 3, generator=toys.rng(), requires_grad=True)
    (-payload.flatten(1).norm(dim=1).mean()).backward()
    assert torch.allclose(payload.grad, lengthening(payload.detach()))


def test_an_inflated_victim_is_read_by_the_inverse_network() -> None:
    toy = toys.Toy()
    attack = NormInflation(NormInflationOptions(name="norm_inflation", **SMALL))
    attack.begin(toy.view())
    toy.train(attack, 5)
    with torch.no_grad():
        known = toy.bottoms[toys.VICTIM](toy.spare[toys.VICTIM])
    attack.read_with(toy.view(oracle=lambda: known, transmit=torch.clone, defense=torch.clone))
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) > 0.8
    restored = NormInflation(NormInflationOptions(name="norm_inflation", **SMALL))
    restored.begin(toy.view(grants=Grant.TAMPER))
    restored.load_state(attack.state())
    assert restored.notes()["growth"] == attack.notes()["growth"]
    with pytest.raises(InputError, match="to read what it inflated"):
        restored.reconstruct(toy.payloads(), torch.arange(toy.count))


def test_histories() -> None:
    exchanges = [
        Exchange(step, torch.tensor([step % 3, 5]), torch.full((2, 1), float(step)), None) for step in range(1, 8)
    ]
    found, seen = nearest_payloads(exchanges, torch.tensor([5, 0, 9, 5, -1]), [1, 4])
    assert found.squeeze(2)[seen].tolist() == [[1, 4], [3, 3], [1, 4]]
    assert seen.tolist() == [True, True, False, True, False]
    with pytest.raises(InputError, match="empty"):
        nearest_payloads([], torch.tensor([9]), [1])
    known = torch.tensor([[True, False], [True, True]])
    assert averaged(torch.tensor([[[2.0], [100.0]], [[2.0], [4.0]]]), known).tolist() == [[2.0], [3.0]]
    like = torch.randn(50, 3, 4, generator=toys.rng())
    moved = aligned(7 * like + 2, like)
    assert torch.allclose(moved, like, atol=1e-4)
    assert torch.equal(aligned(like[:3], like), like[:3])


def test_a_transcript_on_disk_tells_what_one_in_memory_tells(tmp_path) -> None:
    auxiliary, victims = rows()
    bottom, draws, ids = maps()[0], toys.rng(4), torch.arange(COUNT)
    exchanges = History(Exchange(step, ids, noisy(victims @ bottom, draws), None) for step in range(1, 13))
    head = Head(
        victim="bank",
        payload_shape=(WIDTH,),
        dtype="float32",
        row_shape=(COLUMNS,),
        task="regression",
        classes=0,
        moments=History.moments,
    )
    writer = TranscriptWriter(tmp_path / "kept", head)
    for exchange in exchanges:
        writer.add(exchange)
    writer.close()
    recorded = Transcript(tmp_path / "kept")
    some = torch.tensor([7, -1, 3, COUNT])
    found = [
        nearest_payloads(kept, some, [kept.step_of("start"), kept.step_of("end")]) for kept in (exchanges, recorded)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    guesses = []
    for kept in (exchanges, recorded):
        attack = Averaging(AveragingOptions(name="averaging", **{**SMALL, "epochs": 1}))
        attack.begin(view(lambda: auxiliary @ bottom, transcript=kept))
        guesses.append(attack.reconstruct(exchanges[-1].payload, ids))
    assert torch.allclose(*guesses, atol=1e-5)


def _at(payloads: Tensor) -> Callable[[], Tensor]:
    return lambda: payloads
