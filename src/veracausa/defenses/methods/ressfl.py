"""ResSFL (Li et al., 2022): the bottom is trained against a decoder that learns beside it to read its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa.data.images import ImageOptions
from veracausa.data.sources import datasets
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Diagnoses, HasLayers, Penalizes, Prepares, no_progress
from veracausa.defenses.proxy_adversary import (
    DecoderReading,
    Expert,
    ProxyAdversary,
    Strength,
    check_fits,
    likeness,
    load_strips,
    payload_of,
    train_expert,
)
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.models.runner import Runner, device_of, eval_mode
from veracausa.models.units import shape_text
from veracausa.registry import Options


def _source(value: Any) -> Any:
    if value is None or isinstance(value, Options):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError(f"needs a name (there are: {', '.join(datasets.names())})")
    try:
        options = datasets.options(value["name"])
    except InputError as error:
        raise ValueError(str(error)) from None
    if not issubclass(options, ImageOptions):
        raise ValueError(f"{value['name']} holds no pictures; a bottom is pretrained on pictures with labels")
    return options.model_validate(value)


class ResSFLOptions(Options):
    swept: ClassVar[tuple[str, ...]] = ("strength",)
    sweep: ClassVar[Mapping[str, tuple[Any, ...]]] = {"strength": (0.1, 0.3, 1.0, 3.0)}

    name: str = "ressfl"
    mode: Literal["inline", "transfer"] = "inline"
    """Against the decoder from the first exchange on; or after a pretraining on a public data set, then slowly."""
    strength: float = Field(0.3, ge=0)
    """δ, how much it counts that the decoder reads; 0 sends and learns what an undefended party does."""
    threshold: float = Field(0.5, ge=0, lt=1)
    """Reading worse than this costs nothing: SSIM for pictures, R² for a table's rows."""
    decoder: Strength = "weak"
    interval: int = Field(1, ge=1)
    """The decoder learns at every so many exchanges …"""
    steps: int = Field(1, ge=1)
    """… and takes so many steps then."""
    lr: float = Field(1e-3, gt=0)
    """The decoder's, for Adam."""
    bottleneck: int = Field(0, ge=0)
    """Channels (of a vector: entries) that a last linear layer leaves of the bottom's output; 0: no such layer."""

    source: Annotated[SerializeAsAny[ImageOptions] | None, BeforeValidator(_source)] = None
    """The public data set with labels that `transfer` pretrains on; all its strips of the party's shape are used."""
    source_epochs: int = Field(10, ge=1)
    source_batch: int = Field(128, ge=2)
    source_lr: float = Field(0.05, gt=0)
    """SGD's highest, with momentum 0.9 and weight decay 5e-4."""
    slow: float = Field(0.1, gt=0, le=1)
    """What the bottom's learning rate is multiplied by after a pretraining."""

    @model_validator(mode="after")
    def _consistent(self) -> ResSFLOptions:
        if self.mode == "transfer" and self.source is None:
            raise ValueError('source: transfer pretrains on a public data set; name it, as in source.name = "cifar100"')
        if self.mode == "inline" and self.source is not None:
            raise ValueError('source: is used by mode = "transfer" only; set that or remove the source')
        return self


