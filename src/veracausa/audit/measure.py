"""An attack's guesses beside the truth: scores, pictures, and rows of a table in the columns' own values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.metrics import images
from veracausa.metrics.advantage import Advantage
from veracausa.metrics.leakage import ColumnErrors, blind_mse, grey, leakage, mean_colour
from veracausa.metrics.lpips import LpipsNetwork, Unavailable, load_lpips, lpips
from veracausa.metrics.success import reidentify, success_rates

MOST_CANDIDATES = 1000
_LPIPS_ON_CPU = 200
"""Rows whose LPIPS is taken where a network passes a few dozen pictures a second."""


@dataclass(frozen=True)
class Measured:
    """The scores of one attack on one party's rows of one split."""

    scores: Mapping[str, float]
    """Means: `mse`, `leakage`, `blind_mse`; of pictures `psnr`, `ssim`, `affine_mse`, `luminance_ssim`, `lpips` too."""
    blind: str
    """The name of the best guess without the payload."""
    samples: Mapping[str, Tensor]
    """The same scores a sample."""
    trivial: Mapping[str, float] = field(default_factory=dict)
    """The MSE of every guess that needs no payload, by name."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """`advantage` over the blind guess, `success` by definition, `identified` among so many candidates, of a table the
    leakage of its `columns` and the one read `best`, of pictures their `attributes`, and why there is no LPIPS."""


def measure(
    guess: Tensor,
    truth: Tensor,
    blind: Mapping[str, Tensor],
    pixels: bool,
    groups: Sequence[int] | None = None,
    columns: Sequence[str] = (),
) -> Measured:
    """Score `guess` against `truth` and against the best of the blind guesses; `columns` names a table's columns."""
    samples = {"mse": images.mse(guess, truth)}
    others: dict[str, Any] = {"identified": _identified(guess, truth)}
    if pixels:
        samples["psnr"] = images.psnr_of_mse(samples["mse"])
        samples["ssim"] = images.ssim(guess, truth)
        samples["affine_mse"] = images.affine_aligned_mse(guess, truth)
        if truth.shape[1] in (1, 3):
            samples["luminance_ssim"] = images.luminance_ssim(guess, truth)
            found = _lpips(guess, truth)
            others |= {"lpips_unavailable": found} if isinstance(found, str) else {}
            samples |= {} if isinstance(found, str) else {"lpips": found}
        rates = success_rates(guess, truth)
        others["success"] = {name: {"attack": rate.attack, "grey": rate.blind} for name, rate in rates.items()}
    without, name = blind_mse(blind, truth)
    scores = {score: float(values.nanmean()) for score, values in samples.items()}
    if pixels:
        leaked = leakage(scores["mse"], without)
        advantage = Advantage.of(samples["mse"], images.mse(blind[name], truth))
    else:
        errors = ColumnErrors.of(guess, truth, blind, groups)
        leaked, advantage = errors.in_all(), Advantage.of(*errors.by_row())
        others |= _columns(errors, columns)
    others["advantage"] = vars(advantage)
    scores |= {"leakage": leaked, "blind_mse": without}
    return Measured(scores, name, samples, mean_errors(blind, truth), others)


def trivial_guesses(auxiliary: Tensor, count: int) -> dict[str, Tensor]:
    """For pictures: what takes no knowledge of the victim at all, for the table. None of them is the blind guess."""
    some = mean_colour(auxiliary, count)
    return {"grey": grey(some), "mean colour": some}


def mean_errors(guesses: Mapping[str, Tensor], truth: Tensor) -> dict[str, float]:
    """The MSE of every guess."""
    return {name: float((guess - truth).square().mean()) for name, guess in guesses.items()}


def _columns(errors: ColumnErrors, names: Sequence[str]) -> dict[str, Any]:
    """Every column's leakage by its name, most of it first, and the column that is read best."""
    found = errors.by_column()
    named = list(names) if len(names) == len(found) else [f"column {number}" for number in range(1, len(found) + 1)]
    known = sorted(
        ((leaked, name) for name, leaked in zip(named, found, strict=True) if leaked is not None), reverse=True
    )
    columns = [{"column": name, "leakage": leaked} for leaked, name in known]
    open_ = [{"column": name, "leakage": None} for name, leaked in zip(named, found, strict=True) if leaked is None]
    return {"columns": columns + open_, **({"best": columns[0]} if columns else {})}


def _identified(guess: Tensor, truth: Tensor) -> dict[str, float]:
    """Whether a reconstruction points at its own row among all of them, and what chance would give."""
    count = min(len(truth), MOST_CANDIDATES)
    found = reidentify(guess[:count], truth[:count])
    return {"candidates": float(count), "top_1": found.rate(1), "top_5": found.rate(5), "chance": found.chance(1)}


