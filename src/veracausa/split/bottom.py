"""A passive party's half of the model and what its defense puts behind it, built from the job."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from veracausa.config import Job
from veracausa.defenses import defenses
from veracausa.defenses.base import Defense
from veracausa.models.cut import build_bottom, payload_shape
from veracausa.models.dropout import bind_dropout
from veracausa.seeding import drawing_from


@dataclass(frozen=True)
class DefendedBottom:
    """The bottom model with the layers of its defense, not yet on a device."""

    module: nn.Sequential
    payload: tuple[int, ...]
    """The shape of what is sent for one row."""
    expected: tuple[int, ...]
    """The shape that the model's own bottom gives, and its own top takes; another one where the defense has layers."""


def make_defense(job: Job, party: str) -> Defense:
    """The party's defense as the job sets it, told how often a row will cross; not yet bound."""
    options = job.defense_of(party)
    defense: Defense = defenses.get(options.name)(options)
    defense.plan(job.training.epochs)
    return defense


def build_defended(
    job: Job,
    party: str,
    shape: tuple[int, ...],
    outputs: int,
    rng: torch.Generator,
    defense: Defense | None = None,
    *,
    columns: int | None = None,
) -> DefendedBottom:
    """The half of `party` for rows of `shape`; all weights are drawn from `rng`, those of the defense last.

    `columns` is how many the party's table has, where it is one.
    """
    bottom = build_bottom(job.model, shape, outputs, rng, columns)
    expected = payload_shape(bottom, shape)
    with drawing_from(rng):
        layers = (defense or make_defense(job, party)).layers(expected)
    if layers is None:
        return DefendedBottom(bottom, expected, expected)
    bottom.append(bind_dropout(layers, rng))
    return DefendedBottom(bottom, payload_shape(bottom, shape), expected)
