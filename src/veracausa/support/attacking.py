"""What an attack needs, where it works, and on which rows it begins."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.attacks.base import Exchange, Grant
from veracausa.attacks.live.view import LiveView
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter
from veracausa.audit.scene import GRANTED
from veracausa.audit.settings import REMEMBERING, attack_class
from veracausa.errors import VeracausaError
from veracausa.split.party import Schema
from veracausa.split.passive import PassiveParty
from veracausa.support.toys import BATCH, CLASSES, KINDS, Kind, toy_data, toy_job

FROM_A_RUN = Grant.WEIGHTS | Grant.DEFENSE | Grant.QUERIES | Grant.TAMPER
"""What no transcript can give: the victim's own model or defense, or a say in its training."""


class _Begun(Exception):
    """The attack has begun to learn: nothing refused these rows."""


def facts_of(name: str) -> dict[str, Any]:
    """What the attack declares.

    `live`: it must be there while the victim trains. `transcript alone`: what was recorded, and rows of its own, are
    all it needs. `past payloads`: it reads what crossed in earlier exchanges too. `granted`: an audit can give it all
    of `needs`.
    """
    attack = attack_class(name)
    granted = GRANTED | Grant.TAMPER if attack.live else GRANTED
    return {
        "live": attack.live,
        "transcript alone": not attack.live and not attack.needs & FROM_A_RUN,
        "past payloads": name in REMEMBERING,
        "granted": not attack.needs & ~granted,
        "needs": list(attack.needs.words),
    }


def row_of(name: str) -> dict[str, str]:
    """By kind of rows, why the attack refuses them; empty where it begins."""
    return {kind: begun(name, kind) for kind in KINDS}


def begun(name: str, kind: Kind) -> str:
    """Why this attack does not begin on rows of this kind, given all it needs; empty if it does."""
    options = attacks.options(name)(name=name)
    with tempfile.TemporaryDirectory() as folder:
        view = _view(kind, Path(folder))
        try:
            attack_class(name)(options).begin(view)
        except _Begun:
            return ""
        except VeracausaError as error:
            return str(error)
    return ""


def _view(kind: Kind, folder: Path) -> LiveView:
    """Everything that can be granted, over a toy party's untrained model."""
    job, data = toy_job(kind, {"name": "none"}), toy_data(kind)
    active, schema = data.parties["active"], Schema.of(data)
    party = PassiveParty(job, data.parties["passive_1"], schema.outputs)
    party.bottom.eval()
    rows = party.parts["test"].take(torch.arange(len(party.parts["test"])))

    def oracle() -> torch.Tensor:
        with torch.no_grad():
            payloads: torch.Tensor = party.bottom(rows)
        return payloads

    def fresh(rng: torch.Generator) -> torch.nn.Module:
        return PassiveParty(job, data.parties["passive_1"], schema.outputs).bottom

    def defense(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Any:
        made = PassiveParty(job, data.parties["passive_1"], schema.outputs).defense
        made.bind(model, optimizer, rng)
        return made

    def begins(share: float) -> None:
        raise _Begun

    return LiveView(
        grants=~Grant.NONE,
        victim="passive_1",
        payload_shape=party.shape,
        row_shape=party.data.shape,
        pixels=kind != "tables",
        rng=seeding.generator(0, "toy"),
        device=torch.device("cpu"),
        auxiliary=rows,
        auxiliary_labels=active.test.labels,
        labels=active.train.labels,
        classes=CLASSES,
        bottom=fresh,
        defense=defense,
        transmit=party.bottom,
        transcript=_transcript(folder, party),
        oracle=oracle,
        oracle_at={"start": oracle, "end": oracle},
        progress=begins,
        predict=lambda payloads, numbers=None: torch.zeros(len(rows), CLASSES),
        others={"passive_2": data.parties["passive_2"].test.take(torch.arange(len(rows)))},
        other_bottoms={"passive_2": fresh},
    )


def _transcript(folder: Path, party: PassiveParty) -> Transcript:
    """What crossed in two exchanges."""
    head = Head(victim="passive_1", payload_shape=party.shape, moments={"start": 1, "end": 2})
    writer = TranscriptWriter(folder, head)
    ids = torch.arange(BATCH)
    with torch.no_grad():
        payload = party.bottom(party.parts["train"].take(ids))
    for step in (1, 2):
        writer.add(Exchange(step, ids, payload, None))
    writer.close()
    return Transcript(folder)
