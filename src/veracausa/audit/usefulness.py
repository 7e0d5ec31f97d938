"""How much of what the task needs a run's payloads still carry: the cosine to the causal proxy of its own model."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.audit.victim import Victim
from veracausa.data.vertical import VerticalDataset
from veracausa.metrics.representations import NEIGHBOURS, causal_cosine, pooled
from veracausa.models.cut import build_bottom, build_top, join, payload_shape
from veracausa.models.runner import eval_mode, fetch_rows, precision_context, to_device
from veracausa.runs.folder import Run, write_json
from veracausa.training.checkpoints import saved_model
from veracausa.training.split.halves import Adapters
from veracausa.training.split.program import Schema

_FILE = "causal_cosine.json"
_MOST = 2000
_AT_ONCE = 256
_STAGES = 2


def measure_usefulness(run: Run, dataset: VerticalDataset, resume: bool = False) -> None:
    """Write the cosine to the causal proxy on up to 2,000 test rows that all parties hold, or why there is none."""
    if (resume and kept_usefulness(run)) or dataset.task != "classification":
        return
    labels = dataset.parties[dataset.active].test.labels
    everyone = torch.arange(len(dataset.parties[dataset.active].test))
    holders = [data.test for data in dataset.parties.values() if data.shape]
    ids = everyone[torch.stack([part.present(everyone) for part in holders]).all(0)][:_MOST]
    if labels is None or len(ids) <= NEIGHBOURS:
        return
    model = Whole(run, dataset)
    transmitted, clean, stages, outputs = model.test(ids)
    try:
        found = causal_cosine(
            transmitted, clean, stages, outputs.softmax(1), labels[ids.to(labels.device)].to(outputs.device)
        )
    except ValueError as error:
        write_json(run.path / _FILE, {"unavailable": str(error)})
        return
    write_json(run.path / _FILE, {**vars(found), "samples": len(ids)})


def kept_usefulness(run: Run) -> dict[str, Any]:
    """What `measure_usefulness` wrote; empty where it did not."""
    try:
        found = json.loads((run.path / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Whole:
    """A finished run's whole model in one place, which only somebody who holds the folder has."""

    def __init__(self, run: Run, dataset: VerticalDataset) -> None:
        self.job, schema = run.job, Schema.of(dataset)
        self.join = schema.join
        self.victims = {name: Victim(run, dataset.parties[name], schema) for name in dataset.passive}
        active, kept = dataset.parties[dataset.active], saved_model(run, dataset.active)
        self.device = next(iter(self.victims.values())).device
        self.precision = precision_context(self.job.runtime, self.device)
        self.active = active.test.to(self.device)
        rng = seeding.generator(self.job.seed)
        shapes = {name: victim.party.shape for name, victim in self.victims.items()}
        expected = {name: victim.party.expected for name, victim in self.victims.items()}
        own: list[tuple[int, ...]] = []
        self.bottom: nn.Module | None = None
        if active.shape:
            bottom = build_bottom(self.job.model, active.shape, schema.outputs, rng)
            own = [payload_shape(bottom, active.shape)]
            self.bottom = to_device(bottom, self.job.runtime, self.device)
            self.bottom.load_state_dict(kept["bottom"])
        top = build_top(self.job.model, [*own, *expected.values()], self.join, schema.outputs, rng)
        self.top = to_device(top, self.job.runtime, self.device)
        self.top.load_state_dict(kept["top"])
        self.adapters = Adapters(self.job, shapes, expected, self.device, rng)
        self.adapters.load_state(kept)
        units = len(top)
        # Spread over the top, its last unit left out: that one gives the logits.
        self.stages = sorted(
            {units * (number + 1) // (_STAGES + 1) for number in range(_STAGES)} & set(range(units - 1))
        )

    @torch.no_grad()
    def test(self, ids: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """(n, d) what is sent and what would be without the defense, clean features at the depths, and the logits."""
        rng = seeding.generator(self.job.seed, "audit", "usefulness")
        sent = [victim.payloads("test", ids, 1, rng, as_sent=True).flatten(1) for victim in self.victims.values()]
        parts = [self._clean(some) for some in torch.split(ids, _AT_ONCE)]
        clean, logits = torch.cat([part[0] for part in parts]), torch.cat([part[2] for part in parts])
        depths = [torch.cat(depth) for depth in zip(*(part[1] for part in parts), strict=True)]
        return torch.cat(sent, 1), clean, depths, logits

    def _clean(self, ids: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        with self.precision():
            own = {name: self._bottom(victim, ids) for name, victim in self.victims.items()}
            inputs = self.adapters.predicted(own)
            if self.bottom is not None:
                with eval_mode(self.bottom):
                    inputs.insert(0, self.bottom(fetch_rows(self.active, ids, self.job.runtime)))
            values = join(inputs, self.join)
            depths = [pooled(values).float()]
            with eval_mode(self.top):
                for number, unit in enumerate(self.top.children()):
                    values = unit(values)
                    if number in self.stages:
                        depths.append(pooled(values).float())
        return torch.cat([payload.float().flatten(1) for payload in own.values()], 1), depths, values.float()

    def _bottom(self, victim: Victim, ids: Tensor) -> Tensor:
        bottom = victim.party.bottom
        with eval_mode(bottom):
            sent: Tensor = bottom(fetch_rows(victim.party.parts["test"], ids, self.job.runtime))
        return sent