def _lpips(guess: Tensor, truth: Tensor) -> Tensor | str:
    """(n,) LPIPS, NaN where it was not taken; or why there is none."""
    network = _network(str(truth.device))
    if isinstance(network, str):
        return network
    count = len(truth) if truth.device.type == "cuda" else min(len(truth), _LPIPS_ON_CPU)
    values = truth.new_full((len(truth),), float("nan"))
    values[:count] = lpips(guess[:count], truth[:count], network).detach().to(values)
    return values


@lru_cache(maxsize=2)
def _network(device: str) -> LpipsNetwork | str:
    try:
        return load_lpips("alex", device)
    except Unavailable as missing:
        return missing.reason


SHOWN = 6
_WIDEST = 40
"""Characters of a value: free text must not fill a page."""


def example_rows(
    preprocessing: Mapping[str, Any] | None, positions: Tensor, truth: Tensor, guess: Tensor, errors: Tensor
) -> dict[str, Any] | None:
    """A few training victims, from the one read best to the one read worst: columns, originals, what was read.

    `errors` has one a row. None where nobody knows what the numbers of a row stand for.
    """
    if not preprocessing or not len(truth):
        return None
    order = errors.argsort().tolist()
    count = min(SHOWN, len(order))
    chosen = [order[round(place * (len(order) - 1) / max(1, count - 1))] for place in range(count)]
    rows = []
    for row in dict.fromkeys(chosen):
        original, read = (values_of(preprocessing, numbers[row].tolist()) for numbers in (truth, guess))
        rows.append({"position": int(positions[row]), "original": original, "read": read})
    return {"columns": [column["name"] for column in preprocessing["columns"]], "rows": rows}


def values_of(preprocessing: Mapping[str, Any], numbers: list[float]) -> list[str]:
    """One row's numbers as its columns' values: a number in its own unit, the likeliest category, or `missing`."""
    values, at = [], 0
    for column in preprocessing["columns"]:
        if column["kind"] == "numeric":
            spread = float(column.get("std", 1))
            own = float(column.get("mean", 0)) + spread * numbers[at]
            own = 0.0 if abs(own) < 1e-5 * spread else own  # a zero that was standardised comes back as 6e-08
            gone = bool(column["missing"]) and numbers[at + 1] > 0.5
            values.append("missing" if gone else f"{own:.4g}")
            at += 1 + bool(column["missing"])
            continue
        names = [*map(str, column["values"]), *(["other"] if column.get("other") else [])]
        names += ["missing"] if column["missing"] else []
        likely = max(range(len(names)), key=lambda place: numbers[at + place]) if names else None
        # A value never seen in training is all zeros.
        unseen = likely is None or not any(numbers[at : at + len(names)])
        values.append("not seen in training" if unseen or likely is None else names[likely][:_WIDEST])
        at += len(names)
    return values


MOST_BYTES = 8 << 20
_SHOWN = 12
_HEIGHT = 64


@dataclass(frozen=True)
class Gallery:
    """Training victims as bytes, in the order the audit drew them."""

    positions: Tensor
    truth: Tensor
    guess: Tensor
    blind: Tensor
    mse: Tensor

    @classmethod
    def of(cls, positions: Tensor, truth: Tensor, guess: Tensor, blind: Tensor, mse: Tensor) -> Gallery:
        """As many as fit into a few megabytes; the audit draws victims at random, so the first are as good as any."""
        count = max(1, min(len(truth), MOST_BYTES // max(1, 3 * truth[0].numel())))
        truth, guess, blind = (_bytes(pictures[:count]) for pictures in (truth, guess, blind))
        return cls(positions[:count].cpu(), truth, guess, blind, mse[:count].float().cpu())

    def write(self, path: Path) -> None:
        """As one safetensors file that a report reads without torch."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in vars(self).items()}
        atomic_write(path, save(tensors))

    def write_sheet(self, path: Path) -> None:
        """Originals above, what the attack made of them below, as a PNG; from the best read to the worst."""
        try:
            from PIL import Image
        except ImportError:
            return
        if not len(self.truth) or self.truth.shape[1] not in (1, 3):
            return
        # Evenly: the first alone would flatter the attack.
        order = self.mse.argsort()
        shown = order[torch.linspace(0, len(order) - 1, min(_SHOWN, len(order))).round().long()]
        scale = max(1, _HEIGHT // self.truth.shape[2])
        rows = [
            torch.cat([*torch.nn.functional.pad(pictures[shown], (1, 1, 1, 1), value=255)], 2)
            for pictures in (self.truth, self.guess)
        ]
        grid = torch.cat(rows, 1).repeat_interleave(scale, 1).repeat_interleave(scale, 2)
        pixels = grid[0].numpy() if grid.shape[0] == 1 else grid.permute(1, 2, 0).contiguous().numpy()
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)


def _bytes(pictures: Tensor) -> Tensor:
    return pictures.detach().clamp(0, 1).mul(255).round().to("cpu", torch.uint8)
