"""The whole matrix: defenses, attacks and surrogates, each beside what it may have to run with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from veracausa.attacks import attacks
from veracausa.defenses import defenses
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.errors import InputError
from veracausa.support import attacking, defended
from veracausa.support.toys import KINDS, SHAPES

Progress = Callable[[str], None]


def support_matrix(progress: Progress = lambda name: None) -> dict[str, dict[str, dict[str, Any]]]:
    """Kind of thing -> name -> column -> what was found.

    A column that asks whether something runs holds the reason why not, and nothing where it does; the other columns of
    an attack hold what it declares.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {"defenses": {}, "attacks": {}, "surrogates": {}}
    for name in defenses.names():
        progress(name)
        found["defenses"][name] = dict(defended.row_of(name))
    for name in attacks.names():
        progress(name)
        found["attacks"][name] = {**attacking.row_of(name), **attacking.facts_of(name)}
    for name in surrogates.names():
        found["surrogates"][name] = dict(surrogate_row(name))
    return found


def surrogate_row(name: str) -> dict[str, str]:
    """By kind of rows, why this kind of surrogate does not suit them."""
    row: dict[str, str] = {}
    for kind in KINDS:
        try:
            surrogates.get(name)(surrogates.options(name)(name=name)).check(torch.Size(SHAPES[kind]))
            row[kind] = ""
        except InputError as error:
            row[kind] = str(error)
    return row
