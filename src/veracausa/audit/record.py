"""What an audit leaves in the run's folder: `attacks/NAME/`, pictures, and its keys in `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from veracausa.attacks import attacks
from veracausa.metrics.images import ssim_window
from veracausa.registry import Options
from veracausa.runs.folder import Run, write_json

if TYPE_CHECKING:
    from veracausa.audit.run import Outcome

_HEADLINE = ("mse", "psnr", "ssim", "leakage")
_PICTURE_HEIGHT = 64


def write_audit(run: Run, options: Mapping[str, Options], outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """Write everything; gives the keys it laid over the summary. Attacks of an earlier audit stay beside them."""
    found = {name: attack_summary(outcomes[name]) for name in options}
    for name, own in options.items():
        folder = run.path / "attacks" / name
        folder.mkdir(parents=True, exist_ok=True)
        settings = own.model_dump(mode="json")
        granted = list(attacks.get(name).needs.words)  # type: ignore[attr-defined]
        write_json(folder / "metrics.json", {"attack": name, "granted": granted, "settings": settings, **found[name]})
        _write_samples(folder / "samples.parquet", outcomes[name])
        for outcome in outcomes[name]:
            if outcome.pictures is not None:
                _write_pictures(run.path / "images" / f"{name}-{outcome.party}.png", *outcome.pictures)
    summary = run.summary
    together = {**summary.get("attacks", {}), **found}
    strongest = max(together, key=lambda name: together[name]["leakage"])
    added = {
        "attacks": together,
        "blind": {"mse": together[strongest]["blind_mse"]},
        "strongest": {"attack": strongest, "leakage": together[strongest]["leakage"]},
    }
    write_json(run.path / "summary.json", {**summary, **added})
    return added


def attack_summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One attack's entry: the worst victim's scores on training rows, and every party's."""
    worst = max(outcomes, key=lambda outcome: outcome.leakage)
    scores = worst.measured["train"].scores
    return {
        **{score: scores[score] for score in _HEADLINE if score in scores},
        "blind_mse": scores["blind_mse"],
        "party": worst.party,
        "parties": {outcome.party: _party_summary(outcome) for outcome in outcomes},
    }


def _party_summary(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        split: {**measured.scores, "blind": measured.blind, "samples": len(outcome.sample.victims[split])}
        for split, measured in outcome.measured.items()
    }
    entry["auxiliary"] = len(outcome.sample.auxiliary)
    entry["payloads_averaged"] = outcome.draws
    entry["seconds"] = outcome.seconds
    entry.update(outcome.notes)
    if outcome.pictures is not None:
        entry["ssim_window"] = ssim_window(*outcome.pictures[0].shape[-2:])
    if outcome.strength:
        entry["strength"], entry["settled"] = outcome.strength, outcome.settled
    return entry


def _write_samples(path: Path, outcomes: Sequence[Outcome]) -> None:
    """A row a victim, where polars is at hand."""
    try:
        import polars as pl
    except ImportError:
        return
    frames = []
    for outcome in outcomes:
        for split, measured in outcome.measured.items():
            count = len(outcome.sample.victims[split])
            columns: dict[str, Any] = {"party": [outcome.party] * count, "split": [split] * count}
            columns["position"] = outcome.sample.victims[split].tolist()
            columns.update({name: values.cpu().numpy() for name, values in measured.samples.items()})
            frames.append(pl.DataFrame(columns))
    pl.concat(frames, how="diagonal").write_parquet(path)


def _write_pictures(path: Path, truth: Tensor, guess: Tensor) -> None:
    """Originals above, what the attack made of them below; from the best read to the worst."""
    try:
        from PIL import Image
    except ImportError:
        return
    if not len(truth) or truth.shape[1] not in (1, 3):
        return
    scale = max(1, _PICTURE_HEIGHT // truth.shape[2])
    rows = [torch.cat([*torch.nn.functional.pad(strips, (1, 1, 1, 1), value=1.0)], 2) for strips in (truth, guess)]
    grid = torch.cat(rows, 1).clamp(0, 1).mul(255).round().byte()
    grid = grid.repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    pixels = grid[0].numpy() if grid.shape[0] == 1 else grid.permute(1, 2, 0).contiguous().numpy()
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(path)
