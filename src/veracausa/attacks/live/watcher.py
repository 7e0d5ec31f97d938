"""An attack at the active party's side: it is shown the victim's exchanges and may change the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from veracausa.attacks import attacks
from veracausa.attacks.base import Attack, Exchange, Grant
from veracausa.attacks.live.knowledge import AdversaryKnowledge
from veracausa.errors import RunError
from veracausa.events import ProgressCallback
from veracausa.registry import Options
from veracausa.runs.atomic import atomic_write
from veracausa.runs.store import Store, read_tree, serialize_state
from veracausa.training.hooks import ActivePartyHook, FederationInfo, Predict


@dataclass(frozen=True)
class AttackHookFactory:
    """Makes the watcher where the active party runs, in a thread or a process of its own."""

    knowledge: AdversaryKnowledge
    options: Options
    folder: Path

    def __call__(self, store: Store) -> ActivePartyHook:
        return AttackWatcher(self)

    def attack(self, top: Predict | None, progress: ProgressCallback = lambda share: None) -> AttackState:
        """The attack as it begins, nothing learnt."""
        attack: Attack = attacks.get(self.options.name)(self.options)
        view = self.knowledge.view(self.options, top, progress)
        attack.begin(view)
        return AttackState(attack, view.rng)


class AttackState:
    """An attack and the generator it draws from: together they can be kept and brought back."""

    def __init__(self, attack: Attack, rng: Any) -> None:
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


class AttackWatcher(ActivePartyHook):
    """Shows an attack what its victim sent, and sends the victim what the attack wants."""

    def __init__(self, making: AttackHookFactory) -> None:
        self.making, self.victim = making, making.knowledge.victim
        self.exchange: Exchange | None = None

    def begin(self, meeting: FederationInfo) -> None:
        self.carried = self.making.attack(meeting.predict)
        self.attack = self.carried.attack
        self.carried.load(self.making.folder / "prepared.safetensors")
        self.present = meeting.present[self.victim]

    def saw(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        held = self.present[ids]
        # A dummy for somebody whom the victim does not know would teach the attack what is not so.
        self.rows = None if held.all() else held.nonzero().squeeze(1)
        self.exchange = None
        if int(held.sum()) < 2:
            return  # too few for batch statistics
        sent = {name: self._of(payload).float() for name, payload in payloads.items()}
        payload = sent.pop(self.victim)
        self.exchange = Exchange(step, self._of(ids), payload, self._of(labels), sent)

    def answer(self, peer: str, gradient: Tensor) -> Tensor:
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

    def answered(self) -> None:
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
