"""The generator G and the masker ω, and the inner iterations that adapt them to one batch (Eqs. 11-19)."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from veracausa import seeding
from veracausa.defenses.causshield import losses
from veracausa.defenses.causshield import masker as dimensions
from veracausa.defenses.causshield.batch_norm import SplitBatchNorm, held_batch
from veracausa.defenses.causshield.captured import Captured
from veracausa.defenses.causshield.masker import build_masker, gumbel, iterative_softmax, top_k, upper_count
from veracausa.defenses.causshield.options import CausShieldOptions
from veracausa.defenses.causshield.turns import Turn
from veracausa.models.layers import bind_dropout
from veracausa.models.runner import Precision, device_is_lost, device_of

log = logging.getLogger(__name__)

PLATEAU = 3
SIZES = 64
"""So many sizes of a batch are captured; a party that lacks some ids has another size in every batch."""


class Adaptation:
    """G starts as a copy of the bottom; each inner iteration moves G, then ω, on one batch and its surrogates.

    On a GPU the iteration is captured once for every size of a training batch and replayed: launching its few hundred
    kernels from Python takes several times as long as running them.
    """

    def __init__(
        self,
        bottom: nn.Module,
        shape: tuple[int, ...],
        rows: int,
        options: CausShieldOptions,
        seed: int,
        precision: Precision = nullcontext,
        graphs: bool = False,
        compiled: bool = False,
    ) -> None:
        self.bottom, self.options, self.shape, self.rows, self.precision = bottom, options, shape, rows, precision
        self.reading = dimensions.choose_reading(options.dimensions, shape, rows)
        self.count = dimensions.count(shape, self.reading, options.patch)
        self.device = device_of(bottom)
        wide = any(p.ndim == 4 and not p.is_contiguous() for p in bottom.parameters())
        self.layout = torch.channels_last if wide else torch.preserve_format
        self.draws = torch.Generator(self.device)
        self.generator = bind_dropout(copy.deepcopy(bottom), self.draws)
        self._copies = list(zip(_by_type(self.generator), _by_type(bottom), strict=True))
        self.parameters = [p for p in self.generator.parameters() if p.requires_grad]
        self.masker: nn.Module | None = None
        if options.masker and self.count > 1:
            with seeding.drawing_from(seeding.generator(seed, "masker")):
                masker = build_masker(shape, self.reading, options.patch, options.logit_bn, self.draws)
            self.masker = masker.to(device=self.device, memory_format=self.layout)  # type: ignore[call-overload]
        scoring = [] if self.masker is None else list(self.masker.parameters())
        self.trained = [*self.parameters, *scoring]
        self.optimizer = torch.optim.SGD(
            [
                group
                for group in (
                    {"params": self.parameters, "lr": options.lr_generator},
                    {"params": scoring, "lr": options.lr_masker},
                )
                if group["params"]
            ],
            momentum=options.momentum,
            fused=True,
        )
        for parameter in self.trained:  # made now, in place for good: a captured iteration needs fixed addresses
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.momenta = [self._momentum(parameter) for parameter in self.parameters]
        self.masker_momenta = [self._momentum(parameter) for parameter in scoring]
        self._statistics = _has_batch_statistics(self.generator)
        self._views: SplitBatchNorm | None = None
        self._views_split = False
        self.turns = [Turn(self._of_both, self.trained)]
        if options.players == "alternating" and self.masker is not None:
            self.turns = [Turn(self._of_the_generator, self.parameters), Turn(self._of_the_masker, scoring)]
        if compiled and options.sampler == "gumbel_topk_st":
            self._compile()
        self.loss = torch.zeros((), device=self.device)
        self._graphs = graphs and self.device.type == "cuda"
        self._captured: dict[int, Captured] = {}

    def _compile(self) -> None:
        """Fuse what lies between the convolutions; both views pass at once where their statistics can be kept apart."""
        if self.options.batch_norm == "train_separate" and self._statistics:
            views = SplitBatchNorm(self.generator)
            self._views = views if views.possible else None
        wide = self.reading != "channel" and self.count > self.rows
        for turn in self.turns:
            turn.compile(wide)

    def _momentum(self, parameter: nn.Parameter) -> Tensor:
        momentum: Tensor = self.optimizer.state[parameter]["momentum_buffer"]
        return momentum

    # Where the generator starts.

    def reset_to_bottom(self) -> None:
        """Make G the bottom model again, in place, with fresh momentum."""
        with torch.no_grad():
            for mine, others in self._copies:
                torch._foreach_copy_(mine, others)
        if self.momenta:
            torch._foreach_zero_(self.momenta)

    def pull_towards_bottom(self, share: float) -> None:
        """Move G's weights this share of the way to the bottom's."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self.generator.parameters()), list(self.bottom.parameters()), share)

    def offset(self) -> list[Tensor]:
        """What adaptation added to the bottom's weights."""
        with torch.no_grad():
            return list(torch._foreach_sub(list(self.generator.parameters()), list(self.bottom.parameters())))

    def add(self, offset: list[Tensor]) -> None:
        """Add such an offset to G's weights."""
        with torch.no_grad():
            torch._foreach_add_(list(self.generator.parameters()), offset)

    def merge(self) -> None:
        """Make the bottom's weights those of G (the merging update rule)."""
        with torch.no_grad():
            torch._foreach_copy_(list(self.bottom.parameters()), list(self.generator.parameters()))

    # The inner loop.

    def adapt(self, x: Tensor, surrogate: Tensor, iterations: int) -> int:
        """Run the inner iterations on one batch, and return how many there were."""
        self._set_mode(True)
        past: list[float] = []
        for done in range(1, iterations + 1):
            self.iterate(x, surrogate)
            if self.options.schedule == "plateau":
                past.append(float(self.loss))
                if len(past) > PLATEAU and past[-1 - PLATEAU] - past[-1] < self.options.tolerance * abs(past[-1]):
                    return done
        return iterations

    def iterate(self, x: Tensor, surrogate: Tensor) -> None:
        """One inner iteration; `loss` is the generator's before it."""
        if self._graphs and len(x) not in self._captured and len(self._captured) < SIZES:
            self._capture(x, surrogate)
        if len(x) in self._captured:
            self._captured[len(x)].iterate(x, surrogate)
        else:
            self.loss.copy_(self.iteration(x, surrogate))

    def _capture(self, x: Tensor, surrogate: Tensor) -> None:
        """Capture batches of this size; where that fails and the GPU goes on, nothing is captured any more."""
        try:
            self._captured[len(x)] = Captured(self, x, surrogate, next(iter(self._captured.values()), None))
        except RuntimeError as error:
            if device_is_lost():
                raise
            log.warning("causshield: iterations run one kernel at a time, they cannot be captured (%s)", error)
            self._graphs = False

    def iteration(self, x: Tensor, surrogate: Tensor) -> Tensor:
        """Every turn's step; the generator's loss before it."""
        noise = self._noise(len(x))
        losses_before = []
        for turn in self.turns:
            with torch.enable_grad():
                loss, gradients = self._slopes(turn, x, surrogate, noise)
            self._step(turn.moved, gradients)
            losses_before.append(loss.detach())
        return losses_before[0]

    def _step(self, moved: Sequence[nn.Parameter], gradients: tuple[Tensor | None, ...]) -> None:
        """One step of the optimiser for these weights; the others stay, and so does their momentum."""
        for parameter in self.trained:
            parameter.grad = None
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.grad = _laid_like(gradient, parameter)
        self.optimizer.step()

    def _slopes(
        self, turn: Turn, x: Tensor, surrogate: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """The turn's loss and its weights' gradients, compiled where there is such a size."""
        objective = turn.objective if len(x) == self.rows else turn.plain  # compiled for one size
        try:
            with self._views_of(objective != turn.plain):
                loss, lowered = objective(x, surrogate, noise)
                return loss, torch.autograd.grad(lowered, turn.moved, allow_unused=True)
        except RuntimeError as error:
            if not turn.ask_for_less(error):
                raise
            return self._slopes(turn, x, surrogate, noise)

    @contextmanager
    def _views_of(self, compiled: bool) -> Iterator[None]:
        """Both views in one pass while what is compiled runs; as separate operations that costs more than it saves."""
        if self._views is None or not compiled:
            yield
            return
        self._views.set_views(2)
        self._views_split = True
        try:
            yield
        finally:
            self._views.set_views(1)
            self._views_split = False

    def _of_both(self, x: Tensor, surrogate: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """The generator's loss (Eq. 19), and its sum with the masker's (Eqs. 17-18).

        One backward pass serves both players: where the generator is meant the masker's weights are held, where the
        masker is meant the representations are.
        """
        views = self._views_of_both(x, surrogate)
        loss = self._generator_loss(*views)
        return (loss, loss) if self.masker is None else (loss, loss + self._masker_loss(views, noise))

    def _of_the_generator(self, x: Tensor, surrogate: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Eq. 19 alone, where players step in turn."""
        loss = self._generator_loss(*self._views_of_both(x, surrogate))
        return loss, loss

    def _of_the_masker(self, x: Tensor, surrogate: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Eqs. 17-18 alone, on what the generator gives after its step."""
        with torch.no_grad():
            views = self._views_of_both(x, surrogate)
        loss = self._masker_loss(views, noise)
        return loss, loss

    def _views_of_both(self, x: Tensor, surrogate: Tensor) -> tuple[Tensor, Tensor]:
        with self.precision():
            return self._both(x, surrogate)

    def _generator_loss(self, r: Tensor, other: Tensor) -> Tensor:
        """Eq. 19, the masker's weights held."""
        options = self.options
        a, b = self.matrix(r), self.matrix(other)
        beta = losses.off_diagonal_weight(options.beta, len(a), self.count)
        loss = options.trade_off * losses.decomposition(a, b, beta)
        if self.masker is None:
            return loss
        with self.precision():
            held = {name: p.detach() for name, p in self.masker.named_parameters()}
            scored = [functional_call(self.masker, held, (r,))]
            if options.score_on == "both":
                scored.append(functional_call(self.masker, held, (other,)))
        for view in scored:
            loss = loss + losses.generator_score(torch.sigmoid(view.float()))
        return loss

    def _masker_loss(self, views: tuple[Tensor, Tensor], noise: Tensor | None) -> Tensor:
        """Eqs. 17-18 of both views, the representations held."""
        assert self.masker is not None
        with self.precision():
            logits = [self.masker(view.detach()) for view in views]
        terms = []
        for i, view in enumerate(logits):
            upper = self._sample(view, None if noise is None else noise[i])
            terms.append(losses.masker_loss(torch.sigmoid(view.float()), upper))
        return terms[0] + terms[1]

    def _both(self, x: Tensor, surrogate: Tensor) -> tuple[Tensor, Tensor]:
        """G of the rows and of their surrogates; batch statistics are each view's own unless the reading joins them."""
        if self.options.batch_norm == "train_separate" and self._statistics and not self._views_split:
            return self.generator(x), self.generator(surrogate)
        r, other = self.generator(torch.cat([x, surrogate])).chunk(2)
        return r, other

    def _noise(self, rows: int) -> Tensor | None:
        """The Gumbel noise of an iteration's two masks, drawn before it: a compiled function cannot draw."""
        if self.masker is None or self.options.sampler != "gumbel_topk_st":
            return None
        return gumbel(torch.Size((2, rows, self.count)), self.draws)

    def _sample(self, logits: Tensor, noise: Tensor | None) -> Tensor:
        k = upper_count(self.options.tau, self.count)
        if noise is None:
            return iterative_softmax(logits, k, self.options.temperature, self.draws)
        return top_k(logits, k, self.options.temperature, noise)

    # What is sent.

    def payload(self, x: Tensor) -> Tensor:
        """G's output for the rows, in the mode of the inner loop; detached."""
        self._set_mode(True)
        if len(x) in self._captured:
            return self._captured[len(x)].payload(x)
        with torch.no_grad(), self.precision():
            return self.generator(x)  # type: ignore[no-any-return]

    def payload_eval(self, x: Tensor) -> Tensor:
        """G's output with the statistics it gathered, not the batch's; differentiable."""
        self._set_mode(False)
        try:
            return self.generator(x)  # type: ignore[no-any-return]
        finally:
            self._set_mode(True)

    def frozen_modules(self, x: Tensor, adapting: bool) -> tuple[nn.Module, nn.Module | None]:
        """Copies of G and, where a mask is sent, of ω, that give for these rows what is sent; their statistics held."""
        self._set_mode(adapting)
        generator = held_batch(self.generator, x)
        self._set_mode(True)
        if self.options.mask == "none" or self.masker is None:
            return generator, None
        with torch.no_grad():
            r = generator(x)
        self.masker.train(adapting)
        masker = held_batch(self.masker, r)
        self.masker.train()
        return generator, masker

    def mask(self, r: Tensor, training: bool = True) -> Tensor:
        """Ones where a representation's highest-scored dimensions are; no noise."""
        assert self.masker is not None
        self.masker.train(training)
        chosen = self.chosen(self.masker, r)
        self.masker.train()
        return chosen

    def chosen(self, masker: nn.Module, r: Tensor) -> Tensor:
        """The mask that this masker, in its present mode, gives a representation."""
        with torch.no_grad(), self.precision():
            logits = masker(r.detach())
        chosen = top_k(logits, upper_count(self.options.tau, self.count), self.options.temperature, None)
        return dimensions.spread(chosen, self.shape, self.reading, self.options.patch).to(r.dtype)

    def matrix(self, r: Tensor) -> Tensor:
        """The representations as (samples, dimensions)."""
        return dimensions.as_matrix(r, self.reading, self.options.patch)

    def to_memory_format(self, x: Tensor) -> Tensor:
        """Rows in the memory format of the bottom's weights."""
        if x.ndim == 4 and self.layout is torch.channels_last:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    # State.

    @contextmanager
    def preserving_state(self) -> Iterator[None]:
        """Whatever happens to G and ω inside the block is undone afterwards: for inference and diagnostics."""
        held = self._tensors()
        # Detached: a clone with a graph would tie the weights' gradients to this stream, and break a capture.
        kept = [tensor.detach().clone() for tensor in held]
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, before in zip(held, kept, strict=True):
                    tensor.copy_(before)

    def state(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "rows": self.rows,
            "generator": self.generator.state_dict(),
            "momenta": self.momenta,
            "masker": self.masker.state_dict() if self.masker is not None else None,
            "masker_momenta": self.masker_momenta,
            "loss": self.loss,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.generator.load_state_dict(state["generator"])
        if self.masker is not None:
            self.masker.load_state_dict(state["masker"])
        mine = [*self.momenta, *self.masker_momenta, self.loss]
        for tensor, kept in zip(mine, [*state["momenta"], *state["masker_momenta"], state["loss"]], strict=True):
            tensor.copy_(kept)

    def _tensors(self) -> list[Tensor]:
        modules = [self.generator, *([self.masker] if self.masker is not None else [])]
        held = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        return [*held, *self.momenta, *self.masker_momenta, self.loss]

    def _set_mode(self, training: bool) -> None:
        training = training and self.options.batch_norm != "eval"
        if self.generator.training != training:
            self.generator.train(training)


def _laid_like(gradient: Tensor | None, parameter: Tensor) -> Tensor | None:
    """The gradient in the weights' memory layout: compiled code may give another, and fused optimisers do not look."""
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _by_type(module: nn.Module) -> list[list[Tensor]]:
    """A model's tensors, floating ones and others apart: tensors of one type are copied by one launch."""
    tensors = [*module.parameters(), *module.buffers()]
    parts = [[t for t in tensors if t.is_floating_point() == wanted] for wanted in (True, False)]
    return [part for part in parts if part]


def _has_batch_statistics(module: nn.Module) -> bool:
    return any(isinstance(child, nn.modules.batchnorm._BatchNorm) for child in module.modules())
