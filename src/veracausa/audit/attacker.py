"""An attacker at the active party's side: what it knows before the training, and the hook that shows it exchanges.

Both can be handed to the process in which the active party runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.atomic import atomic_write
from veracausa.attacks import attacks
from veracausa.attacks.base import AttackersPart, Exchange, Grant, LiveAttack, LiveView
from veracausa.audit.sample import choose
from veracausa.config import Job
from veracausa.data.vertical import Part, VerticalDataset
from veracausa.defenses.base import Defense
from veracausa.errors import InputError, RunError
from veracausa.events import ProgressCallback
from veracausa.models.runner import choose_device, to_device
from veracausa.registry import Options, did_you_mean
from veracausa.runs.store import Store, read_tree, serialize_state
from veracausa.training.hooks import ActivePartyHook, FederationInfo, Predict
from veracausa.training.hooks import Predict as Top
from veracausa.training.split.halves import DefendedBottom, build_defended, make_defense
from veracausa.training.split.program import Schema

_GRANTED = Grant.ARCHITECTURE | Grant.AUXILIARY | Grant.DEFENSE | Grant.TAMPER


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
    own: Part | None = None
    """The active party's training rows, where it holds features."""
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
            active.train if active.shape else None,
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
        grants = _GRANTED
        known: dict[str, Any] = {}
        for name, labels, grant in (
            ("labels", self.labels, Grant.LABELS),
            ("auxiliary_labels", self.auxiliary_labels, Grant.LABELLED_AUXILIARY),
        ):
            if labels is not None:
                grants, known[name] = grants | grant, labels.to(device)
        return LiveView(
            grants=grants,
            victim=self.victim,
            payload_shape=built.payload,
            row_shape=shape,
            pixels=len(shape) == 3,
            rng=seeding.generator(self.job.seed, "live", options.name, self.victim),
            device=device,
            auxiliary=rows,
            classes=len(self.schema.classes) if self.schema.task == "classification" else 0,
            bottom=self._bottom(self.victim, shape, device),
            defense=self._defense,
            epochs=self.job.training.epochs,
            batch_size=self.job.training.batch_size,
            progress=progress,
            predict=_Predict(top, held.get(self.job.parties.active)),
            victim_rate=optimizer.lr if optimizer.name == "adam" else None,
            others=passive,
            own=self._own(held, device),
            other_bottoms={name: self._bottom(name, tuple(rows.shape[1:]), device) for name, rows in passive.items()},
            **known,
        )

    def _own(self, held: Mapping[str, Tensor], device: torch.device) -> AttackersPart | None:
        part, auxiliary = self.own, held.get(self.job.parties.active)
        if part is None or auxiliary is None:
            return None

        def rows(positions: Tensor) -> Tensor:
            return part.take(positions.cpu()).to(device)

        return AttackersPart(auxiliary, rows, self._bottom(self.victim, tuple(auxiliary.shape[1:]), device))

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


@dataclass(frozen=True)
class AttackHookFactory:
    """Makes the watcher where the active party runs, in a thread or a process of its own."""

    knowledge: AdversaryKnowledge
    options: Options
    folder: Path

    def __call__(self, store: Store) -> ActivePartyHook:
        return AttackHook(self)

    def attack(self, top: Predict | None, progress: ProgressCallback = lambda share: None) -> AttackState:
        """The attack as it begins, nothing learnt."""
        attack = attacks.get(self.options.name)(self.options)
        if not isinstance(attack, LiveAttack):
            raise InputError(f"attack {self.options.name!r} needs no live run: audit a finished one with it")
        view = self.knowledge.view(self.options, top, progress)
        attack.begin(view.limited_to(attack.needs | attack.uses))
        return AttackState(attack, view.rng)


class AttackState:
    """An attack and the generator it draws from: together they can be kept and brought back."""

    def __init__(self, attack: LiveAttack, rng: Any) -> None:
        self.attack, self.rng = attack, rng

    def state(self) -> dict[str, Any]:
        return {"attack": self.attack.state(), "rng": self.rng.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.attack.load_state(state["attack"])
        self.rng.set_state(state["rng"])

    def save(self, path: Path, **also: Any) -> None:
        """Into a file that is either whole or not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, serialize_state({**also, "carried": self.state()}))

    def load(self, path: Path) -> dict[str, Any]:
        """From such a file; what else was kept in it."""
        tree: dict[str, Any] = read_tree(path)
        self.load_state(tree.pop("carried"))
        return tree


class AttackHook(ActivePartyHook):
    """Shows an attack what its victim sent, and sends the victim what the attack wants."""

    def __init__(self, making: AttackHookFactory) -> None:
        self.making, self.victim = making, making.knowledge.victim
        self.exchange: Exchange | None = None

    def begin(self, meeting: FederationInfo) -> None:
        self.carried = self.making.attack(meeting.predict)
        self.attack = self.carried.attack
        self.carried.load(self.making.folder / "prepared.safetensors")
        self.present = meeting.present[self.victim]

    def on_payloads(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        held = self.present[ids]
        # A dummy for somebody whom the victim does not know would teach the attack what is not so.
        self.rows = None if held.all() else held.nonzero().squeeze(1)
        self.exchange = None
        if int(held.sum()) < 2:
            return  # too few for batch statistics
        sent = {name: self._of(payload).float() for name, payload in payloads.items()}
        payload = sent.pop(self.victim)
        self.exchange = Exchange(step, self._of(ids), payload, self._of(labels), sent)

    def on_gradient(self, peer: str, gradient: Tensor) -> Tensor:
        if self.exchange is None or peer != self.victim or Grant.TAMPER not in self.attack.needs:
            return gradient
        wanted = self.attack.tamper(self._of(gradient).float(), self.exchange).detach()
        if wanted.shape != self.exchange.payload.shape:
            raise RunError(f"attack {self.making.options.name!r} made a gradient of shape {tuple(wanted.shape)}")
        if self.rows is None:
            return wanted.to(gradient.dtype).contiguous()
        whole = gradient.clone()
        whole[self.rows.to(gradient.device)] = wanted.to(gradient.dtype)
        return whole

    def on_step_end(self) -> None:
        if self.exchange is not None:
            self.attack.observe(self.exchange)
        self.exchange = None

    def state(self) -> dict[str, Any]:
        return self.carried.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.carried.load_state(state)

    def close(self) -> None:
        self.carried.save(self.making.folder / "state.safetensors", concluded=False)

    def _of(self, values: Tensor) -> Tensor:
        return values if self.rows is None else values[self.rows.to(values.device)]
