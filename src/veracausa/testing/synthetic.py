"""A few made-up rows of every kind, split between two passive parties: enough for a federation of a second."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.config import Job, load_job
from veracausa.data.vertical import Part, PartyData, VerticalDataset

Kind = Literal["tables", "pictures", "colour pictures"]
KINDS: tuple[Kind, ...] = ("tables", "pictures", "colour pictures")
SHAPES: dict[Kind, tuple[int, ...]] = {"tables": (6,), "pictures": (1, 12, 6), "colour pictures": (3, 12, 6)}
"""Of one row at one party."""
CLASSES, TRAIN, TEST, BATCH = 3, 40, 16, 16


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


def toy_data(kind: Kind, parties: int = 2, overlap: float = 1.0) -> VerticalDataset:
    """The rows of all parties; with `overlap` below 1 the last passive party lacks some training rows."""
    rng = seeding.generator(0, "toy", kind)
    labels = [torch.arange(count) % CLASSES for count in (TRAIN, TEST)]
    data = {}
    for number in range(1, parties + 1):
        train, test = (_rows(kind, own, rng) for own in labels)
        part = Part(TRAIN, train)
        if overlap < 1 and number == parties:
            held = torch.arange(TRAIN) < overlap * TRAIN
            index = torch.where(held, held.cumsum(0) - 1, -1)
            part = Part(TRAIN, train[held], index)
        data[f"passive_{number}"] = PartyData(
            f"passive_{number}", SHAPES[kind], part, Part(0, train[:0]), Part(TEST, test)
        )
    known = [Part(len(own), labels=own) for own in labels]
    data["active"] = PartyData("active", (), known[0], Part(0, labels=labels[0][:0]), known[1])
    join: Literal["width", "features"] = "features" if kind == "tables" else "width"
    return VerticalDataset("toy", "active", data, "classification", tuple(map(str, range(CLASSES))), join)


def _rows(kind: Kind, labels: Tensor, rng: torch.Generator) -> Tensor:
    """Rows that differ by class a little, so that there is something to learn."""
    noise = torch.rand(len(labels), *SHAPES[kind], generator=rng)
    level = labels.view(-1, *[1] * (noise.ndim - 1)) / CLASSES
    if kind == "tables":
        return 2 * noise + level - 1
    return ((0.6 * noise + 0.4 * level) * 255).to(torch.uint8)
