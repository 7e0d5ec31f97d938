"""One training step of several networks at once, of fixed shapes, so that a GPU can replay it from a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veracausa.attacks.base import LiveAttack
from veracausa.models.layers import bind_dropout
from veracausa.models.runner import capture, reset_optimizer_state
from veracausa.seeding import drawing_from


class AdversarialTrainingAttack(LiveAttack):
    """A live attack that trains several networks at once, a step an exchange; this is what a resume needs of it."""

    modules: Sequence[nn.Module]
    optimizers: Sequence[torch.optim.Optimizer]
    figures: Tensor
    """Losses of the last step, for the notes."""
    exchanges: int = 0
    batch: int = 0
    """The rows of the first exchange: the size of every step."""
    step: Callable[[], None] | None = None

    def state(self) -> dict[str, Any]:
        return {
            "modules": [module.state_dict() for module in self.modules],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "exchanges": self.exchanges,
            "batch": self.batch,
            "figures": self.figures.clone(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        for module, kept in zip(self.modules, state["modules"], strict=True):
            module.load_state_dict(kept)
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.exchanges, self.batch = state["exchanges"], state["batch"]
        self.figures.copy_(state["figures"])
        self.step = None  # a captured step reads from the optimisers' old memory


def build_module(make: Callable[[], nn.Module], rng: torch.Generator, device: torch.device) -> nn.Module:
    """A network with weights from `rng`, on the device, in train mode; on a CPU its dropout draws from `rng` too.

    On a GPU dropout keeps the device's own generator: no other can be part of a captured step without being named to
    the graph.
    """
    with drawing_from(rng):
        module = make()
    module = module.to(device).train()
    if device.type == "cuda":
        return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
    return bind_dropout(module, rng)


def adam(modules: Iterable[nn.Module], lr: float, device: torch.device) -> torch.optim.Adam:
    """Adam over the modules' weights, with a state that a graph can hold."""
    weights = [weight for module in modules for weight in module.parameters()]
    return torch.optim.Adam(weights, lr=lr, capturable=device.type == "cuda")


def sgd_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """One step down the loss; what it flows through on the way, such as the top model, gets no gradient."""
    optimizer.zero_grad(set_to_none=True)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    loss.backward(inputs=weights)  # type: ignore[no-untyped-call]
    optimizer.step()


def captured_training(
    step: Callable[[], None],
    device: torch.device,
    modules: Iterable[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    also: Sequence[Tensor] = (),
) -> Callable[[], None]:
    """The step as a graph on a GPU; networks and optimisers are afterwards as they were before its warm_up."""
    # A capture runs on a stream of its own; that its gradients then meet weights of the usual one is meant.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    keep = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    untouched = [optimizer for optimizer in optimizers if not optimizer.state]
    for optimizer in optimizers:  # those that come from a checkpoint
        keep += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    replay = capture(step, device, [*keep, *also])
    for optimizer in untouched:
        reset_optimizer_state(optimizer)
    return replay


def precision(device: torch.device) -> torch.autocast:
    """Mixed precision on a GPU, nothing on a CPU; without the weight cache, which no graph must depend on."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)


def pad_batch(values: Tensor, rows: int) -> Tensor:
    """Exactly so many rows: a short last batch is repeated, a long one cut."""
    if len(values) == rows:
        return values
    return values[torch.arange(rows, device=values.device) % len(values)]


def real_loss(logits: Tensor) -> Tensor:
    """BCE towards "real"."""
    return F.binary_cross_entropy_with_logits(logits.float(), torch.ones_like(logits, dtype=torch.float32))


def fake_loss(logits: Tensor) -> Tensor:
    """BCE towards "fake"."""
    return F.binary_cross_entropy_with_logits(logits.float(), torch.zeros_like(logits, dtype=torch.float32))
