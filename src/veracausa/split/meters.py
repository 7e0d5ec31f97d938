"""What a passive party measures of its own defense at the end of an epoch: diagnostics and the risk of inversion."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from veracausa import seeding
from veracausa.config import Job
from veracausa.data.vertical import Part
from veracausa.defenses.base import Defense
from veracausa.metrics.risk import RiskUnavailable, risk_of
from veracausa.split.placement import rows_of

Risk = dict[str, float | str]
_RISK_ROWS, _MEAN_ROWS, _LEAST_RANK = 8, 4096, 64


class Meters:
    """Measures on fixed samples of the party's own training rows; changes nothing, and nothing of it is sent."""

    def __init__(self, job: Job, name: str, rows: Part, defense: Defense) -> None:
        self.job, self.name, self.part, self.defense = job, name, rows, defense
        self.last: dict[str, Any] = {}
        """The newest `diagnostics` and `risk`; a checkpoint keeps them for the summary."""
        self._mean: Tensor | None = None

    def epoch(self, epoch: int) -> dict[str, Any]:
        """The `diagnostics` and the `risk` after this epoch; what is empty or not due is left out."""
        found: dict[str, Any] = {}
        if diagnostics := self._diagnostics():
            found["diagnostics"] = diagnostics
        risk = self.job.risk
        if risk.every and (epoch % risk.every == 0 or epoch == self.job.training.epochs):
            # The partners wait meanwhile: with a large model fewer rows are measured, rather than taken for silence.
            rank = risk.rank or max(_LEAST_RANK, -(-self._mean_row().numel() // 10))
            found["risk"] = self._risk(risk.samples, rank, self.job.runtime.timeout / 4)
        found = {name: numbers for name, numbers in found.items() if numbers}
        self.last.update(found)
        return found

    def end(self) -> Risk:
        """The exact risk of the trained model, where the job asks for one."""
        risk = self._risk(self.job.risk.exact, None) if self.job.risk.exact else {}
        if risk:
            self.last["risk"] = risk
        return risk

    def _diagnostics(self) -> dict[str, float | None]:
        if type(self.defense).diagnose is Defense.diagnose:
            return {}
        ids = self._sample("diagnostics", self.job.training.batch_size)
        if not len(ids):
            return {}
        return _finite(self.defense.diagnose(rows_of(self.part, ids, self.job.runtime), ids))

    def _risk(self, samples: int, rank: int | None, patience: float = math.inf) -> Risk:
        ids = self._sample("risk samples", samples)
        rng = seeding.generator(self.job.seed, self.name, "risk")
        found: list[dict[str, float]] = []
        started = time.monotonic()
        for some in torch.split(ids, _RISK_ROWS):
            if found and time.monotonic() - started > patience:
                break
            try:
                found.append(self._risk_at(some, rank, rng))
            except RiskUnavailable as reason:
                return {"unavailable": str(reason)}
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                return {"unavailable": f"the Jacobian has no singular values: {error}"}
        return _mean_risk(found)

    def _risk_at(self, ids: Tensor, rank: int | None, rng: torch.Generator) -> dict[str, float]:
        rows = self.part.take(ids)
        with torch.no_grad():
            sent = self.defense.transmitted(rows, ids)
            if not sent.isfinite().all():
                raise RiskUnavailable("some payloads are not finite")
            noise = self.defense.noise_power(sent, rows)
        return risk_of(self.defense.held(rows, ids), rows, self._mean_row(), rank=rank, rng=rng, noise=noise)

    def _sample(self, purpose: str, count: int) -> Tensor:
        """The same positions every time, only such as the party holds."""
        held = self.part.present(torch.arange(len(self.part))).nonzero().squeeze(1)
        drawn = torch.randperm(len(held), generator=seeding.generator(self.job.seed, self.name, purpose))
        return held[drawn[:count]]

    def _mean_row(self) -> Tensor:
        if self._mean is None:
            held = self.part.present(torch.arange(len(self.part))).nonzero().squeeze(1)
            # In pieces: as floats, all pixels at once would take four times what the data set does.
            sums = [self.part.take(ids).sum(0, dtype=torch.float64) for ids in torch.split(held, _MEAN_ROWS)]
            self._mean = (torch.stack(sums).sum(0) / len(held)).float()
        return self._mean


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """As JSON can say them: None for what is not finite."""
    return {name: float(value) if math.isfinite(value) else None for name, value in numbers.items()}


def _mean_risk(found: Sequence[Mapping[str, float]]) -> Risk:
    """One risk of several, each over some rows: their means; the rows are added up, one capped row caps all."""
    if not found:
        return {}
    rows = sum(risk["samples"] for risk in found)
    combined: Risk = {}
    for name in found[0]:
        values = [risk[name] for risk in found]
        if name == "k_capped":
            combined[name] = max(values)
        elif name == "samples":
            combined[name] = rows
        else:
            combined[name] = sum(risk["samples"] * risk[name] for risk in found) / rows
    return combined
