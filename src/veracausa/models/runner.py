"""How a module is run: device, memory format, precision, mode, and CUDA graphs that replay its launches."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from veracausa.errors import InputError
from veracausa.models.layers import Dropout

if TYPE_CHECKING:
    from veracausa.config import Runtime
    from veracausa.data.vertical import Part


Precision = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which models run: mixed precision, or nothing."""


SMALL_ROW = 4000
"""Numbers of a row below which one thread is as fast as several."""
UNCOMPILED = "VERACAUSA_UNCOMPILED"
"""Set to 1, nothing is compiled, whatever `runtime.compile` says: a way around a compiler that fails."""


def may_compile() -> bool:
    """Whether the environment lets anything be compiled."""
    return os.environ.get(UNCOMPILED, "0") in ("", "0")


def device_is_lost() -> bool:
    """Whether an error has ended this process's GPU: every later call fails then, and only a new process has one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


@contextmanager
def threads_for(runtime: Runtime, *shapes: Sequence[int]) -> Iterator[None]:
    """As many threads as the job says; else one where rows of these shapes are small, and all where one is large.

    Waking a second thread for little costs what it brings. On a busy machine waiting for it takes minutes.
    """
    before = torch.get_num_threads()
    small = all(math.prod(shape) < SMALL_ROW for shape in shapes)
    torch.set_num_threads(runtime.cpu_threads or (1 if small else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(name: str) -> torch.device:
    """The device that a job's `runtime.device` means here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"runtime.device: {name!r} is no device; use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"runtime.device: {name!r} is wanted, and PyTorch sees no GPU here; use auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"runtime.device: {name!r} is wanted, and there are {torch.cuda.device_count()} GPUs here")
    return device


