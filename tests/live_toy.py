"""Two parties with strips of toy pictures, a top model and a live attack beside it, in one loop without a wire."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.base import Exchange, Grant, LiveAttack, LiveView
from veracausa.metrics.leakage import blind_guesses, blind_mse, leakage
from veracausa.models.runner import eval_mode
from veracausa.seeding import drawing_from

CLASSES, ROW, BATCH = 3, (1, 8, 4), 32
PARTIES = ("bank", "shop")
Bottom = Callable[[torch.Generator], nn.Module]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Smooth pictures of 1×8×8, waves of random strength; the class is the strongest of the first three."""
    grid = torch.linspace(0, 3.14, 8).view(8, 1) + torch.linspace(0, 3.0, 8)
    waves = torch.stack([torch.sin(n * grid) for n in range(1, 6)])
    strengths = torch.randn(count, 5, generator=rng(seed))
    rows = torch.sigmoid(torch.einsum("nk,khw->nhw", strengths, waves)).unsqueeze(1)
    return rows, strengths[:, :CLASSES].argmax(1)


def convolution(rng: torch.Generator) -> nn.Module:
    """A bottom model that keeps the picture's layout."""
    with drawing_from(rng):
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())


class Scrambled(nn.Module):
    """A map that no convolution resembles: every value of the payload mixes all pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.mixing = channels, torch.randn(32, 32 * channels, generator=rng(30)) / 3

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh((x.flatten(1) - 0.5) @ self.mixing).view(-1, self.channels, 8, 4)


class LiveToy:
    """The victim is "bank"; with `frozen` its map is that one, and it ignores every gradient."""

    def __init__(
        self, bottom: Bottom = convolution, people: int = 256, lr: float = 1e-3, frozen: nn.Module | None = None
    ) -> None:
        self.bottom, self.frozen = bottom, frozen
        rows, self.labels = pictures(people, 1)
        spare, self.spare_labels = pictures(people, 2)
        self.rows, self.spare = ({"bank": all[..., :4], "shop": all[..., 4:]} for all in (rows, spare))
        self.bottoms = {name: bottom(rng(10 + number)) for number, name in enumerate(PARTIES)}
        if frozen is not None:
            self.bottoms["bank"] = frozen
        with torch.no_grad():
            self.payload_shape = tuple(self.bottoms["bank"](rows[:1, ..., :4]).shape[1:])
        with drawing_from(rng(12)):
            self.top = nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES))
            self.top(torch.zeros(1, *self.payload_shape).repeat(1, 1, 1, 2))
        weights = [*self.bottoms["shop"].parameters(), *self.top.parameters()]
        self.optimizer = torch.optim.Adam([*weights, *self.bottoms["bank"].parameters()], lr=lr)

    def begin(self, attack: LiveAttack) -> None:
        view = LiveView(
            grants=~Grant.NONE,
            victim="bank",
            payload_shape=self.payload_shape,
            row_shape=ROW,
            pixels=True,
            rng=rng(5),
            device=torch.device("cpu"),
            auxiliary=self.spare["bank"],
            auxiliary_labels=self.spare_labels,
            labels=self.labels,
            classes=CLASSES,
            bottom=self.bottom,
            predict=self.predict,
            others={"shop": self.spare["shop"]},
            other_bottoms={"shop": self.bottom},
        )
        attack.begin(view)
        attack.pretrain()

    def predict(self, payloads: dict[str, Tensor], numbers: Tensor | None = None) -> Tensor:
        return self.top(torch.cat([payloads[name] for name in PARTIES], -1))

    def train(self, attack: LiveAttack, steps: int) -> None:
        """Exchanges in the order of a live run: tamper, the victims' updates, observe."""
        draws = rng(20)
        for step in range(1, steps + 1):
            ids = torch.randperm(len(self.labels), generator=draws)[:BATCH]
            sent = {name: self.bottoms[name](rows[ids]) for name, rows in self.rows.items()}
            leaves = {name: payload.detach().requires_grad_() for name, payload in sent.items()}
            self.optimizer.zero_grad()
            F.cross_entropy(self.predict(leaves), self.labels[ids]).backward()
            exchange = Exchange(step, ids, leaves["bank"].detach(), self.labels[ids], {"shop": leaves["shop"].detach()})
            gradients = {name: leaf.grad for name, leaf in leaves.items()}
            if Grant.TAMPER in attack.needs:
                gradients["bank"] = attack.tamper(gradients["bank"], exchange)
            for name in PARTIES if self.frozen is None else PARTIES[1:]:
                sent[name].backward(gradients[name])
            self.optimizer.step()
            attack.observe(exchange)
        attack.conclude()

    def payloads(self) -> Tensor:
        """The victim's, for everybody."""
        with eval_mode(self.bottoms["bank"]), torch.no_grad():
            return self.bottoms["bank"](self.rows["bank"])

    def leaked(self, attack: LiveAttack) -> float:
        """Leakage over all victims, against the best blind guess."""
        truth = self.rows["bank"]
        guess = attack.reconstruct(self.payloads(), torch.arange(len(truth)))
        guesses = blind_guesses(self.spare["bank"], len(truth), auxiliary_labels=self.spare_labels, labels=self.labels)
        return leakage(float((guess - truth).square().mean()), blind_mse(guesses, truth)[0])
