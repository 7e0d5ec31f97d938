"""What a passive party measures of its own defense: diagnostics after an epoch, and the risk of inversion."""

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
from veracausa.defenses.protocols import Diagnoses
from veracausa.defenses.risk_map import ROUGH, NotDifferentiable, RiskMap, fault
from veracausa.metrics.risk import RiskUnavailable, risk_of, rows_at_once
from veracausa.models.runner import fetch_rows

Risk = dict[str, float | str | None]
_MEAN_ROWS = 4096


class EpochDiagnostics:
    """Measures on fixed samples of the party's own training rows; changes nothing, and nothing of it is sent."""

    def __init__(self, job: Job, name: str, rows: Part, defense: Defense) -> None:
        self.job, self.name, self.part, self.defense = job, name, rows, defense
        self.last: dict[str, Any] = {}
        """The newest `diagnostics` and `risk`; a checkpoint keeps them for the summary."""
        self.seconds = 0.0
        """What the newest risk took; no part of `last`, so that equal runs have equal checkpoints."""
        self._mean: Tensor | None = None

    def epoch(self, epoch: int) -> dict[str, Any]:
        """The `diagnostics` and the `risk` after this epoch; what is empty or not due is left out.

        The partners wait meanwhile, so that only rows of few values are measured, and not longer than they have
        patience for. Larger ones have to wait for the end.
        """
        found: dict[str, Any] = {}
        if diagnostics := self._diagnostics():
            found["diagnostics"] = diagnostics
        risk = self.job.risk
        due = bool(risk.every) and (epoch % risk.every == 0 or epoch == self.job.training.epochs)
        if due and self._mean_row().numel() <= risk.values:
            found["risk"] = self._risk(risk.samples, self.job.runtime.timeout / 4)
        found = {name: numbers for name, numbers in found.items() if numbers}
        self.last.update(found)
        return found

    def end(self) -> Risk:
        """The risk of the trained model, unless the job wants none or the last epoch has told it."""
        if not (self.job.risk.every and self.job.risk.exact) or self.last.get("risk"):
            return {}
        risk = self._risk(self.job.risk.exact)
        if risk:
            self.last["risk"] = risk
        return risk

    def summary(self) -> dict[str, Any]:
        """What a summary says: the newest of everything, and what the risk took."""
        took = {"risk_seconds": round(self.seconds, 2)} if "risk" in self.last and self.seconds else {}
        return {**self.last, **took}

    def _diagnostics(self) -> dict[str, float | None]:
        if not isinstance(self.defense, Diagnoses):
            return {}
        ids = self._sample("diagnostics", self.job.training.batch_size)
        if not len(ids):
            return {}
        return _finite(self.defense.diagnose(fetch_rows(self.part, ids, self.job.runtime), ids))

    def _risk(self, samples: int, patience: float = math.inf) -> Risk:
        """InvRE of the first `samples` rows of a batch; a payload may depend on those it is sent with."""
        ids = self._sample("risk samples", max(samples, self.job.training.batch_size))
        if not len(ids):
            return {}
        started = time.monotonic()
        try:
            found = self._measured(ids[: self.job.training.batch_size], samples, started + patience)
        except RiskUnavailable as reason:
            return {"invre": None, "unavailable": str(reason)}
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            return {"invre": None, "unavailable": f"the Jacobian has no singular values: {error}"}
        finally:
            self.seconds = time.monotonic() - started
        return found

    def _measured(self, batch: Tensor, samples: int, until: float) -> Risk:
        rows = fetch_rows(self.part, batch, self.job.runtime)
        answer = self.defense.risk_map(rows, batch)
        if isinstance(answer, NotDifferentiable):
            raise RiskUnavailable(answer.reason)
        with torch.no_grad():
            sent = answer.transmit(rows[:samples], batch[:samples])
        if not sent.isfinite().all():
            raise RiskUnavailable("some payloads are not finite")
        # A map that is not what is sent would give a number that says nothing, or worse, "safe".
        if wrong := fault(self.defense, answer, rows, batch, ROUGH):
            raise RiskUnavailable(wrong)
        found: list[dict[str, float]] = []
        at_once = rows_at_once(rows[0].numel(), sent[0].numel())
        for some in torch.split(torch.arange(min(samples, len(batch))), at_once):
            if found and time.monotonic() > until:
                break
            found.append(self._risk_at(answer, rows[some], batch[some]))
        return {**_mean_risk(found), **({"given": answer.given} if answer.given else {})}

    def _risk_at(self, answer: RiskMap, rows: Tensor, ids: Tensor) -> dict[str, float]:
        with torch.no_grad():
            noise = answer.noise(answer.transmit(rows, ids), rows)
        return risk_of(lambda given: answer.transmit(given, ids), rows, self._mean_row(), noise=noise)

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


def _mean_risk(found: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """One risk of several, each over some rows: their means; the rows are added up."""
    rows = sum(risk["samples"] for risk in found)
    means = {name: sum(risk["samples"] * risk[name] for risk in found) / rows for name in found[0]}
    return {**means, "samples": rows}
