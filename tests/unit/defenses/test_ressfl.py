"""ResSFL's bottom becomes hard to read for its own decoder and for a fresh one; its pretraining travels with a run."""

from __future__ import annotations

import copy

import pytest
import torch
from pydantic import ValidationError
from refusals import Names
from torch import nn
from trainings import JOB, assert_resumes

import veracausa
from veracausa.data.vertical import Part
from veracausa.defenses.base import Defense
from veracausa.defenses.methods.ressfl import ResSFL, ResSFLOptions
from veracausa.defenses.proxy_adversary import ProxyAdversary, likeness, load_strips, strips_like
from veracausa.errors import InputError
from veracausa.metrics.images import ssim
from veracausa.runs.store import same
from veracausa.seeding import drawing_from, generator
from veracausa.testing.defense import check_defense

ROWS = 48
TRANSFER = {"mode": "transfer", "source": {"name": "digits", "train": 64}, "source_epochs": 1, "source_batch": 32}


def rows(count: int = ROWS) -> torch.Tensor:
    """Smooth pictures, such as a decoder can learn in a few steps."""
    coarse = torch.rand(count, 1, 3, 3, generator=generator(2))
    return torch.nn.functional.interpolate(coarse, (8, 4), mode="bilinear", align_corners=True)


def bound(lr: float = 0.01, **settings) -> ResSFL:
    with drawing_from(generator(0, "model")):
        bottom = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1))
    defense = ResSFL(ResSFLOptions(**settings))
    defense.bind(bottom, torch.optim.Adam(bottom.parameters(), lr=lr), generator(1))
    return defense


def taught(defense: ResSFL, exchanges: int, x: torch.Tensor) -> ResSFL:
    ids = torch.arange(len(x))
    for step in range(exchanges):
        payload, context = defense.forward(x, ids, step)
        defense.backward(context, torch.zeros_like(payload))
    return defense


def read_afresh(defense: ResSFL, x: torch.Tensor, others: torch.Tensor, steps: int = 100) -> float:
    """What of other rows a decoder reads that has never met the defense's own."""
    sent, asked = (defense.infer(some, torch.arange(len(some))) for some in (x, others))
    decoder = ProxyAdversary(tuple(sent.shape[1:]), tuple(x.shape[1:]), "weak", 1e-2, 7, torch.device("cpu"))
    for _ in range(steps):
        decoder.learn(sent, x, lambda guess, truth: -likeness(guess, truth))
    return likeness(decoder.read(asked), others).item()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"bottleneck": 2, "interval": 2, "steps": 2}, {"decoder": "medium"}], ids=str)
def test_it_keeps_to_the_contract(settings):
    check_defense("ressfl", settings)


@pytest.mark.slow
def test_transfer_keeps_to_the_contract(monkeypatch):
    pictures = torch.randint(256, (32, 3, 8, 12), generator=generator(4)).byte()
    labels = torch.arange(32) % 3
    monkeypatch.setattr(
        "veracausa.defenses.methods.ressfl.load_strips",
        lambda source, row: (strips_like(pictures, row, "toy"), labels.repeat_interleave(2), 3),
    )
    check_defense("ressfl", {**TRANSFER, "source": {"name": "cifar10"}}, toys=("maps",))


def test_a_scarce_payload_is_given_what_shows_least():
    """Two numbers for six columns, three of which say nearly nothing: these are what a hiding bottom sends.

    (A payload with room for everything is another matter: there the bottom only outruns its own decoder.)
    """
    columns = torch.randn(384, 6, generator=generator(3)) * torch.tensor([1, 1, 1, 0.1, 0.1, 0.1])
    x, others = columns[:256], columns[256:]
    read = {}
    for strength in (1e-9, 1.0):
        with drawing_from(generator(0, "model")):
            bottom = nn.Sequential(nn.Linear(6, 2))
        defense = ResSFL(ResSFLOptions(strength=strength, threshold=0.0, lr=1e-2))
        defense.bind(bottom, torch.optim.Adam(bottom.parameters(), lr=1e-2), generator(1))
        taught(defense, 100, x)
        read[strength] = read_afresh(defense, x, others)
    assert read[1e-9] > 0.4
    assert read[1.0] < 0.2


def test_the_decoder_reads_less_of_a_bottom_that_hides():
    x, ids = rows(), torch.arange(ROWS)
    plain, hidden = (taught(bound(strength=strength), 20, x).diagnose(x, ids) for strength in (1e-9, 3.0))
    assert hidden["decoder_ssim"] < plain["decoder_ssim"] - 0.05


def test_what_reads_worse_than_the_threshold_costs_nothing():
    defense, x = bound(strength=2.0, threshold=0.99), rows()
    assert defense.penalty(defense.bottom(x), x).item() == 0
    defense = bound(strength=2.0, threshold=0.0)
    taught(defense, 5, x)
    r = defense.bottom(x)
    defense.adversary.decoder.eval()
    expected = 2.0 * ssim(defense.adversary.read(r), x).mean().item()
    assert expected > 0
    assert defense.penalty(r, x).item() == pytest.approx(expected, rel=1e-4)


def test_a_table_is_read_by_r_squared():
    x = torch.randn(40, 3, generator=generator(3))
    assert likeness(x, x).item() == pytest.approx(1)
    assert likeness(x.mean(0).expand_as(x), x).item() == pytest.approx(0, abs=1e-6)
    bottom = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    defense = ResSFL(ResSFLOptions(strength=1.0, lr=1e-2))
    defense.bind(bottom, torch.optim.Adam(bottom.parameters(), lr=1e-3), generator(1))
    taught(defense, 30, x)
    assert defense.diagnose(x, torch.arange(40))["decoder_r2"] > 0.2


