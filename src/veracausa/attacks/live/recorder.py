"""Writes down what the active party receives from its partners while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from veracausa.attacks.base import Exchange
from veracausa.attacks.transcript import Head, TranscriptWriter
from veracausa.config import Job
from veracausa.models.runner import wire_dtype
from veracausa.runs.store import Store
from veracausa.training.hooks import ActivePartyHook, FederationInfo


@dataclass(frozen=True)
class Recording:
    """Makes the recorder where the active party runs; `shapes`: the rows of each party to record."""

    job: Job
    shapes: Mapping[str, tuple[int, ...]]
    classes: int
    """How many; 0 in a regression."""

    def __call__(self, store: Store) -> ActivePartyHook:
        return Recorder(self, store)


class Recorder(ActivePartyHook):
    """A transcript a passive party; a checkpoint knows how much of each was on disk."""

    def __init__(self, recording: Recording, store: Store) -> None:
        self.recording, self.folder = recording, store.folder / "transcript"
        self.options, self.resume = recording.job.transcript, store.start_step is not None

    def begin(self, meeting: FederationInfo) -> None:
        self.moments = named_moments(self.recording.job, meeting.steps)
        dtype = str(wire_dtype(self.recording.job.runtime)).removeprefix("torch.")
        self.present = meeting.present
        self.writers = {}
        for name, shape in self.recording.shapes.items():
            head = Head(
                victim=name,
                payload_shape=meeting.shapes[name],
                dtype=dtype,
                row_shape=shape,
                task="classification" if self.recording.classes else "regression",
                classes=self.recording.classes,
                moments=self.moments,
            )
            self.writers[name] = TranscriptWriter(self.folder / name, head, self.options.buffer_mib, self.resume)

    def saw(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        if (step - 1) % self.options.every and step not in self.moments.values():
            return
        for name, writer in self.writers.items():
            held = self.present[name][ids]
            if held.any():  # a dummy for somebody whom the party does not know is not its payload
                rows = held.nonzero().squeeze(1)
                payload = payloads[name][rows.to(payloads[name].device)]
                writer.add(Exchange(step, ids[rows], payload, labels[rows.to(labels.device)]))

    def state(self) -> dict[str, Any]:
        for writer in self.writers.values():
            writer.flush()
        return {name: [writer.parts, writer.exchanges] for name, writer in self.writers.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, (parts, exchanges) in state.items():
            self.writers[name].cut_back(parts, exchanges)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def named_moments(job: Job, steps: int) -> dict[str, int]:
    """The first exchange, the last, and those after which the parties keep their models, by name."""
    shares = [share for share in job.checkpoints.moments if 0 < share < 1]
    named = {f"{100 * share:.4g}%": max(1, round(share * steps)) for share in shares}
    return {"start": 1, **named, "end": steps}
