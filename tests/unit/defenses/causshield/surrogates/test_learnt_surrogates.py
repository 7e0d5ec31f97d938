"""The kinds that learn: that they do, and what of the image they keep."""

from __future__ import annotations

import pytest
import torch

from veracausa.data.colour import lab_to_rgb, rgb_to_lab
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.causshield.surrogates.cross_channel import UNet, train

pytestmark = pytest.mark.xdist_group("learnt_surrogates")  # what its tests share is made once, not once a worker


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def coloured_by_luminance(count=48, height=8, width=6):
    """Images whose light pixels are reddish and whose dark ones are bluish: that can be learnt."""
    light = torch.rand(count, 1, height, width, generator=generator()) * 60 + 20
    warm = torch.where(light > 50, 1.0, -1.0)
    return (lab_to_rgb(torch.cat((light, 20 * warm, 20 * warm), dim=1)) * 255).round().to(torch.uint8)


def lab(**given):
    options = {"name": "lab", "epochs": 1, "width": 8, "batch_size": 16, "lr": 1e-2, "seed": 0} | given
    return surrogates.get("lab")(surrogates.options("lab")(**options))


@pytest.fixture(scope="module")
def learnt():
    torch.set_num_threads(1)
    surrogate = lab(epochs=40, mu=0, rebalance=False)
    surrogate.fit(coloured_by_luminance(), generator())
    return surrogate


def test_colours_are_learnt(learnt):
    begun = lab(mu=0, rebalance=False)
    begun.fit(coloured_by_luminance(), generator())
    # The soft target of a pixel has an entropy above one; the 261 bins begin at 5.6.
    assert learnt.terms["a1_cross_entropy"] < 0.6 * begun.terms["a1_cross_entropy"]
    x = coloured_by_luminance().float() / 255
    made = rgb_to_lab(learnt.unclipped(x, generator()))
    warm = rgb_to_lab(x)[:, 0] > 50
    assert made[:, 1][warm].mean() > 10
    assert made[:, 1][~warm].mean() < -10


def test_luminance_is_kept_and_colours_change(learnt):
    x = torch.rand(6, 3, 8, 6, generator=generator(5))
    unclipped = learnt.unclipped(x, generator())
    assert torch.allclose(rgb_to_lab(unclipped)[:, 0], rgb_to_lab(x)[:, 0], atol=0.05)
    gates = learnt.quality_checks(x, unclipped)
    assert gates["ab_distance"] > 10
    assert gates["l_ssim"] > 0.9
    assert not gates["structure_lost"]
    assert not gates["colour_kept"]
    assert 0 <= gates["out_of_gamut"] <= 1
    assert gates["a1_cross_entropy"] == learnt.terms["a1_cross_entropy"]


@pytest.mark.parametrize("decode", ["annealed_mean", "argmax", "sample_pixel", "sample_window"])
def test_every_decoder(learnt, decode):
    other = lab(decode=decode)
    other.load_state(learnt.state())
    x = torch.rand(3, 3, 10, 5, generator=generator(5))
    assert other.make(x, generator()).shape == x.shape


def test_where_luminance_comes_from():
    rows = coloured_by_luminance(20)
    x = rows.float() / 255
    made = {}
    for source in ("original", "predicted", "blend"):
        surrogate = lab(l_source=source, blend=0.25)
        surrogate.fit(rows, generator())
        assert (surrogate.a2 is not None) == (source != "original")
        assert ("a2_squared_error" in surrogate.terms) == (source != "original")
        made[source] = rgb_to_lab(surrogate.unclipped(x, generator()))[:, 0]
    assert torch.allclose(made["blend"], 0.75 * made["original"] + 0.25 * made["predicted"], atol=0.1)
    assert (made["predicted"] - made["original"]).abs().mean() > 1


def test_the_variance_term_raises_the_variance():
    variance = {}
    for mu in (0.0, 1e5):
        surrogate = lab(epochs=15, mu=mu, v_e=0.05)
        surrogate.fit(coloured_by_luminance(32), generator())
        variance[mu] = surrogate.terms["a1_window_variance"]
    assert variance[0.0] == 0
    assert variance[1e5] < 0.9 * 1e5 * 0.05**2  # what a flat colouring would pay


def test_hard_targets_and_no_rebalancing_are_other_surrogates():
    rows = coloured_by_luminance(16)
    settings = ({}, {"ab_target": "hard"}, {"rebalance": False})
    made = []
    for given in settings:
        surrogate = lab(**given)
        surrogate.fit(rows, generator())
        made.append(surrogate.make(rows.float() / 255, generator()))
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_intensities_are_learnt():
    disc = (torch.linspace(-1, 1, 12)[:, None].square() + torch.linspace(-1, 1, 10)[None].square() < 0.5).float()
    rows = (disc * torch.rand(32, 1, 1, 1, generator=generator()) * 255).to(torch.uint8)
    terms = {}
    for epochs in (1, 30):
        options = {"name": "intensity", "epochs": epochs, "width": 8, "batch_size": 16, "lr": 1e-2}
        surrogate = surrogates.get("intensity")(surrogates.options("intensity")(**options))
        surrogate.fit(rows, generator())
        terms[epochs] = surrogate.terms
    assert terms[30]["a1_cross_entropy"] < terms[1]["a1_cross_entropy"]
    assert terms[30]["a2_squared_error"] < terms[1]["a2_squared_error"]


@pytest.mark.parametrize("size", [(1, 1), (8, 4), (28, 14), (7, 5), (3, 9)])
def test_the_network_takes_any_size(size):
    network = UNet(1, 5, 4)
    assert network(torch.rand(2, 1, *size)).shape == (2, 5, *size)


def test_the_network_is_as_large_as_the_paper_of_record_says():
    # 1.5 to 2.5 million weights.
    assert 1.5e6 < sum(p.numel() for p in UNet(1, 261).parameters()) < 2.5e6


def test_a_batch_in_pieces_is_the_batch(monkeypatch):
    """A core takes a batch in pieces, to give signs of life: that must not change what is learnt."""
    from veracausa.defenses.causshield.surrogates import base

    rows = torch.rand(12, 1, 4, 4, generator=generator())
    weights = []
    for pixels in (2**14, 5 * 16):
        monkeypatch.setattr(base, "pixels_at_once", lambda device, pixels=pixels: pixels)
        network = torch.nn.Conv2d(1, 1, 3, padding=1)
        torch.nn.init.constant_(network.weight, 0.1)
        torch.nn.init.constant_(network.bias, 0.0)

        def loss(x, network=network):
            error = (network(x) - x).square().mean()
            return error, {"error": error}

        heard = []
        terms = train(network, loss, rows, generator(), epochs=3, batch_size=12, lr=1e-2, progress=heard.append)
        weights.append((network.weight.detach().clone(), terms["error"], len(heard)))
        assert heard == sorted(heard)
        assert heard[-1] == 1
    assert torch.allclose(weights[0][0], weights[1][0], atol=1e-4)
    assert weights[0][1] == pytest.approx(weights[1][1], rel=1e-4)
    assert (weights[0][2], weights[1][2]) == (3, 9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_replayed_step_learns_what_a_core_learns():
    """A graph that kept an old rate, batch or gradient would learn something else."""
    terms = []
    for device in ("cpu", "cuda"):
        surrogate = lab(epochs=10, l_source="predicted")
        surrogate.fit(coloured_by_luminance().to(device), generator())
        terms.append(surrogate.terms)
    for name, value in terms[0].items():
        # bfloat16 keeps three digits, and thirty steps of Adam spread them.
        assert terms[1][name] == pytest.approx(value, rel=0.15)
