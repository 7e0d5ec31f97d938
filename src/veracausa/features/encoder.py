"""The network of a feature map: the job's model without its last unit, giving one vector a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.models.cut import build_whole
from veracausa.models.registry import ModelOptions
from veracausa.models.runner import Precision, eval_mode, precision_context
from veracausa.models.units import infer_output

if TYPE_CHECKING:
    from veracausa.config import Runtime

Tick = Callable[[], None]
"""Called every now and then during long work, to keep the party's links alive."""
ROWS = 256
"""So many rows go through a network at once where nothing is learnt."""


class GlobalPool(nn.Module):
    """The mean over all places of a map; a vector as it is, anything else flattened."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) if x.ndim == 4 else x.flatten(1)


def build_encoder(options: ModelOptions | None, shape: tuple[int, ...], rng: torch.Generator) -> tuple[nn.Module, int]:
    """The model's units but the last one, with maps averaged to a vector, and the vector's length."""
    if options is None:
        raise InputError("features: this map trains a network; name one in the job's [model]")
    # How many outputs the last unit has does not matter: it goes.
    units = list(build_whole(options, shape, 2, rng))
    if len(units) < 2:
        raise InputError(f"model {options.name!r} has one unit, and features come from what lies before the last one")
    encoder = nn.Sequential(*units[:-1], GlobalPool())
    width = infer_output(encoder, shape, options.name, "a sample").shape[1]
    return encoder, int(width)


def build_projector(arriving: int, widths: tuple[int, ...], rng: torch.Generator) -> nn.Sequential:
    """Linear layers with batch normalisation and ReLU between them; it is dropped after training."""
    from veracausa.seeding import drawing_from

    layers: list[nn.Module] = []
    with drawing_from(rng):
        for width in widths[:-1]:
            layers += [nn.Linear(arriving, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
            arriving = width
        layers.append(nn.Linear(arriving, widths[-1]))
    return nn.Sequential(*layers)


def precision_of(runtime: Runtime | None, device: torch.device) -> Precision:
    """The context that networks of a fit run in, as the job's runtime says."""
    return nullcontext if runtime is None else precision_context(runtime, device)


def laid_out(x: Tensor, runtime: Runtime | None) -> Tensor:
    """The pictures in the memory format of the job."""
    channels_last = runtime is not None and runtime.channels_last and x.ndim == 4
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def outputs(
    network: nn.Module, blocks: Iterator[Tensor], device: torch.device, tick: Tick = lambda: None
) -> Iterator[Tensor]:
    """What the network gives for each block of rows in eval mode, float32 on the CPU; in full precision."""
    with eval_mode(network), torch.no_grad():
        for block in blocks:
            tick()
            yield network(block.to(device)).float().cpu()


def load_weights(network: nn.Module, weights: Any, what: str) -> None:
    """Take over kept weights; those of another network are refused."""
    try:
        network.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{what}: its saved state is of another network ({first}); load the one of this job") from None


class Reduction:
    """Fewer features: the leading principal components of a party's own rows, their spreads drawn nearer to each other.

    With `whitening` w a component of variance v is divided by v^(w/2). The components are then rotated by a fixed
    random matrix, so that all features are about equally wide: whoever scales each to spread 1 keeps the proportions.
    """

    def __init__(self, mean: Tensor, matrix: Tensor) -> None:
        self.mean, self.matrix = mean, matrix

    @classmethod
    def of(cls, values: Tensor, width: int, whitening: float, rng: torch.Generator) -> Reduction:
        """Fitted on these (n, features) values."""
        values = values.float()
        mean = values.mean(0)
        components, variances = principal_components(values - mean, width, rng)
        return cls.of_components(mean, components, variances, whitening, rng)

    @classmethod
    def of_components(
        cls,
        mean: Tensor,
        components: Tensor,
        variances: Tensor,
        whitening: float,
        rng: torch.Generator,
        scale: Tensor | None = None,
    ) -> Reduction:
        """From components that were found already; of columns that were multiplied by `scale`, where they were."""
        floor = max(float(variances[0]) * 1e-9, 1e-30)
        scaled = components * variances.clamp_min(floor).pow(-whitening / 2)
        rotation = torch.linalg.qr(torch.randn(scaled.shape[1], scaled.shape[1], generator=rng))[0]
        matrix = scaled @ rotation
        return cls(mean, matrix if scale is None else matrix * scale[:, None])

    def __call__(self, values: Tensor) -> Tensor:
        return (values - self.mean) @ self.matrix

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean, "matrix": self.matrix}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Reduction:
        mean, matrix = state["mean"], state["matrix"]
        if mean.ndim != 1 or matrix.ndim != 2 or len(mean) != len(matrix):
            raise InputError("the saved feature map's reduction does not fit together; put an intact copy there")
        return cls(mean, matrix)


def principal_components(
    centred: Tensor, width: int, rng: torch.Generator, tick: Tick = lambda: None, rounds: int = 3
) -> tuple[Tensor, Tensor]:
    """(features, k) leading directions of centred (n, features) values, and their variances; k is `width` at most.

    Where the covariance is large its leading part is found by subspace iteration (Halko et al., 2011).
    """
    n, features = centred.shape
    width = min(width, features, max(1, n - 1))
    if features <= max(1024, 2 * width):
        basis = torch.eye(features)
    else:
        basis = torch.randn(features, min(features, width + 64), generator=rng)
        for _ in range(rounds):
            spanned = torch.zeros_like(basis)
            for block in torch.split(centred, 1024):
                spanned.addmm_(block.T, block @ basis)
                tick()
            basis = torch.linalg.qr(spanned)[0]
    small = in_blocks(centred, basis, tick)
    variances, vectors = torch.linalg.eigh((small.T @ small).double() / n)
    order = torch.arange(len(variances) - 1, len(variances) - 1 - width, -1)
    return basis @ vectors[:, order].float(), variances[order].clamp_min(0).float()


def in_blocks(values: Tensor, matrix: Tensor, tick: Tick = lambda: None) -> Tensor:
    """values @ matrix, some rows at a time."""
    found = values.new_empty(len(values), matrix.shape[1])
    for start in range(0, len(values), 1024):
        torch.mm(values[start : start + 1024], matrix, out=found[start : start + 1024])
        tick()
    return found


def as_array(values: Tensor, what: str) -> Array:
    """(n, width) float64 features, all finite."""
    array: Array = values.double().numpy()
    if not np.isfinite(array).all():
        raise InputError(f"{what}: some features of these rows are not finite; look at the rows")
    return array
