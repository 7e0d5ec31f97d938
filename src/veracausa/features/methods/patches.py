"""Patches: how much of a dictionary's patches each part of a picture holds. No labels, no GPU, minutes on a core.

After Coates and Ng (2011): whitened patches, a dictionary by spherical k-means, soft thresholds, sums over a grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.errors import InputError
from veracausa.events import ProgressCallback
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, OwnRows
from veracausa.features.encoder import Reduction, Tick, as_array, in_blocks, principal_components
from veracausa.registry import Options

VALUES = 1 << 21
"""So many activations are made at once: 8 MiB, about what a core's cache holds."""
WIDEST = 1000
USUAL_SIZE = 6
FLAT = 4e-5
"""Added to the variance of a patch: what varies by less than a step or two of eight bits is noise."""


class PatchOptions(Options):
    name: str = "patches"
    size: int | None = Field(None, ge=2, le=16)
    """Height and width of a patch. None: 6, or one less than the shorter side of pictures that are small."""
    dictionary: int = Field(800, ge=8, le=16_384)
    """Patches of the dictionary. Twice as many take twice the time."""
    grid: tuple[int, int] = (3, 2)
    """Rows and columns of the grid over whose cells activations are averaged."""
    active: float = Field(0.25, gt=0, lt=1)
    """The share of the dictionary that a patch of the picture is similar enough to."""
    whitening: float = Field(0.01, gt=0)
    """Added to the variances of patches before they are whitened; the larger, the less fine detail counts."""
    mirror: bool | None = None
    """Give a picture and its mirror image the same features. None: colour pictures alone, as grey ones may be text."""
    power: float = Field(0.5, gt=0, le=1)
    """Averages are raised to it: below 1, that something is there counts more than how often."""
    width: int | None = Field(None, ge=1)
    """Principal components that are kept. None: as many as the rows bear in sums over rows, 1000 at most."""
    levelling: float = Field(0.5, ge=0, le=1)
    """0 keeps the components' spreads, 1 makes all of them equal."""
    patches: int = Field(100_000, ge=100)
    """The dictionary is learnt from so many patches, drawn at random."""
    rounds: int = Field(8, ge=0, le=100)
    """Of k-means."""
    sample: int = Field(20_000, ge=100)
    """Components are found on so many rows, drawn at random, where there are more."""


def patch_size(options: PatchOptions, sides: Sequence[int]) -> int:
    """Height and width of a patch of pictures of these sides."""
    return options.size or max(2, min(USUAL_SIZE, min(sides, default=0) - 1))


