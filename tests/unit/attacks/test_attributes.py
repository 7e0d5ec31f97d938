"""Single attributes of pictures: what they are, how a guess is scored, and a probe that reads them and nothing else."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor

from veracausa.attacks.base import AdversaryView, Grant
from veracausa.attacks.methods.features.attributes import AttributeProbes, AttributesOptions
from veracausa.errors import InputError
from veracausa.metrics.attributes import attribute_scores, picture_attributes

COUNT = 256


def tinted(seed: int) -> Tensor:
    """Pictures of noise under a light of random strength and colour."""
    light = 0.2 + 0.6 * torch.rand(COUNT, 3, 1, 1, generator=toys.rng(seed))
    return (light + 0.05 * torch.randn(COUNT, 3, 8, 4, generator=toys.rng(seed + 1))).clamp(0, 1)


def test_attributes_are_of_the_whole_picture() -> None:
    grey = torch.full((2, 3, 4, 4), 0.5)
    grey[1, 0] = 1.0
    found = picture_attributes(grey)
    assert {name: tuple(values.shape) for name, values in found.items()} == {
        "brightness": (2, 1),
        "contrast": (2, 1),
        "hue": (2, 2),
    }
    assert float(found["hue"][0].abs().max()) < 1e-3, "grey has no hue"
    assert float(found["hue"][1, 0]) > 0.3, "and red one on a"
    assert set(picture_attributes(grey[:, :1])) == {"brightness", "contrast"}


def test_a_guess_is_scored_beside_the_best_guess_without_the_payload() -> None:
    truth, auxiliary = tinted(1), tinted(5)
    perfect = {one["attribute"]: one for one in attribute_scores(truth, truth, auxiliary)}
    assert all(one["r2"] == pytest.approx(1) and abs(one["blind"]) < 0.1 for one in perfect.values())
    flat = truth.mean((2, 3), keepdim=True).expand_as(truth)
    scores = attribute_scores(flat, truth, auxiliary)
    assert scores[0]["attribute"] in ("brightness", "hue")
    assert scores[-1]["attribute"] == "contrast"
    assert scores[-1]["r2"] < 0 < 0.95 < scores[0]["r2"]


def test_the_blind_guess_knows_the_class() -> None:
    truth, auxiliary = tinted(1), tinted(5)
    classes = [picture_attributes(rows)["brightness"][:, 0] > 0.5 for rows in (auxiliary, truth)]
    told = attribute_scores(truth, truth, auxiliary, (classes[0].long(), classes[1].long()))
    plain = attribute_scores(truth, truth, auxiliary)
    blind = [next(one["blind"] for one in scores if one["attribute"] == "brightness") for scores in (told, plain)]
    assert blind[0] > 0.4 > 0.1 > blind[1]
    same = truth[:1].expand(4, -1, -1, -1)
    assert attribute_scores(same, same, auxiliary) == [], "what all victims share is nothing to read"


def view(rows: Tensor, payloads: Tensor, pixels: bool = True) -> AdversaryView:
    return AdversaryView(
        grants=AttributeProbes.needs,
        victim="bank",
        payload_shape=tuple(payloads.shape[1:]),
        row_shape=tuple(rows.shape[1:]),
        pixels=pixels,
        rng=toys.rng(0),
        device=torch.device("cpu"),
        auxiliary=rows,
        defense=lambda *_: None,
        transmit=lambda rows: rows,
        oracle=lambda: payloads,
    )


def probe() -> AttributeProbes:
    return AttributeProbes(AttributesOptions(name="attributes", epochs=15, channels=8, blocks=1))


def test_it_reads_the_colour_of_the_light_from_three_numbers() -> None:
    rows, truth, attack = tinted(1), tinted(9), probe()
    attack.begin(view(rows, rows.mean((2, 3))))
    scores = {
        one["attribute"]: one["r2"] for one in attribute_scores(attack.reconstruct(truth.mean((2, 3))), truth, rows)
    }
    assert scores["brightness"] > 0.9
    assert scores["hue"] > 0.9
    attack = probe()
    attack.begin(view(rows, torch.randn(COUNT, 3, generator=toys.rng(4))))
    noise = torch.randn(COUNT, 3, generator=toys.rng(5))
    assert all(one["r2"] < 0.1 for one in attribute_scores(attack.reconstruct(noise), truth, rows))


def test_it_is_for_pictures() -> None:
    table = torch.randn(32, 4, generator=toys.rng(0))
    with pytest.raises(InputError, match="reports every column"):
        probe().begin(view(table, table, pixels=False))
    with pytest.raises(InputError, match="weights"):
        probe().begin(view(tinted(1), tinted(1)).limited_to(Grant.AUXILIARY))