def test_the_decoder_learns_at_every_interval_for_so_many_steps():
    def steps_taken(defense):
        return int(next(iter(defense.adversary.optimizer.state.values()))["step"])

    assert steps_taken(taught(bound(interval=3, steps=2), 7, rows())) == 3 * 2
    assert steps_taken(taught(bound(), 4, rows())) == 4


def test_without_strength_it_is_an_undefended_party_to_the_last_bit():
    x, ids, bottoms = rows(), torch.arange(ROWS), []
    idle = bound()
    undefended = Defense(idle.options)
    undefended.bind(idle.bottom, idle.optimizer, generator(1))
    for defense in (bound(strength=0.0), undefended):
        for step in range(3):
            payload, context = defense.forward(x, ids, step)
            defense.backward(context, torch.randn(payload.shape, generator=generator(step)), 2)
        bottoms.append([defense.bottom.state_dict(), defense.rng.get_state()])
    assert bound(strength=0.0).diagnose(x, ids) == {}
    assert same(*bottoms)


def test_a_single_row_teaches_the_bottom_and_no_decoder():
    defense = bound(strength=1.0)
    bottom = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), generator(1))
    before = bottom[0].weight.clone()
    payload, context = defense.forward(rows(1), torch.arange(1), 0)
    defense.backward(context, torch.ones_like(payload))
    assert defense.exchanges == 0
    assert not torch.equal(before, bottom[0].weight)


def test_a_bottleneck_that_is_none_is_refused():
    defense = ResSFL(ResSFLOptions(bottleneck=4))
    assert defense.layers((16, 7, 3))(torch.zeros(2, 16, 7, 3)).shape == (2, 4, 7, 3)
    assert defense.layers((16,))(torch.zeros(2, 16)).shape == (2, 4)
    with pytest.raises(InputError, check=Names("defense.bottleneck", "4")):
        defense.layers((4, 7, 3))


def test_strips_of_a_source_are_all_that_fit_side_by_side():
    pictures = torch.arange(2 * 8 * 8).view(2, 1, 8, 8)
    strips = strips_like(pictures, (1, 8, 3), "toy")
    assert strips.shape == (4, 1, 8, 3)
    assert torch.equal(strips[1], pictures[0, :, :, 3:6])
    assert torch.equal(strips[2], pictures[1, :, :, :3])
    assert torch.equal(strips_like(pictures, (1, 4, 8), "toy")[1], pictures[0, :, 4:])
    for row in ((3, 8, 3), (1, 8, 9), (1, 9, 8)):
        with pytest.raises(InputError, match="name a source with as many channels"):
            strips_like(pictures, row, "toy")


def test_labels_go_with_their_strips():
    options = ResSFLOptions(**TRANSFER)
    strips, labels, classes = load_strips(options.source, (1, 8, 4))
    assert classes == 10
    assert strips.shape == (128, 1, 8, 4)
    assert labels[::2].equal(labels[1::2])


def test_transfer_starts_from_the_pretrained_bottom_and_goes_on_slowly():
    x, ids = rows(), torch.arange(ROWS)
    defense = bound(lr=0.1, **TRANSFER)
    untouched = copy.deepcopy(defense.bottom.state_dict())
    shares: list[float] = []
    defense.prepare(Part(ROWS, (x * 255).byte()), shares.append)
    assert shares[-1] == 1
    assert same(defense.bottom.state_dict(), untouched)  # an attacker that only asks keeps its own model
    assert 0 < defense.quality_checks()["source_accuracy"] <= 1
    assert not same(defense.prepared()["weights"], untouched)
    payload, context = defense.forward(x, ids, 0)
    before = copy.deepcopy(defense.prepared()["weights"])
    defense.backward(context, torch.ones_like(payload))
    assert defense.optimizer.param_groups[0]["lr"] == 0.1
    # Adam's first step is as long as its rate, whatever the gradient.
    moved = (defense.bottom[0].weight - before["0.weight"]).abs().max().item()
    assert moved == pytest.approx(0.01, rel=0.01)
    assert same(defense.prepared()["weights"], before)


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValidationError, match="transfer pretrains on a public data set"):
        ResSFLOptions(mode="transfer")
    with pytest.raises(ValidationError, match="is used by mode"):
        ResSFLOptions(source={"name": "digits"})
    with pytest.raises(ValidationError, match="holds no pictures"):
        ResSFLOptions(mode="transfer", source={"name": "adult"})
    with pytest.raises(ValidationError, match="did you mean 'digits'"):
        ResSFLOptions(mode="transfer", source={"name": "digit"})
    with pytest.raises(InputError, match="use mode"):
        ResSFL(ResSFLOptions(**TRANSFER)).check((7,))
    with pytest.raises(InputError, match="name a source"):
        ResSFL(ResSFLOptions(**TRANSFER)).check((3, 8, 4))
    options = ResSFLOptions(**TRANSFER)
    assert ResSFLOptions.model_validate(options.model_dump(mode="json")) == options


def test_a_resumed_run_is_the_undisturbed_one(tmp_path):
    assert_resumes({"name": "ressfl", "strength": 1.0, "bottleneck": 8}, tmp_path)


@pytest.mark.slow
def test_a_resumed_transfer_is_the_undisturbed_one(tmp_path):
    assert_resumes({"name": "ressfl", **TRANSFER}, tmp_path)


@pytest.mark.slow
def test_a_source_that_does_not_fit_is_told_before_training(tmp_path):
    job = {**JOB, "partition": {"kind": "random"}, "model": {"name": "mlp", "cut": 2}}
    with pytest.raises(InputError, match=r"passive_1.*pretrains on pictures"):
        veracausa.train({**job, "defense": {"name": "ressfl", **TRANSFER}}, out=tmp_path / "run")