@defenses.register("ressfl", ResSFLOptions)
class ResSFL(Defense, HasLayers, Prepares, Penalizes, Diagnoses):
    """Teaches the bottom that a decoder of the party's own cannot read its output; the payload itself is not changed.

    The bottom's loss gets + δ·max(0, SSIM(decoder(r), x) − ½). For a table, which has no SSIM, R² stands in its place.
    The labels of the task stay with the active party: they speak through its gradient.
    """

    options: ResSFLOptions

    def __init__(self, options: ResSFLOptions) -> None:
        super().__init__(options)
        self.adversary: ProxyAdversary | None = None
        self.expert: Expert | None = None
        self.exchanges = 0
        """Those that the decoder could learn from, so far."""
        self.started = False
        """Whether there was any exchange."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse to pretrain for rows that the source's pictures have no strips of."""
        source = self.options.source
        if source is None:
            return
        if len(shape) != 3:
            raise InputError(
                f'defense.mode = "transfer" pretrains on pictures, and rows of shape {shape_text(shape) or "none"} are '
                'none; use mode = "inline"'
            )
        channels, side = source.picture()
        if side is not None:  # else it is known when the files are read
            check_fits((channels, side, side), shape, f"defense.source = {source.name!r}")

    def layers(self, shape: tuple[int, ...]) -> nn.Module | None:
        """The bottleneck: one convolution, or one linear layer, without an activation."""
        kept = self.options.bottleneck
        if not kept:
            return None
        if kept >= shape[0]:
            raise InputError(
                f"defense.bottleneck = {kept} is none: the bottom gives {shape_text(shape)}; "
                f"choose less than {shape[0]}"
            )
        return nn.Conv2d(shape[0], kept, 3, padding=1) if len(shape) == 3 else nn.Linear(shape[0], kept)

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        # At strength 0 nothing is drawn: the party is then to the last bit an undefended one.
        self.seed = int(torch.randint(2**62, (), generator=rng)) if self._learns or self.options.source else 0
        self.device = device_of(bottom)

    @property
    def _learns(self) -> bool:
        return self.options.strength > 0

    # Before the first exchange.

    def prepare(self, data: Part, progress: ProgressCallback = no_progress) -> None:
        """Build the decoder; with `transfer`, train a copy of the bottom on the source."""
        if data.features is None:
            return
        row = tuple(data.features.shape[1:])
        self.check(row)
        if self._learns:
            self._build(payload_of(self.bottom, row), row)
        if (source := self.options.source) is not None:
            rows, labels, classes = load_strips(source, row)
            reading = DecoderReading(self.options.strength, self.options.threshold, self.options.steps, self.options.lr)
            self.expert = train_expert(
                *(self.bottom, rows.to(self.device), labels.to(self.device), classes, reading),
                epochs=self.options.source_epochs,
                batch_size=self.options.source_batch,
                lr=self.options.source_lr,
                seed=self.seed,
                precision=self.run_bottom.precision,
                progress=progress,
            )

    def prepared(self) -> dict[str, Any]:
        return {} if self.expert is None else {"weights": self.expert.weights, "gates": self.expert.quality}

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        self.expert = Expert(dict(kept["weights"]), dict(kept["gates"])) if kept else None

    def quality_checks(self) -> dict[str, float | bool | str]:
        """How well the pretrained bottom served the source's task, and how well the decoder read it."""
        return {} if self.expert is None else dict(self.expert.quality)

    # Training.

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        # Taken over here and not in `prepare`: whoever only asks for payloads, as an attacker that runs this defense
        # on a model of its own, keeps that model.
        if self.expert is not None and not self.started:
            self.bottom.load_state_dict(self.expert.weights)
        self.started = True
        return super().forward(x, ids, step)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Let the decoder learn when it is due, then update the bottom against it."""
        if self._learns and len(context.x) > 1:
            r = context.representation.detach()
            if self.exchanges % self.options.interval == 0:
                for _ in range(self.options.steps):
                    self._reader(r, context.x).learn(r, context.x, lambda guess, rows: -likeness(guess, rows))
            self.exchanges += 1
        with self._slowed():
            super().backward(context, grad, local_steps)

    def penalty(self, r: Tensor, x: Tensor) -> Tensor | None:
        """δ·max(0, SSIM − threshold) of the decoder as it is; none for a single row, which has no batch statistics."""
        if not self._learns or len(x) < 2:
            return None
        read = likeness(self._reader(r, x).read(r), x)
        return self.options.strength * (read - self.options.threshold).clamp_min(0)

    @contextmanager
    def _slowed(self) -> Iterator[None]:
        if self.expert is None:
            yield
            return
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * self.options.slow
        try:
            yield
        finally:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """How well the decoder reads these rows: SSIM, or R² for a table's."""
        if not self._learns:
            return {}
        with eval_mode(self.bottom), torch.no_grad():
            r = self.run_bottom(x)
            read = likeness(self._reader(r, x).ask(r), x)
        return {"decoder_ssim" if x.ndim == 4 else "decoder_r2": float(read)}

    # Parts.

    def _reader(self, r: Tensor, x: Tensor) -> ProxyAdversary:
        if self.adversary is None:
            self._build(tuple(r.shape[1:]), tuple(x.shape[1:]))
        assert self.adversary is not None
        return self.adversary

    def _build(self, payload: tuple[int, ...], row: tuple[int, ...]) -> None:
        options, precision = self.options, self.run_bottom.precision
        self.adversary = ProxyAdversary(payload, row, options.decoder, options.lr, self.seed, self.device, precision)

    def state(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "exchanges": self.exchanges,
            "started": self.started,
            "adversary": None if self.adversary is None else self.adversary.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seed, self.exchanges, self.started = state["seed"], state["exchanges"], state["started"]
        self.adversary = None
        if (kept := state["adversary"]) is not None:
            self._build(tuple(kept["payload"]), tuple(kept["row"]))
            self.adversary.load_state(kept)  # type: ignore[attr-defined]