def device_of(module: nn.Module) -> torch.device:
    """Where its weights lie; the CPU where it has none."""
    weight = next(module.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def wire_dtype(runtime: Runtime) -> torch.dtype:
    """The type in which payloads and gradients cross."""
    return torch.bfloat16 if runtime.precision == "bf16" else torch.float32


def to_device(module: nn.Module, runtime: Runtime, device: torch.device) -> nn.Module:
    """The module on the device, its weights in the memory format of the job."""
    memory_format = torch.channels_last if runtime.channels_last else torch.preserve_format
    return module.to(device=device, memory_format=memory_format)  # type: ignore[call-overload, no-any-return]


def fetch_rows(part: Part, ids: Tensor, runtime: Runtime) -> Tensor:
    """The features at these positions, in the memory format of the job."""
    rows = part.take(ids)
    channels_last = runtime.channels_last and rows.ndim == 4
    return rows.contiguous(memory_format=torch.channels_last) if channels_last else rows


def precision_context(runtime: Runtime, device: torch.device) -> Precision:
    """What makes the context in which models run: mixed precision or nothing."""
    if runtime.precision == "bf16":
        # Without the weight cache: a graph must not depend on copies that an earlier pass left.
        return partial(torch.autocast, device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext


class Runner:
    """Calls a module as the job wants it run; without a `runtime`, as it is.

    An exchange makes three parties launch a few hundred small kernels each from one interpreter. A GPU waits for the
    interpreter most of the time. The runner therefore captures the first full training batch, forward and backward, and
    replays it for later batches of its shape. Anything else, a last short batch or evaluation, runs as usual.
    """

    graphs = True
    """Whether whoever computes with the module may capture CUDA graphs."""
    compiled = False
    """Whether it may compile what it computes."""
    precision: Precision = staticmethod(nullcontext)

    def __init__(
        self, module: nn.Module, runtime: Runtime | None = None, device: torch.device | None = None, rows: int = 0
    ) -> None:
        self.module, self.rows = module, 0
        self._shape: torch.Size | None = None
        self._graph: Callable[[Tensor], Tensor] | None = None
        if runtime is None:
            return
        device = device or device_of(module)
        self.precision = precision_context(runtime, device)
        self.graphs, self.compiled = runtime.cuda_graphs, runtime.compile and may_compile()
        # Our dropout draws its mask on the CPU, from the party's generator: a graph would replay one mask for ever.
        drawn = any(isinstance(child, Dropout) for child in module.modules())
        if device.type == "cuda" and runtime.cuda_graphs and not drawn:
            self.rows = rows

    def __call__(self, x: Tensor) -> Tensor:
        if self.rows and len(x) == self.rows and self.module.training and torch.is_grad_enabled():
            if self._graph is None:
                self._capture(x)
            if x.shape == self._shape and self._graph is not None:
                return self._graph(x)
        with self.precision():
            output: Tensor = self.module(x)
        return output

    def _capture(self, x: Tensor) -> None:
        sample = x.detach().clone().requires_grad_(x.requires_grad)
        kept = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        # A capture runs on a stream of its own; that its gradients then meet weights of the usual one is meant.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        captured = torch.cuda.make_graphed_callables(_InPrecision(self.module, self.precision), (sample,))
        self._graph = cast(Callable[[Tensor], Tensor], captured)
        for buffer, before in kept:  # the warm-up before a capture must not count as training
            buffer.copy_(before)
        self._shape = x.shape


class _InPrecision(nn.Module):
    """The module and its precision as one thing to capture; the module itself stays as it is."""

    def __init__(self, module: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.module, self.precision = module, precision

    def forward(self, x: Tensor) -> Tensor:
        with self.precision():
            output: Tensor = self.module(x)
        return output


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; every module gets back the mode it had, not the model's mode."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


Step = Callable[[], None]
Result = TypeVar("Result")
WARM_UP = 3
"""Steps that run as usual before a capture: libraries choose their kernels, an optimiser makes its state."""


@contextmanager
def side_stream(side: torch.cuda.Stream) -> Iterator[None]:
    """The block runs on `side`: after the work that was launched before it, and before what is launched after it."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def record(graph: torch.cuda.CUDAGraph, step: Callable[[], Result], pool: Any = None) -> Result:
    """Record the launches of `step` into `graph`. What it returns is a buffer that each replay fills."""
    # Other parties may work in other threads of this process; what they do must not spoil the capture.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        return step()


def capture(step: Step, device: torch.device, keep: Sequence[Tensor] = (), warm_up: int = WARM_UP) -> Step:
    """The step to call in place of `step`: the replay of its capture on a GPU, the step itself on a CPU.

    A capture needs warm-up steps, which are real steps. `keep` gets its values back afterwards. An optimiser makes its
    state only in the first warm-up, so that state cannot be in `keep`: see `reset_optimizer_state`. A step that no
    graph can hold, say because it looks at its own values, runs as it is.
    """
    if device.type != "cuda":
        return step
    # Detached: a clone that hangs in the autograd graph of a parameter breaks the capture.
    before = [tensor.detach().clone() for tensor in keep]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), cudnn_benchmark():
        with side_stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            for _ in range(warm_up):
                step()
        replay: Step
        try:
            record(graph, step)
            replay = _Replay(graph, step)
        except RuntimeError:  # the warm-up went well, so it is the capture that failed
            replay = step
    with torch.no_grad():
        for tensor, value in zip(keep, before, strict=True):
            tensor.copy_(value)
    return replay


def reset_optimizer_state(optimizer: torch.optim.Optimizer) -> None:
    """The optimiser as if it had never stepped; in place, because a captured step reads from this memory."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


class _Replay:
    """A graph together with the step it was made of, whose buffers it reads and writes."""

    def __init__(self, graph: torch.cuda.CUDAGraph, step: Step) -> None:
        self.graph, self.step = graph, step

    def __call__(self) -> None:
        self.graph.replay()


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN try its algorithms inside the block; what is captured there will be replayed some thousand times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


"""From every passive party's payload, and the active party's own rows where it holds any, to the top's outputs."""


def eval_output(model: nn.Module, x: Tensor) -> Tensor:
    """The model's output in eval mode, differentiable in `x`: its weights are constants, its statistics stay."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    with eval_mode(model):
        output: Tensor = functional_call(model, weights, (x,))
    return output
