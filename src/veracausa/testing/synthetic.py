"""Synthetic rows, jobs and bottoms: enough for a federation of a second, for plug-in authors and our own tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Job, load_job
from veracausa.crypto.randomness import Masks
from veracausa.crypto.ring import Ring
from veracausa.data.vertical import Part, PartyData, VerticalDataset
from veracausa.defenses import defenses

if TYPE_CHECKING:
    from veracausa.crypto.backends.base import Encryption
    from veracausa.defenses.base import Defense

Kind = Literal["tables", "pictures", "colour pictures"]
KINDS: tuple[Kind, ...] = ("tables", "pictures", "colour pictures")
SHAPES: dict[Kind, tuple[int, ...]] = {"tables": (6,), "pictures": (1, 12, 6), "colour pictures": (3, 12, 6)}
"""Of one row at one party."""
CLASSES, TRAIN, TEST, BATCH = 3, 40, 16, 16
OWNER, PEER = "owner", "peer"
"""The two parties of `tossed_pair`."""


def toy_job(kind: Kind, defense: dict[str, Any], payload: Literal["maps", "vectors"] = "maps", **changes: Any) -> Job:
    """A job for rows of this kind with this defense; `payload` says where pictures are cut."""
    model = {"name": "mlp", "cut": 2} if kind == "tables" else {"name": "convnet", "cut": 3 if payload == "maps" else 8}
    tree: dict[str, Any] = {
        "data": {"name": "digits"},  # never loaded: the rows are made up
        "model": model,
        "training": {"epochs": 1, "batch_size": BATCH},
        "risk": {"every": 0},
        "runtime": {"device": "cpu", "cpu_threads": 1, "timeout": 60},
        "defense": defense,
    }
    for section, settings in changes.items():
        tree[section] = {**tree.get(section, {}), **settings}
    return load_job(tree)


def toy_data(
    kind: Kind,
    parties: int = 2,
    overlap: float = 1.0,
    *,
    train: int = TRAIN,
    test: int = TEST,
    shape: tuple[int, ...] = (),
    classes: int = CLASSES,
    active_part: bool = False,
) -> VerticalDataset:
    """The rows of all parties, which differ by class a little.

    With `overlap` below 1 the last passive party lacks some training rows. With `active_part` the active party holds
    features too. No `classes` make it a regression. `shape` is that of one row at one party, where it is not the usual.
    """
    shape = shape or SHAPES[kind]
    rng = seeding.generator(0, "toy", kind)
    groups = classes or CLASSES
    labels = [torch.arange(count) % groups for count in (train, test)]
    levels = [known / groups for known in labels]
    data = {}
    for number in range(1, parties + 1):
        name, rows = f"passive_{number}", [_rows(kind, shape, level, rng) for level in levels]
        part = Part(train, rows[0])
        if overlap < 1 and number == parties:
            held = torch.arange(train) < overlap * train
            part = Part(train, rows[0][held], torch.where(held, held.cumsum(0) - 1, -1))
        data[name] = PartyData(name, shape, part, Part(0, rows[0][:0]), Part(test, rows[1]))
    own = [_rows(kind, shape, level, rng) if active_part else None for level in levels]
    targets = labels if classes else [torch.randn(len(known), generator=rng) for known in labels]
    known = [Part(len(target), rows, labels=target) for target, rows in zip(targets, own, strict=True)]
    data["active"] = PartyData(
        "active", shape if active_part else (), known[0], Part(0, labels=targets[0][:0]), known[1]
    )
    join: Literal["width", "features"] = "features" if kind == "tables" else "width"
    task: Literal["classification", "regression"] = "classification" if classes else "regression"
    return VerticalDataset("toy", "active", data, task, tuple(map(str, range(classes))), join)


def product_job(folder: Path, rows: int = 4000, seed: int = 0, **changes: Any) -> Job:
    """A job whose label is the sign of a product of two parties' columns, with its table written into `folder`.

    Neither column says anything about the label alone, nor does a sum of functions of them. Blind training adds up
    parties' features, so it can learn nothing here. Split training can.
    """
    draw = np.random.default_rng(seed).normal(size=(rows, 4))
    label = np.where(draw[:, 0] * draw[:, 1] > 0, "same", "different")
    path = folder / "product.csv"
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{d:.4f},{word}" for (a, b, c, d), word in zip(draw, label, strict=True)]
    path.write_text("\n".join(["first,second,third,fourth,label", *lines, ""]), encoding="utf-8")
    tree: dict[str, Any] = {
        "data": {"name": "csv", "path": str(path), "label": "label"},
        "partition": {
            "kind": "columns",
            "columns": {"passive_1": ["first", "third"], "passive_2": ["second", "fourth"]},
        },
        "model": {"name": "mlp", "hidden": [32, 32], "cut": 2},
        "training": {"epochs": 20, "batch_size": 128},
        "risk": {"every": 0},
        "runtime": {"device": "cpu", "cpu_threads": 1},
    }
    for section, settings in changes.items():
        tree[section] = {**tree.get(section, {}), **settings}
    return load_job(tree)


def _rows(kind: Kind, shape: tuple[int, ...], level: Tensor, rng: torch.Generator) -> Tensor:
    """Rows that differ by class a little, so that there is something to learn."""
    noise = torch.rand(len(level), *shape, generator=rng)
    level = level.view(-1, *[1] * (noise.ndim - 1))
    if kind == "tables":
        return 2 * noise + level - 1
    return ((0.6 * noise + 0.4 * level) * 255).to(torch.uint8)


@dataclass(frozen=True)
class ToyBottom:
    """A small bottom model with batch normalisation, and rows for it."""

    name: str
    build: Callable[[], nn.Sequential]
    rows: Tensor
    payload: tuple[int, ...]
    """The shape that the bottom itself gives for one row."""


def toy_bottom(payload: Literal["vectors", "maps"], rows: int) -> ToyBottom:
    """A bottom that gives vectors for rows of five columns, or maps for colour pictures of 8 × 6 pixels."""
    rng = seeding.generator(0, "rows")
    if payload == "vectors":
        return ToyBottom("a bottom that gives vectors", _vectors, torch.randn(rows, 5, generator=rng), (4,))
    return ToyBottom("a bottom that gives maps", _maps, torch.rand(rows, 3, 8, 6, generator=rng), (4, 4, 3))


def _vectors() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))


def _maps() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1))


def linear(outputs: int, inputs: int, seed: int = 0, bias: bool = False) -> nn.Linear:
    """A linear bottom, whose Jacobian is its weight."""
    with seeding.drawing_from(seeding.generator(seed, "model")):
        return nn.Linear(inputs, outputs, bias=bias)


def small_conv(seed: int = 0) -> nn.Sequential:
    """Rows 1×8×4 to maps 4×4×2, with batch normalisation."""
    with seeding.drawing_from(seeding.generator(seed, "model")):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))


def uniform_rows(*shape: int, seed: int = 0) -> Tensor:
    """Values between 0 and 1."""
    return torch.rand(shape, generator=seeding.generator(seed, "rows"))


def bound(name: str, bottom: nn.Module, seed: int = 1, **settings: Any) -> Defense:
    """A registered defense, bound to this bottom as a passive party binds it."""
    defense: Defense = defenses.get(name)(defenses.options(name)(name=name, **settings))
    defense.bind(bottom, torch.optim.SGD(bottom.parameters(), lr=0.1), seeding.generator(seed, "training"))
    return defense


def tossed_pair(name: str) -> tuple[Encryption, Encryption]:
    """An owner of rows and the peer that multiplies them, with this encryption: they have tossed and met."""
    from veracausa.crypto.backends import make_encryption
    from veracausa.crypto.randomness import Toss

    toss = Toss(os.urandom(32))
    return met(make_encryption(name, toss, OWNER), make_encryption(name, toss, PEER))


def met(owner: Encryption, peer: Encryption) -> tuple[Encryption, Encryption]:
    """Both know the other's key."""
    owner.meet(PEER, peer.public_key())
    peer.meet(OWNER, owner.public_key())
    return owner, peer


class GivenMasks(Masks):
    """Masks that were chosen beforehand; an encryption that draws its own does not look at them."""

    def __init__(self, *drawn: Ring) -> None:
        self.drawn = list(drawn)

    def uniform(self, *shape: int) -> Ring:
        return np.ascontiguousarray(self.drawn.pop(0)).reshape(shape)
