"""Hooks at the active party that write down what crosses while it trains.

`Recording` keeps the payloads that arrive, as transcripts. `GradientsReturned` keeps the gradients that go back to each
passive party: what that party receives and may keep. They lie in the receiver's folder, `parties/NAME/gradients/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from veracausa.attacks.base import Exchange
from veracausa.attacks.gradient_record import MEMORY, WIDTH, GradientRecorder, spread_passes
from veracausa.attacks.transcript import Head, TranscriptWriter
from veracausa.config import Job
from veracausa.models.runner import wire_dtype
from veracausa.runs.store import Store
from veracausa.training.hooks import ActivePartyHook, FederationInfo

_EPOCHS = 4


@dataclass(frozen=True)
class GradientsReturned:
    """Makes the watcher where the active party runs: `train(job, out, watchers=[GradientsReturned()])`."""

    parties: Sequence[str] | None = None
    """Whose; unset: every passive party's."""
    width: int = WIDTH
    memory: int = MEMORY
    epochs: int | None = None
    """How many the job has: only four of them are kept then, evenly spread, as many as an attack looks at."""

    def __call__(self, store: Store) -> ActivePartyHook:
        return _Returned(self, store)


def gradients_folder(run: Path, party: str) -> Path:
    """Where a run keeps what this party received."""
    return run / "parties" / party / "gradients"


class _Returned(ActivePartyHook):
    """One recorder a party; a checkpoint knows how much of each was on disk."""

    def __init__(self, wanted: GradientsReturned, store: Store) -> None:
        self.wanted, self.run = wanted, store.folder.parent.parent
        self.fresh = store.start_step is None

    def begin(self, meeting: FederationInfo) -> None:
        self.present = meeting.present
        settings = {"width": self.wanted.width, "memory": self.wanted.memory}
        self.recorders = {
            name: GradientRecorder(gradients_folder(self.run, name), **settings, resume=True)
            for name in meeting.shapes
            if self.wanted.parties is None or name in self.wanted.parties
        }
        if self.fresh:  # a run torn before its first checkpoint starts all over
            for recorder in self.recorders.values():
                recorder.cut_back(0)

        epochs = self.wanted.epochs or 1
        self.per_epoch = max(1, meeting.steps // epochs)
        self.kept = set(spread_passes(epochs, _EPOCHS if self.wanted.epochs else 1))

    def on_payloads(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
        self.step, self.ids = step - 1, ids.cpu()  # a party counts its steps from 0

    def on_gradient(self, peer: str, gradient: Tensor) -> Tensor:
        recorder = self.recorders.get(peer)
        if recorder is not None and self.step // self.per_epoch in self.kept:
            held = self.present[peer][self.ids]
            recorder.add(self.step, self.ids[held], gradient[held.to(gradient.device)])
        return gradient

    def state(self) -> dict[str, Any]:
        for recorder in self.recorders.values():
            recorder.flush()
        return {name: recorder.parts for name, recorder in self.recorders.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, parts in state.items():
            if name in self.recorders:
                self.recorders[name].cut_back(parts)

    def close(self) -> None:
        for recorder in self.recorders.values():
            recorder.flush()


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

    def on_payloads(self, step: int, ids: Tensor, payloads: Mapping[str, Tensor], labels: Tensor) -> None:
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