@feature_maps.register("patches", PatchOptions)
class Patches(FeatureMap):
    """Principal components of how similar the parts of a picture are to a dictionary of small patches."""

    pictures: ClassVar[bool] = True
    options: PatchOptions

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.shape: tuple[int, ...] = ()
        self.whitener = self.bias = self.words = torch.zeros(0)
        self.threshold = 0.0
        self.reduction: Reduction | None = None
        self.device = torch.device("cpu")

    def check(self, rows: OwnRows) -> None:
        super().check(rows)
        height, width = rows.features.shape[2:]
        size = patch_size(self.options, (height, width))
        if min(height, width) < size:
            raise InputError(
                f"features.size: a patch of {size} does not fit into pictures of {height}×{width}; take a smaller one"
            )

    def fit(self, rows: OwnRows, context: FitContext) -> Array | None:
        """Learn the map. Where all rows are in the sample their features are there as well, and need no second pass."""
        self.check(rows)
        if len(rows) < 2:
            raise InputError(f"features: {len(rows)} rows are too few to learn a feature map from")
        options = self.options
        seed = int(torch.randint(2**62, (), generator=context.rng))
        self.shape, self.device = tuple(rows.features.shape[1:]), context.device
        learnt = self._learn_dictionary(rows, seed, context)
        chosen = torch.arange(len(rows))
        if len(rows) > options.sample:
            chosen = torch.randperm(len(rows), generator=seeding.generator(seed, "sample"))[: options.sample]
        pooled = self._pooled_sample(rows, chosen, context, learnt)
        width = options.width or max(16, min(WIDEST, len(rows) // 20 - 16))
        self.reduction, found = standardised_components(
            pooled, width, options.levelling, seeding.generator(seed, "components"), lambda: context.progress(0.97)
        )
        context.progress(1.0)
        return as_array(found, f"features {options.name!r}") if len(chosen) == len(rows) else None

    def _learn_dictionary(self, rows: OwnRows, seed: int, context: FitContext) -> float:
        """Whitening, words and threshold; the share of the fit that this was."""
        options, rng = self.options, seeding.generator(seed, "dictionary")
        chosen = torch.randperm(len(rows), generator=rng)[: options.patches]
        each = -(-options.patches // len(chosen))
        found = []
        for block in torch.split(chosen, 512):
            patches = self._patches(_pixels(rows.features[block]))
            at = torch.randint(patches.shape[1], (len(block), each), generator=rng)
            found.append(patches.gather(1, at[:, :, None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
            context.progress(0.0)
        patches = torch.cat(found)[: options.patches]
        mean = patches.mean(0)
        centred = patches - mean
        variances, vectors = torch.linalg.eigh((centred.T @ centred / len(centred)).double())
        whitener = (vectors * (variances.clamp_min(0) + options.whitening).rsqrt()) @ vectors.T
        self.whitener = whitener.float().to(self.device)
        self.bias = (-mean @ whitener.float()).to(self.device)
        directions = F.normalize(torch.addmm(self.bias, patches.to(self.device), self.whitener), dim=1)
        share = 0.15
        self.words = spherical_k_means(
            directions, options.dictionary, options.rounds, rng, lambda done: context.progress(share * done)
        )
        similar = directions[:2048] @ self.words.T
        # The k-th largest in place of a quantile, which has a limit on how many values it takes.
        rank = max(1, round(options.active * similar.numel()))
        self.threshold = float(similar.flatten().topk(rank).values[-1])
        return share

    def _pooled_sample(self, rows: OwnRows, chosen: Tensor, context: FitContext, done: float) -> Tensor:
        """(rows of the sample, cells × words) on the CPU."""
        pooled = torch.empty(len(chosen), self.options.grid[0] * self.options.grid[1] * len(self.words))
        at = 0
        for block in torch.split(chosen, self._rows_at_once()):
            pooled[at : at + len(block)] = self._pooled(_pixels(rows.features[block])).cpu()
            at += len(block)
            context.progress(done + (0.95 - done) * at / len(chosen))
        return pooled

    def _rows_at_once(self) -> int:
        size = patch_size(self.options, self.shape[1:])
        places = (self.shape[1] - size + 1) * (self.shape[2] - size + 1)
        return max(1, VALUES // (places * max(len(self.words), 1)))

    def _patches(self, x: Tensor) -> Tensor:
        """(n, places, values) every patch of each picture, without its mean and of about unit variance."""
        size = patch_size(self.options, self.shape[1:])
        windows = x.unfold(2, size, 1).unfold(3, size, 1)
        patches = windows.permute(0, 2, 3, 1, 4, 5).reshape(len(x), -1, x.shape[1] * size**2)
        patches = patches - patches.mean(2, keepdim=True)
        return patches.mul_((patches.square().mean(2, keepdim=True) + FLAT).rsqrt_())

    def _pooled(self, x: Tensor) -> Tensor:
        """(n, cells × words) of each picture, as a mean with its mirror image where the settings say so."""
        x = x.to(self.device)
        found = self._one_side(x)
        mirror = self.options.mirror
        if x.shape[1] == 3 if mirror is None else mirror:
            found = found.add_(self._one_side(x.flip(3))).div_(2)
        return found.pow_(self.options.power)

    def _one_side(self, x: Tensor) -> Tensor:
        patches = self._patches(x)
        n, places, _ = patches.shape
        directions = F.normalize(torch.addmm(self.bias, patches.flatten(0, 1), self.whitener), dim=1)
        threshold = self.words.new_tensor(-self.threshold).expand(len(self.words))
        active = torch.addmm(threshold, directions, self.words.T).clamp_min_(0)
        size = patch_size(self.options, self.shape[1:])
        cells = pooling(self.shape[1] - size + 1, self.shape[2] - size + 1, self.options.grid).to(x)
        return (cells @ active.view(n, places, -1)).flatten(1)

    def map(self, rows: Tensor) -> Array:
        if self.reduction is None:
            raise InputError(f"features {self.options.name!r}: the map was not fitted yet")
        if tuple(rows.shape[1:]) != self.shape:
            raise InputError(f"features {self.options.name!r}: rows of shape {tuple(rows.shape[1:])}, not {self.shape}")
        blocks: Iterator[Tensor] = iter(torch.split(rows, self._rows_at_once())) if len(rows) else iter(())
        found = [self.reduction(self._pooled(block).cpu()) for block in blocks]
        return as_array(torch.cat([torch.zeros(0, self.width), *found]), f"features {self.options.name!r}")

    @property
    def width(self) -> int:
        return 0 if self.reduction is None else self.reduction.width

    def state(self) -> dict[str, Any]:
        if self.reduction is None:
            raise InputError(f"features {self.options.name!r}: the map was not fitted yet")
        return {
            "shape": list(self.shape),
            "whitener": self.whitener,
            "bias": self.bias,
            "words": self.words,
            "threshold": self.threshold,
            "reduction": self.reduction.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        what = f"features {self.options.name!r}: the saved map"
        try:
            shape = tuple(int(size) for size in state["shape"])
            whitener, bias, words = state["whitener"], state["bias"], state["words"]
            threshold, reduction = float(state["threshold"]), Reduction.from_state(state["reduction"])
            values = shape[0] * patch_size(self.options, shape[1:]) ** 2
            fits = whitener.shape == (values, values) and bias.shape == (values,) and words.shape[1:] == (values,)
            fits = fits and len(reduction.mean) == len(words) * self.options.grid[0] * self.options.grid[1]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(f"{what} cannot be read ({error}); put an intact copy there") from None
        if not fits or len(shape) != 3:
            raise InputError(f"{what} is of other settings than features has; load it with those of its job")
        self.shape, self.threshold, self.reduction = shape, threshold, reduction
        self.whitener, self.bias, self.words = (tensor.to(self.device) for tensor in (whitener, bias, words))


def spherical_k_means(
    directions: Tensor, count: int, rounds: int, rng: torch.Generator, progress: ProgressCallback
) -> Tensor:
    """(count, values) unit vectors, the mean directions of the clusters of (n, values) unit vectors."""
    order = torch.randperm(len(directions), generator=rng).to(directions.device)
    words = directions[order[:count]].clone()
    for done in range(rounds):
        sums = torch.zeros_like(words)
        for block in torch.split(directions, 8192):
            sums.index_add_(0, (block @ words.T).argmax(1), block)
            progress(done / rounds)
        lengths = sums.norm(dim=1, keepdim=True)
        # A cluster that nothing is nearest to keeps its word.
        words = torch.where(lengths > 0, sums / lengths.clamp_min(1e-12), words)
    return words


def pooling(height: int, width: int, grid: tuple[int, int]) -> Tensor:
    """(cells, places) the matrix that averages places of a height × width map over the cells of a grid."""

    def shares(places: int, cells: int) -> Tensor:
        edges = [round(places * cell / cells) for cell in range(cells + 1)]
        found = torch.zeros(cells, places)
        for cell, (start, end) in enumerate(itertools.pairwise(edges)):
            # Where there are more cells than places, some have the place beside them.
            start = min(start, places - 1)
            found[cell, start : max(end, start + 1)] = 1 / max(end - start, 1)
        return found

    return torch.kron(shares(height, grid[0]), shares(width, grid[1]))


def standardised_components(
    values: Tensor, width: int, levelling: float, rng: torch.Generator, tick: Tick
) -> tuple[Reduction, Tensor]:
    """The reduction of (n, features) values to principal components of their standardised columns, and the reduced.

    `values` are changed in place: they are large.
    """
    mean = values.mean(0)
    values -= mean
    spread = values.square().mean(0).sqrt()
    # A word that hardly ever occurs must not be blown up to the size of the others.
    scale = 1 / spread.clamp_min(max(float(spread.max()) * 1e-3, 1e-12))
    values *= scale
    components, variances = principal_components(values, width, rng, tick)
    reduction = Reduction.of_components(mean, components, variances, levelling, rng, scale)
    return reduction, in_blocks(values, reduction.matrix / scale[:, None], tick)


def _pixels(x: Tensor) -> Tensor:
    return x.to(torch.float32).div_(255) if x.dtype == torch.uint8 else x.to(torch.float32)
