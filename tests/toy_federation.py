"""A federation of toys in one loop: two parties with a few columns each, a top model, and an attack beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.base import Exchange, FeatureAttack, Grant, LiveView
from veracausa.metrics.leakage import blind_guesses, blind_mse, leakage
from veracausa.seeding import drawing_from

CLASSES, COLUMNS, WIDTH, BATCH = 8, 2, 2, 64
VICTIM, OTHER = "bank", "shop"


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def people(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two columns a party; a class is the eighth of the compass in which the victim's two point.

    A top model that tells so many classes apart leaves little choice to whoever would simulate what goes into it; and
    skewed columns of different width leave little to whoever has no labels and can only match distributions.
    """
    drawn = torch.empty(count, 2 * COLUMNS).exponential_(generator=rng(seed))
    rows = (drawn - 1) * torch.tensor([1.4, 0.7] * 2)
    angle = torch.atan2(rows[:, 1], rows[:, 0]) / (2 * torch.pi) + 0.5
    return rows, (angle * CLASSES).long().clamp(max=CLASSES - 1)


@dataclass
class Toy:
    """Columns by party, the victims' and the attacker's, and the models of an honest training."""

    count: int = 512
    lr: float = 1e-2
    device: str = "cpu"
    send: Callable[[Tensor, Tensor], Tensor] = field(default=lambda payload, ids: payload)
    """What the victim makes of its payload before it leaves."""

    def __post_init__(self) -> None:
        rows, self.labels = (drawn.to(self.device) for drawn in people(self.count, 1))
        spare, self.spare_labels = (drawn.to(self.device) for drawn in people(self.count, 2))
        self.rows = dict(zip((VICTIM, OTHER), rows.split(COLUMNS, 1), strict=True))
        self.spare = dict(zip((VICTIM, OTHER), spare.split(COLUMNS, 1), strict=True))
        self.bottoms = {VICTIM: self.bottom(rng(10)), OTHER: self.bottom(rng(11))}
        with drawing_from(rng(12)):
            self.top = nn.Linear(2 * WIDTH, CLASSES).to(self.device)
        self.draws = rng(20)
        weights = [w for model in (*self.bottoms.values(), self.top) for w in model.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=self.lr)
        self.norms: list[float] = []

    def bottom(self, rng: torch.Generator) -> nn.Module:
        """A fresh bottom model."""
        with drawing_from(rng):
            return nn.Linear(COLUMNS, WIDTH).to(self.device)

    def view(self, seed: int = 5, **changed) -> LiveView:
        settings = {
            "grants": ~Grant.NONE,
            "victim": VICTIM,
            "payload_shape": (WIDTH,),
            "row_shape": (COLUMNS,),
            "pixels": False,
            "rng": rng(seed),
            "device": torch.device(self.device),
            "auxiliary": self.spare[VICTIM],
            "auxiliary_labels": self.spare_labels,
            "labels": self.labels,
            "classes": CLASSES,
            "bottom": self.bottom,
            "predict": self.predict,
            "others": {OTHER: self.spare[OTHER]},
            "other_bottoms": {OTHER: self.bottom},
        }
        return LiveView(**{**settings, **changed})

    def predict(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        return self.top(torch.cat([payloads[VICTIM], payloads[OTHER]], 1))

    def train(self, attack: FeatureAttack, steps: int) -> None:
        """Exchanges as a live run makes them."""
        for step in range(steps):
            ids = torch.randperm(self.count, generator=self.draws)[:BATCH]
            sent = {name: self.bottoms[name](rows[ids]) for name, rows in self.rows.items()}
            sent[VICTIM] = self.send(sent[VICTIM], ids)
            leaves = {name: payload.detach().requires_grad_() for name, payload in sent.items()}
            self.optimizer.zero_grad()
            F.cross_entropy(self.predict(leaves), self.labels[ids]).backward()
            others = {OTHER: leaves[OTHER].detach()}
            exchange = Exchange(step, ids, leaves[VICTIM].detach(), self.labels[ids], others)
            self.norms.append(float(exchange.payload.norm(dim=1).mean()))
            gradients = {name: leaf.grad.clone() for name, leaf in leaves.items()}
            if Grant.TAMPER in attack.needs:
                gradients[VICTIM] = attack.tamper(gradients[VICTIM], exchange)
            attack.observe(exchange)
            for name, payload in sent.items():
                if payload.requires_grad:
                    payload.backward(gradients[name])
            self.optimizer.step()

    def payloads(self) -> Tensor:
        """The victim's, for everybody, as its model now stands."""
        with torch.no_grad():
            return self.send(self.bottoms[VICTIM](self.rows[VICTIM]), torch.arange(self.count))

    def leaked(self, guess: Tensor) -> float:
        """Leakage over all victims, against the best blind guess."""
        truth = self.rows[VICTIM]
        known = {"auxiliary_labels": self.spare_labels, "labels": self.labels}
        blind, _ = blind_mse(blind_guesses(self.spare[VICTIM], len(truth), pixels=False, **known), truth)
        return leakage(float((guess - truth).square().mean()), blind)
