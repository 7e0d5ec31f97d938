"""SDAR beside a toy federation: it reads honest payloads, and nothing where payloads do not depend on rows."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
import toys
from torch import Tensor

from veracausa import seeding
from veracausa.attacks import networks as discriminators
from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.methods.features.sdar import SDAR, SDAROptions
from veracausa.attacks.networks import ConditionedDecoder, RowDiscriminator
from veracausa.errors import InputError


@pytest.fixture(autouse=True)
def small_judges(monkeypatch) -> None:
    """Of two values a payload, a small network can judge too, in a fraction of the time."""
    monkeypatch.setattr(discriminators, "_VECTOR_WIDTH", 48)


def sdar(**settings) -> SDAR:
    small = {"name": "sdar", "channels": 8, "blocks": 1, "lr_simulator": 1e-2, "lr_decoder": 3e-3, "lambda2": 0.0}
    return SDAR(SDAROptions(**{**small, **settings}))


def trained(toy: toys.Toy, exchanges: int, seed: int = 5, **settings) -> SDAR:
    attack = sdar(**settings)
    attack.begin(toy.view(seed))
    toy.train(attack, exchanges)
    return attack


def test_it_reads_an_honest_training() -> None:
    toy = toys.Toy()
    attack = trained(toy, 250)
    everyone = torch.arange(toy.count)
    assert toy.leaked(attack.reconstruct(toy.payloads(), everyone)) > 0.7
    # Somebody's label may be unknown, say that of a test row.
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.full_like(everyone, -1))) > 0.3
    assert attack.notes()["exchanges"] == 250


def test_it_reads_nothing_from_payloads_without_rows() -> None:
    noise = toys.rng(9)
    toy = toys.Toy(send=lambda payload, ids: torch.randn(payload.shape, generator=noise))
    attack = trained(toy, 60, lambda1=0.0)
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) < 0.05


def test_observed_payloads_of_the_same_class_can_stand_in_for_the_other_party() -> None:
    toy = toys.Toy()
    attack = trained(toy, 250, others="observed", lambda1=0.0)
    assert list(attack.parties) == [toys.VICTIM]
    same = attack.labels[attack.matched] == attack.targets[attack.chosen]
    present = torch.isin(attack.targets[attack.chosen], attack.labels)
    assert same[present].all()
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) > 0.6


def test_all_four_networks_learn_and_nobody_elses_do() -> None:
    toy = toys.Toy(lr=0.0)
    attack = sdar(lambda2=1e-2)
    attack.begin(toy.view())
    before = [_weights(module) for module in (*attack.modules, toy.top, *toy.bottoms.values())]
    toy.train(attack, 2)
    after = [_weights(module) for module in (*attack.modules, toy.top, *toy.bottoms.values())]
    moved = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert moved == [True] * len(attack.modules) + [False] * 3


def test_a_resumed_attack_goes_on_as_the_unbroken_one() -> None:
    whole = trained(toys.Toy(), 6, lambda2=1e-3)
    toy = toys.Toy()
    first = trained(toy, 3, lambda2=1e-3)
    state, kept = first.state(), first.view.rng.get_state()
    second = sdar(lambda2=1e-3)
    view = toy.view(7)
    second.begin(view)
    second.load_state(state)
    view.rng.set_state(kept)  # a live run keeps the generator itself
    toy.train(second, 3)
    for one, other in zip(whole.modules, second.modules, strict=True):
        assert torch.equal(_weights(one), _weights(other))
    assert second.notes() == whole.notes()


def test_what_crosses_in_the_last_epoch_is_read_as_it_crosses() -> None:
    toy = toys.Toy()
    attack = sdar(reads="crossing")
    attack.begin(toy.view(epochs=3))
    everyone = torch.arange(toy.count)
    per_epoch = -(-toy.count // toys.Toy.BATCH)
    toy.train(attack, 2 * per_epoch - 2)
    assert not attack.crossed.any(), "before the last epoch nothing is kept"
    toy.train(attack, 250)
    assert attack.crossed.all()
    elsewhere = torch.zeros_like(toy.payloads())
    assert toy.leaked(attack.reconstruct(elsewhere, everyone)) > 0.7, "it does not look at what it is given"
    stranger = torch.full_like(everyone, -1)
    assert toy.leaked(attack.reconstruct(elsewhere, stranger)) < 0.1, "of strangers it reads what it is given"
    other = sdar(reads="crossing")
    other.begin(toy.view(epochs=3))
    other.load_state(attack.state())
    assert torch.equal(other.reconstruct(elsewhere, everyone), attack.reconstruct(elsewhere, everyone))


def test_a_short_last_batch_is_filled_up_and_a_single_row_is_left_out() -> None:
    toy = toys.Toy()
    attack = trained(toy, 1)
    whole = _exchange(toy, 10)
    attack.observe(whole)
    attack.observe(_exchange(toy, 1))
    assert attack.exchanges == 2
    assert torch.equal(attack.sent[toys.VICTIM][10:20], whole.payload)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_step_is_replayed() -> None:
    toy = toys.Toy(device="cuda")
    attack = trained(toy, 250, lambda2=1e-5)
    assert type(attack.step).__name__ == "_Replay"
    assert toy.leaked(attack.reconstruct(toy.payloads(), torch.arange(toy.count))) > 0.5


def test_it_says_what_it_lacks() -> None:
    toy = toys.Toy()
    live = vars(toy.view())
    with pytest.raises(InputError, match="live"):
        sdar().begin(AdversaryView(**{name.name: live[name.name] for name in fields(AdversaryView)}))
    with pytest.raises(InputError, match="labelled auxiliary"):
        sdar().begin(toy.view(auxiliary_labels=None))
    with pytest.raises(InputError, match="architecture"):
        sdar().begin(toy.view(grants=Grant.LABELS))


def test_a_regression_is_attacked_without_labels_as_conditions() -> None:
    toy = toys.Toy()
    attack = sdar()
    attack.begin(toy.view(classes=0, auxiliary_labels=toy.spare_labels.float(), predict=_one_output(toy)))
    attack.observe(_exchange(toy, 8))
    assert attack.classes is None
    assert attack.reconstruct(toy.payloads(), torch.arange(toy.count)).shape == toy.rows[toys.VICTIM].shape


@pytest.mark.parametrize("payload", [(4, 4, 2), (6,)])
def test_pictures_are_decoded_and_judged_with_their_labels(payload: tuple[int, ...]) -> None:
    with seeding.drawing_from(seeding.generator(0, "decoder")):  # by chance all of four channels are switched off
        decoder = ConditionedDecoder(payload, (1, 8, 4), 3, blocks=0, channels=4).eval()
        payloads, labels = torch.randn(5, *payload), torch.tensor([0, 1, 2, -1, 0])
    rows = decoder(payloads, labels)
    assert rows.shape == (5, 1, 8, 4)
    assert torch.equal(decoder(payloads)[3], decoder(payloads, labels)[3])
    assert not torch.equal(decoder(payloads)[0], rows[0])
    assert RowDiscriminator((1, 8, 4), 3)(rows, labels.clamp(min=0)).shape == (5,)


def _exchange(toy: toys.Toy, rows: int) -> toys.Exchange:
    ids = torch.arange(rows)
    payloads = {name: toy.bottoms[name](toy.rows[name][:rows]).detach() for name in toy.rows}
    return toys.Exchange(1, ids, payloads.pop(toys.VICTIM), toy.labels[:rows], payloads)


def _one_output(toy: toys.Toy):
    return lambda payloads, numbers: toy.predict(payloads)[:, :1]


def _weights(module: torch.nn.Module) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])
