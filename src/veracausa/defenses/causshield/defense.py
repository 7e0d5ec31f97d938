"""CausShield: send only causal representations, learned without labels before every transmission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from veracausa import seeding
from veracausa.data.vertical import Part
from veracausa.defenses import defenses
from veracausa.defenses.base import Context
from veracausa.defenses.causshield.adaptation import Adaptation
from veracausa.defenses.causshield.batch_norm import drops, held_batch
from veracausa.defenses.causshield.losses import diagnostics
from veracausa.defenses.causshield.options import CausShieldOptions
from veracausa.defenses.causshield.surrogates.collect import SurrogateDefense
from veracausa.defenses.protocols import Advances, BatchDependent, Diagnoses, no_progress
from veracausa.defenses.risk_map import NotDifferentiable, RiskMap, Transmit
from veracausa.events import ProgressCallback
from veracausa.models.runner import Runner, device_of, eval_mode
from veracausa.registry import Options

ADAPTED_ROWS = 16
"""Fewer rows than this have no statistics to adapt to: at inference they get the last generator of the training."""

REHEARSED = 10
"""Exchanges after which a masker, and a generator that is pulled, stand about where a long training leaves them."""


@dataclass
class _Shielded(Context):
    """A context with what the gradient must be multiplied by, where a mask was sent."""

    mask: Tensor | None = None


@defenses.register("causshield", CausShieldOptions)
class CausShield(SurrogateDefense, BatchDependent, Advances, Diagnoses):
    """Sends what a copy of the bottom gives that has learnt, without labels, to answer a row and its surrogate alike.

    That copy, the generator G, is adapted for `iterations` steps to make a row and its surrogate agree in every
    dimension and the dimensions differ from each other. The gradient that comes back updates the bottom itself
    (`update = "st_bottom"`): G is thrown away.

    >>> shield = veracausa.CausShield(iterations=10)
    >>> shield.bind(bottom, optimizer, torch.Generator().manual_seed(0))
    >>> shield.prepare(rows)
    >>> payload, context = shield.forward(batch, ids, step=1)   # send the payload
    >>> shield.backward(context, gradient)                      # what came back
    """

    options: CausShieldOptions

    def __init__(self, options: CausShieldOptions | None = None, **settings: Any) -> None:
        super().__init__(options or CausShieldOptions(**settings))
        self.data: Part | None = None
        self.adaptation: Adaptation | None = None
        self.offset: list[Tensor] | None = None
        self.seen = 0
        self.adapted_epoch = -1
        self.done = self.options.iterations
        """How many inner iterations the last exchange had."""

    def bind(self, bottom: nn.Module, optimizer: Optimizer, rng: Generator, runner: Runner | None = None) -> None:
        super().bind(bottom, optimizer, rng, runner)
        # Without iterations nothing is drawn: the party is then to the last bit an undefended one.
        self.seed = self._draw() if self.options.iterations else 0

    # Before the first exchange.

    @property
    def wanted_surrogate(self) -> Options | None:
        return self.options.surrogate if self.options.iterations else None

    def prepare(self, data: Part | Tensor, progress: ProgressCallback = no_progress) -> None:
        """Make a surrogate of every training row; a plain tensor of rows will do."""
        self.data = data if isinstance(data, Part) else Part(len(data), data)
        super().prepare(self.data, progress)

    def load_prepared(self, kept: Mapping[str, Any], data: Part | None = None) -> None:
        self.data = data
        super().load_prepared(kept, data)

    # Training.

    def forward(self, x: Tensor, ids: Tensor, step: int) -> tuple[Tensor, Context]:
        """The adapted generator's payload; the gradient of it will be applied as if the bottom had sent it."""
        if not self.options.iterations:
            return super().forward(x, ids, step)
        surrogate = self.surrogate_of(x, ids, step)
        adaptation = self._adaptation_for(x)
        adaptation.draws.manual_seed(self._draw())
        sent_for = surrogate if self.options.transmit == "surrogate" else x
        # Eq. 49: the bottom learns on its own rows, whatever was sent.
        learns_on = x if self.options.update == "st_bottom" else sent_for
        r = self.run_bottom(x) if self.options.update == "st_bottom" else None
        if len(x) > 1:
            self._start(adaptation)
            self.done = self._adapt(adaptation, x, surrogate)
        self.seen += len(x)
        if self.options.update == "merge":
            adaptation.merge()
            r = self.run_bottom(sent_for)
            payload = r.detach()
        else:
            payload = adaptation.payload(sent_for) if len(x) > 1 else adaptation.payload_eval(sent_for).detach()
        mask = adaptation.mask(payload) if self.options.mask == "hard_topk" else None
        if mask is not None:
            payload = payload * mask
        if r is None:
            with torch.no_grad():
                r = self.bottom(sent_for)  # its batch statistics are kept up; the gradient goes another way
        return payload, _Shielded(learns_on, ids, step, r, payload, mask)

    def backward(self, context: Context, grad: Tensor, local_steps: int = 1) -> None:
        """Update the bottom by the payload's gradient; one adaptation serves all local steps."""
        if not self.options.iterations:
            return super().backward(context, grad, local_steps)
        mask = context.mask if isinstance(context, _Shielded) else None
        grad = grad if mask is None else grad * mask
        if self.options.update == "first_order":
            return self._first_order(context, grad, local_steps)
        for local in range(local_steps):
            r = self.run_bottom(context.x) if local else context.representation
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(r, grad.to(r.dtype))
            self.optimizer.step()
        return None

    def _first_order(self, context: Context, grad: Tensor, local_steps: int) -> None:
        """The gradient at G's weights, applied to the bottom's."""
        assert self.adaptation is not None
        with torch.enable_grad(), self.adaptation.precision():
            r = self.adaptation.generator(context.x)
        slopes = torch.autograd.grad(r, self.adaptation.parameters, grad.to(r.dtype), allow_unused=True)
        trained = [p for p in self.bottom.parameters() if p.requires_grad]
        for parameter, slope in zip(trained, slopes, strict=True):
            parameter.grad = slope
        for _ in range(local_steps):
            self.optimizer.step()

    def iterations(self) -> int:
        """M of the current epoch."""
        options = self.options
        if options.schedule != "exp":
            return options.iterations
        decayed = round(options.iterations * options.decay**self.epoch)
        return max(min(options.minimum, options.iterations), decayed)

    @property
    def epoch(self) -> int:
        """How often this party has seen all its training rows."""
        assert self.surrogates is not None
        return self.seen // max(1, len(self.surrogates.rows))

    def _start(self, adaptation: Adaptation, learning: bool = True) -> None:
        """Put the generator where this exchange's adaptation begins."""
        scope = self.options.scope
        if scope == "batch":
            adaptation.reset_to_bottom()
        elif scope == "persistent":
            adaptation.pull_towards_bottom(self.options.pull)
        elif learning and self.adapted_epoch != self.epoch:
            adaptation.reset_to_bottom()
            self._adapt_for_epoch(adaptation)
            self.adapted_epoch = self.epoch
            self.offset = adaptation.offset() if scope == "offset" else None
        elif self.offset is not None:
            adaptation.reset_to_bottom()
            adaptation.add(self.offset)

    def _adapt(self, adaptation: Adaptation, x: Tensor, surrogate: Tensor) -> int:
        if self.options.scope in ("epoch", "offset"):
            return 0
        return adaptation.adapt(x, surrogate, self.iterations())

    def _adapt_for_epoch(self, adaptation: Adaptation) -> None:
        """One adaptation for a whole epoch, on batches of the party's own."""
        assert self.data is not None
        held = self.data.present(torch.arange(len(self.data))).nonzero().squeeze(1)
        chosen = seeding.generator(self._draw())
        for i in range(self.iterations()):
            ids = held[torch.randint(len(held), (min(adaptation.rows, len(held)),), generator=chosen)]
            x = adaptation.to_memory_format(self.data.take(ids))
            adaptation.adapt(x, self.surrogate_of(x, ids, i), 1)

    def advance_to(self, epochs: int, batch: int) -> None:
        """M of that moment, and what is learnt once an epoch or from exchange to exchange, on the rows of `prepare`."""
        if not self.options.iterations or self.surrogates is None or self.data is None:
            return
        held = self.data.present(torch.arange(len(self.data))).nonzero().squeeze(1)
        an_epoch = max(1, len(self.surrogates.rows))
        # The last exchange was in the last epoch, which began with that epoch's M.
        self.seen, chosen = max(0, epochs - 1) * an_epoch, seeding.generator(self._draw())
        adaptation = self._adaptation_for(self.data.take(held[:batch]))
        adaptation.draws.manual_seed(self._draw())
        by_epoch = self.options.scope in ("epoch", "offset")
        for step in range(1 if by_epoch else REHEARSED):
            ids = held[torch.randint(len(held), (min(adaptation.rows, len(held)),), generator=chosen)]
            x = adaptation.to_memory_format(self.data.take(ids))
            self._start(adaptation)
            self._adapt(adaptation, x, self.surrogate_of(x, ids, step))
        self.seen = epochs * an_epoch

    # Inference and what looks at the defense.

    def infer(self, x: Tensor, ids: Tensor) -> Tensor:
        """The payload at test time; with `infer = "adapt"` adapted in batches of the training's size."""
        if not self.options.iterations or self.options.infer == "bottom":
            return super().infer(x, ids)
        adaptation = self._adaptation_for(x)
        pieces = x.chunk(max(1, -(-len(x) // adaptation.rows)))
        with torch.no_grad(), adaptation.preserving_state():
            return torch.cat([self._inferred(adaptation, piece) for piece in pieces])

    def _inferred(self, adaptation: Adaptation, x: Tensor) -> Tensor:
        sent_for, adapting = self._ready(adaptation, x)
        if adapting:
            payload = adaptation.payload(sent_for)
        else:
            with adaptation.precision():
                payload = adaptation.payload_eval(sent_for)
        return payload * adaptation.mask(payload, adapting) if self.options.mask == "hard_topk" else payload

    def _ready(self, adaptation: Adaptation, x: Tensor) -> tuple[Tensor, bool]:
        """Put the generator where it sends these rows at test time; what it is then given, and whether it adapted."""
        adaptation.draws.manual_seed(0)
        adapting = self.options.infer == "adapt" and len(x) >= ADAPTED_ROWS
        surrogate = x
        if adapting or self.options.transmit == "surrogate":
            assert self.surrogates is not None
            surrogate = adaptation.to_memory_format(self.surrogates.maker.make(x, seeding.generator(0, "inference")))
        if adapting:
            self._start(adaptation, learning=False)
            self._adapt(adaptation, x, surrogate)
        return surrogate if self.options.transmit == "surrogate" else x, adapting

    def frozen_map(self, x: Tensor, ids: Tensor) -> Transmit:
        """The generator that sends these rows together, adapted to them; it and the batch's statistics are held."""
        if not self.options.iterations or self.options.infer == "bottom":
            return super().deterministic_payload
        adaptation = self._adaptation_for(x)
        x = adaptation.to_memory_format(x[: adaptation.rows])
        with torch.no_grad(), adaptation.preserving_state():
            sent_for, adapting = self._ready(adaptation, x)
            generator, masker = adaptation.frozen_modules(sent_for, adapting)

        def transmit(rows: Tensor, ids: Tensor) -> Tensor:
            r: Tensor = generator(rows)
            return r if masker is None else r * adaptation.chosen(masker, r)

        return transmit

    def parts(self, x: Tensor, ids: Tensor) -> tuple[Transmit, Transmit]:
        """What is sent of these rows and what the bottom gives for them, both on held batch statistics: r^s and r."""
        training = self.bottom.training
        try:
            bottom = held_batch(self.bottom.train(), x)
        finally:
            self.bottom.train(training)
        return self.frozen_map(x, ids), lambda rows, ids: bottom(rows)

    def deterministic_payload(self, x: Tensor, ids: Tensor) -> Tensor:
        return self.frozen_map(x, ids)(x, ids)

    def risk_map(self, x: Tensor, ids: Tensor) -> RiskMap | NotDifferentiable:
        """The map while these rows are sent together: a payload depends on its batch, and so does its risk."""
        options = self.options
        if not options.iterations or options.infer == "bottom":
            return super().risk_map(x, ids)
        if options.transmit == "surrogate":
            return NotDifferentiable("a surrogate is sent, and how it is made from a row has no Jacobian")
        if options.mask == "hard_topk":
            return NotDifferentiable("a mask chooses what is sent by the row, and changes by jumps")
        adapting = options.infer == "adapt" and len(x) >= ADAPTED_ROWS
        adaptation = self._adaptation_for(x)
        if adapting and options.batch_norm != "eval" and drops(adaptation.generator):
            return NotDifferentiable("the generator drops values at random while it is adapted to a batch")
        sent = min(len(x), adaptation.rows)
        given = f"the generator as it is adapted to {sent} rows that are sent together"
        if not adapting:
            given = "the generator as the last training exchange left it"
        return RiskMap(self.frozen_map(x, ids), given=given)

    def diagnose(self, x: Tensor, ids: Tensor) -> dict[str, float]:
        """How far these rows' payloads move and in which way, after an adaptation that leaves no trace."""
        if not self.options.iterations or len(x) < ADAPTED_ROWS:
            return {}
        adaptation = self._adaptation_for(x)
        with adaptation.preserving_state():
            adaptation.draws.manual_seed(0)
            x = adaptation.to_memory_format(x)
            surrogate = self.surrogate_of(x, ids, 0)
            with adaptation.preserving_state():  # of a copy: the bottom's statistics and dropout stay
                adaptation.reset_to_bottom()
                before = adaptation.payload(x)
            self._start(adaptation, learning=False)
            done = self._adapt(adaptation, x, surrogate) or self.iterations()
            return {**diagnostics(adaptation, before, x, surrogate), "iterations": float(done)}

    # Parts.

    def surrogate_of(self, x: Tensor, ids: Tensor, step: int) -> Tensor:
        """The surrogates of these training rows."""
        if self.options.refresh == "epoch" and self.surrogates is not None:
            made = self.surrogates.maker.make(x, seeding.generator(self.seed, self.epoch, step))
        else:
            made = self.stored_surrogates(ids)
        if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
            return made.contiguous(memory_format=torch.channels_last)
        return made

    def _adaptation_for(self, x: Tensor) -> Adaptation:
        if self.adaptation is None:
            with eval_mode(self.bottom), torch.no_grad():
                shape = tuple(self.bottom(x[:2]).shape[1:])
            self._build(shape, len(x))
        assert self.adaptation is not None
        return self.adaptation

    def _build(self, shape: tuple[int, ...], rows: int) -> None:
        runner = self.run_bottom
        # Compiled is one size of a batch, and a party that lacks some ids has another size in every batch.
        compiled = runner.compiled and (self.data is None or self.data.present_count() == len(self.data))
        self.adaptation = Adaptation(
            *(self.bottom, shape, rows, self.options, self.seed, runner.precision, runner.graphs, compiled)
        )

    def _draw(self) -> int:
        return int(torch.randint(2**62, (), generator=self.rng))

    def state(self) -> dict[str, Any]:
        if not self.options.iterations:
            return {}
        return {
            "seed": self.seed,
            "seen": self.seen,
            "done": self.done,
            "adapted_epoch": self.adapted_epoch,
            "offset": self.offset,
            "adaptation": self.adaptation.state() if self.adaptation is not None else None,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        self.seed, self.seen, self.done = state["seed"], state["seen"], state["done"]
        self.adapted_epoch = state["adapted_epoch"]
        self.adaptation, kept = None, state["adaptation"]
        if kept is not None:
            self._build(tuple(kept["shape"]), kept["rows"])
            assert self.adaptation is not None
            self.adaptation.load_state(kept)
        device = device_of(self.bottom)
        self.offset = None if state["offset"] is None else [tensor.to(device) for tensor in state["offset"]]
