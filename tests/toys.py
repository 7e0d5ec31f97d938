"""Two parties, a top model and a live attack beside it, in one loop without a wire: with columns or with strips."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.base import Attack, Exchange, Grant, LiveAttack, LiveView
from veracausa.metrics.leakage import blind_guesses, blind_mse, leakage
from veracausa.models.runner import eval_mode
from veracausa.seeding import drawing_from

VICTIM, OTHER = "bank", "shop"
COLUMNS, WIDTH = 2, 2
"""Of a party's rows and payloads in `Toy`."""
Bottom = Callable[[torch.Generator], nn.Module]
People = tuple[Tensor, Tensor]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class AttackedTraining:
    """The victims' rows, the attacker's spare ones, and the models of an honest training."""

    CLASSES: int
    BATCH: int
    pixels: bool

    def __init__(self, people: People, spare: People, bottom: Bottom, top: Callable[[], nn.Module], lr: float) -> None:
        self.bottom, self.labels, self.spare_labels = bottom, people[1], spare[1]
        self.device = people[0].device
        self.rows, self.spare = (
            dict(zip((VICTIM, OTHER), all.chunk(2, -1), strict=True)) for all, _ in (people, spare)
        )
        self.bottoms = {VICTIM: self.victims_bottom(), OTHER: bottom(rng(11))}
        with eval_mode(self.bottoms[VICTIM]), torch.no_grad():
            self.payload_shape = tuple(self.bottoms[VICTIM](self.rows[VICTIM][:1]).shape[1:])
        with drawing_from(rng(12)):
            self.top = top().to(self.device)
            with torch.no_grad():
                self.predict(dict.fromkeys((VICTIM, OTHER), torch.zeros(1, *self.payload_shape, device=self.device)))
        self.draws = rng(20)
        weights = [w for model in (*self.bottoms.values(), self.top) for w in model.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=lr)
        self.norms: list[float] = []

    def victims_bottom(self) -> nn.Module:
        return self.bottom(rng(10))

    def send(self, payload: Tensor, ids: Tensor) -> Tensor:
        """What the victim makes of its payload before it leaves."""
        return payload

    def view(self, seed: int = 5, **changed) -> LiveView:
        settings = {
            "grants": ~Grant.NONE,
            "victim": VICTIM,
            "payload_shape": self.payload_shape,
            "row_shape": tuple(self.rows[VICTIM].shape[1:]),
            "pixels": self.pixels,
            "rng": rng(seed),
            "device": self.device,
            "auxiliary": self.spare[VICTIM],
            "auxiliary_labels": self.spare_labels,
            "labels": self.labels,
            "classes": self.CLASSES,
            "bottom": self.bottom,
            "predict": self.predict,
            "others": {OTHER: self.spare[OTHER]},
            "other_bottoms": {OTHER: self.bottom},
        }
        return LiveView(**{**settings, **changed})

    def predict(self, payloads: Mapping[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        return self.top(torch.cat([payloads[VICTIM], payloads[OTHER]], -1))

    def train(self, attack: Attack, steps: int) -> None:
        """Exchanges in the order of a live run: tamper, the victims' updates, observe."""
        for step in range(1, steps + 1):
            ids = torch.randperm(len(self.labels), generator=self.draws)[: self.BATCH]
            sent = {name: self.bottoms[name](rows[ids]) for name, rows in self.rows.items()}
            sent[VICTIM] = self.send(sent[VICTIM], ids)
            leaves = {name: payload.detach().requires_grad_() for name, payload in sent.items()}
            self.optimizer.zero_grad()
            F.cross_entropy(self.predict(leaves), self.labels[ids]).backward()
            others = {OTHER: leaves[OTHER].detach()}
            exchange = Exchange(step, ids, leaves[VICTIM].detach(), self.labels[ids], others)
            self.norms.append(float(exchange.payload.flatten(1).norm(dim=1).mean()))
            gradients = {name: leaf.grad.clone() for name, leaf in leaves.items()}
            if Grant.TAMPER in attack.needs:
                gradients[VICTIM] = attack.tamper(gradients[VICTIM], exchange)
            for name, payload in sent.items():
                if payload.requires_grad:
                    payload.backward(gradients[name])
            self.optimizer.step()
            attack.observe(exchange)

    def payloads(self) -> Tensor:
        """The victim's, for everybody, as its model now stands."""
        with eval_mode(self.bottoms[VICTIM]), torch.no_grad():
            return self.send(self.bottoms[VICTIM](self.rows[VICTIM]), torch.arange(len(self.labels)))

    def leaked(self, guess: Tensor) -> float:
        """Leakage over all victims, against the best blind guess."""
        truth = self.rows[VICTIM]
        known = {"auxiliary_labels": self.spare_labels, "labels": self.labels}
        guesses = blind_guesses(self.spare[VICTIM], len(truth), pixels=self.pixels, **known)
        return leakage(float((guess - truth).square().mean()), blind_mse(guesses, truth)[0])


def compass(count: int, seed: int) -> People:
    """Two columns a party; a class is the eighth of the compass in which the victim's two point.

    A top model that tells so many classes apart leaves little choice to whoever would simulate what goes into it; and
    skewed columns of different width leave little to whoever has no labels and can only match distributions.
    """
    drawn = torch.empty(count, 2 * COLUMNS).exponential_(generator=rng(seed))
    rows = (drawn - 1) * torch.tensor([1.4, 0.7] * 2)
    angle = torch.atan2(rows[:, 1], rows[:, 0]) / (2 * torch.pi) + 0.5
    return rows, (angle * Toy.CLASSES).long().clamp(max=Toy.CLASSES - 1)


class Toy(AttackedTraining):
    """Two columns a party and linear bottoms; `send` is what the victim makes of its payload before it leaves."""

    CLASSES, BATCH, pixels = 8, 64, False

    def __init__(
        self,
        count: int = 512,
        lr: float = 1e-2,
        device: str = "cpu",
        send: Callable[[Tensor, Tensor], Tensor] = lambda payload, ids: payload,
    ) -> None:
        self.count, self.send = count, send  # type: ignore[method-assign]

        def bottom(rng: torch.Generator) -> nn.Module:
            with drawing_from(rng):
                return nn.Linear(COLUMNS, WIDTH).to(device)

        people, spare = ((rows.to(device), labels.to(device)) for rows, labels in (compass(count, n) for n in (1, 2)))
        super().__init__(people, spare, bottom, lambda: nn.Linear(2 * WIDTH, self.CLASSES), lr)


def pictures(count: int, seed: int) -> People:
    """Smooth pictures of 1×8×8, waves of random strength; the class is the strongest of the first three."""
    grid = torch.linspace(0, 3.14, 8).view(8, 1) + torch.linspace(0, 3.0, 8)
    waves = torch.stack([torch.sin(n * grid) for n in range(1, 6)])
    strengths = torch.randn(count, 5, generator=rng(seed))
    rows = torch.sigmoid(torch.einsum("nk,khw->nhw", strengths, waves)).unsqueeze(1)
    return rows, strengths[:, : LiveToy.CLASSES].argmax(1)


def convolution(rng: torch.Generator) -> nn.Module:
    """A bottom model that keeps the picture's layout."""
    with drawing_from(rng):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())


class Scrambled(nn.Module):
    """A map that no convolution resembles: every value of the payload mixes all pixels; it has nothing to learn."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.mixing = channels, torch.randn(32, 32 * channels, generator=rng(30)) / 3

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x.flatten(1) - 0.5) @ self.mixing).view(-1, self.channels, 8, 4)


class LiveToy(AttackedTraining):
    """Strips of pictures; with `frozen` the victim's map is that one."""

    CLASSES, BATCH, pixels = 3, 32, True

    def __init__(
        self, bottom: Bottom = convolution, people: int = 256, lr: float = 1e-3, frozen: nn.Module | None = None
    ) -> None:
        self.frozen = frozen
        top = lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(self.CLASSES))  # noqa: E731
        super().__init__(pictures(people, 1), pictures(people, 2), bottom, top, lr)

    def victims_bottom(self) -> nn.Module:
        return super().victims_bottom() if self.frozen is None else self.frozen

    def begin(self, attack: LiveAttack) -> None:
        attack.begin(self.view())
        attack.pretrain()

    def train(self, attack: LiveAttack, steps: int) -> None:
        super().train(attack, steps)
        attack.conclude()

    def leaked_to(self, attack: LiveAttack) -> float:
        return self.leaked(attack.reconstruct(self.payloads(), torch.arange(len(self.labels))))


EXPERIMENT = {
    "item": "Table 0",
    "title": "a toy",
    "columns": ["accuracy", "unsplit.mse", "unsplit.leakage"],
    "show": ["digits"],
    "rows": ["laplace"],
    "job": {"data": {"name": "digits"}, "model": {"name": "convnet", "cut": 3}},
    "panels": {"digits": {"label": "Digits"}},
    "defenses": {
        "none": {"label": "no defense", "defense": {"name": "none"}},
        "laplace": {"label": "Laplace noise", "defense": {"name": "laplace", "epsilon": 2.0}},
    },
    "attacks": {"unsplit": {}},
    "published": {"digits": {"laplace": {"unsplit.mse": [0.05, 0.01]}}},
    "scales": {"smoke": {"seeds": 2}},
}
"""An experiment of one row: what a TOML file of one would hold."""
