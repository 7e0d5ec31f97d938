"""What the active party knows before the training begins, in a form that can be handed to its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.attacks.base import Grant
from veracausa.attacks.live.view import LiveView
from veracausa.audit.samples import choose
from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses.base import Defense
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.models.runner import choose_device, to_device
from veracausa.registry import Options, did_you_mean
from veracausa.training.hooks import Predict as Top
from veracausa.training.split.halves import DefendedBottom, build_defended, make_defense
from veracausa.training.split.program import Schema

_GRANTED = Grant.ARCHITECTURE | Grant.LABELS | Grant.AUXILIARY | Grant.DEFENSE | Grant.TAMPER


@dataclass(frozen=True)
class AdversaryKnowledge:
    """Auxiliary rows of all parties and their labels, the labels of the training rows, the agreed job."""

    job: Job
    victim: str
    schema: Schema
    rows: Mapping[str, Tensor]
    """Auxiliary rows by party, the active one's own among them where it holds features."""
    auxiliary_labels: Tensor | None
    labels: Tensor | None
    columns: Mapping[str, int | None] = field(default_factory=dict)
    """How many columns a party's table has: with the agreed job it says how wide a payload is."""

    @classmethod
    def of(cls, job: Job, dataset: VerticalDataset, victim: str, auxiliary: int, victims: int) -> AdversaryKnowledge:
        """The same auxiliary rows as an audit of these sizes has: no victim of it is among them."""
        if victim not in dataset.passive:
            raise InputError(f"{victim!r} is no passive party{did_you_mean(victim, dataset.passive)}")
        chosen = choose(dataset.parties[victim], job.seed, auxiliary, victims).auxiliary
        holders = {name: data.test for name, data in dataset.parties.items() if data.shape}
        for part in holders.values():
            chosen = chosen[part.present(chosen)]
        if len(chosen) < 4:
            raise InputError(f"only {len(chosen)} auxiliary rows are held by all parties; a live attack needs 4")
        active = dataset.parties[dataset.active]
        labels = active.test.labels
        return cls(
            job,
            victim,
            Schema.of(dataset),
            {name: part.take(chosen).contiguous().cpu() for name, part in holders.items()},
            None if labels is None else labels[chosen].cpu(),
            None if active.train.labels is None else active.train.labels.cpu(),
            {name: data.columns for name, data in dataset.parties.items()},
        )

    def view(self, options: Options, top: Top | None, progress: ProgressCallback = lambda share: None) -> LiveView:
        """What an attack is given; without `top`, to build it or to read with it when the training is over."""
        device = choose_device(self.job.runtime.device)
        held = {name: rows.to(device) for name, rows in self.rows.items()}
        passive = {name: rows for name, rows in held.items() if name in self.job.parties.passive}
        rows = passive.pop(self.victim)
        shape = tuple(rows.shape[1:])
        built = self._built(self.victim, shape, seeding.generator(0))
        optimizer = self.job.training.optimizer
        grants = _GRANTED if self.auxiliary_labels is None else _GRANTED | Grant.LABELLED_AUXILIARY
        return LiveView(
            grants=grants,
            victim=self.victim,
            payload_shape=built.payload,
            row_shape=shape,
            pixels=len(shape) == 3,
            rng=seeding.generator(self.job.seed, "live", options.name, self.victim),
            device=device,
            auxiliary=rows,
            auxiliary_labels=None if self.auxiliary_labels is None else self.auxiliary_labels.to(device),
            labels=None if self.labels is None else self.labels.to(device),
            classes=len(self.schema.classes) if self.schema.task == "classification" else 0,
            bottom=self._bottom(self.victim, shape, device),
            defense=self._defense,
            epochs=self.job.training.epochs,
            batch_size=self.job.training.batch_size,
            progress=progress,
            predict=_Predict(top, held.get(self.job.parties.active)),
            victim_rate=optimizer.lr if optimizer.name == "adam" else None,
            others=passive,
            other_bottoms={name: self._bottom(name, tuple(rows.shape[1:]), device) for name, rows in passive.items()},
        )

    def _built(self, party: str, shape: tuple[int, ...], rng: torch.Generator) -> DefendedBottom:
        columns = self.columns.get(party)
        return build_defended(self.job, party, shape, self.schema.outputs, rng, columns=columns)

    def _bottom(
        self, party: str, shape: tuple[int, ...], device: torch.device
    ) -> Callable[[torch.Generator], nn.Module]:
        def fresh(rng: torch.Generator) -> nn.Module:
            return to_device(self._built(party, shape, rng).module, self.job.runtime, device)

        return fresh

    def _defense(self, model: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Defense:
        defense = make_defense(self.job, self.victim)
        defense.bind(model, optimizer, rng)
        return defense


class _Predict:
    """The active party's top model, with its own auxiliary rows where it holds any."""

    def __init__(self, top: Top | None, own: Tensor | None) -> None:
        self.top, self.own = top, own

    def __call__(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        if self.top is None:
            raise InputError("there is no top model to ask before the training begins, nor after it")
        if self.own is None:
            return self.top(payloads, None)
        if numbers is None:
            raise InputError("this attack does not reckon with an active party that holds features itself")
        return self.top(payloads, self.own[numbers.to(self.own.device)])
