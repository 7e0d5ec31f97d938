"""The active party of blind training: it opens sums over all training rows, solves the head, and reads scores."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veracausa.arrays import Array, Mask
from veracausa.config import Job
from veracausa.crypto.moments import Moments
from veracausa.data.vertical import SPLITS, PartyData, Split
from veracausa.errors import WireError
from veracausa.events import Event, Observer, ProgressCallback
from veracausa.features.base import FitLabels
from veracausa.runs.store import Store
from veracausa.training.blind.active_block import ActiveBlock
from veracausa.training.blind.head import BlindHead, fit_head
from veracausa.training.blind.kept_head import KEY_FILE, HeadKey
from veracausa.training.blind.label_columns import LabelColumns
from veracausa.training.blind.party import PHASES, BlindParty
from veracausa.training.blind.predict import SCORED, ScoreReader, head_fingerprint, send_head
from veracausa.training.blind.protocol import (
    BLIND_HELLO,
    PhaseProgress,
    ReadyRounds,
    declare_all,
    declare_scoring,
    labels_kind,
)
from veracausa.training.evaluate import evaluate, evaluation
from veracausa.training.split.program import Schema
from veracausa.wire.link import Link


class BlindActive(BlindParty):
    """A straight program: tell labels if that was agreed, fit, open the sums, solve, and score held-out rows."""

    role = "active"
    serving_keys = ("head",)

    def __init__(
        self, job: Job, data: PartyData, schema: Schema, notify: Observer = lambda event: None, secret: bool = False
    ) -> None:
        super().__init__(job, data, schema, notify, secret)
        self.targets: LabelColumns | None = None
        self.head: BlindHead | None = None
        self.key: HeadKey | None = None
        """What opens answers; beside its model in a file of its own."""
        self.moments: Moments | None = None
        self.label_account: dict[str, Any] | None = None
        self.notes: tuple[str, ...] = ()
        self.left_out: Mask | None = None
        self.behind: dict[str, Any] = {}
        """What stands behind the last scores; its own record alone has it."""
        self.before = 0.0
        """Seconds of the starts before this one."""

    @property
    def nonce(self) -> bytes:
        """What hides the weights in the commitment to them."""
        return self.lasting_key("head")

    @property
    def fingerprint(self) -> bytes:
        """Its commitment to the head's weights."""
        assert self.head is not None
        return head_fingerprint(self.head, self.name, self.nonce)

    def run(self, link: Link, store: Store | None = None) -> None:
        """Lead the federation from the first message to the last."""
        begun = time.perf_counter()
        self.resume(store)
        declare_all(link, self.job)
        self._meet(link)
        self.notify({"event": "start", "epochs": 1, "steps": len(PHASES), "step": self.step})
        self.targets = LabelColumns.of(self.job, self.data, self.schema)
        if self.step < 1:
            started = time.perf_counter()
            if self.job.blind.labels != "none":
                self._tell_labels(link)
            self.finished(PHASES[0], started, store)
        if self.step < 2:
            started = time.perf_counter()
            rounds = ReadyRounds(link, self.notify)
            self.fit(self._own_labels(), rounds, store)
            self._leave_out(rounds)
            rounds.done()
            self.finished(PHASES[1], started, store)
        if self.step < 3:
            started = time.perf_counter()
            self.agree_on_widths(link)
            self.moments = self.sum_up(link, store)
            self.finished(PHASES[2], started, store)
        started = time.perf_counter()
        if self.step < 4:
            self._solve()
            assert self.head is not None
            keep = None if store is None else store.folder / KEY_FILE
            self.key = send_head(
                link, self.job, self.head, self.fingerprint, lambda key: None if keep is None else key.save(keep)
            )
        # It opens with what every passive party says to keep, and this party's step is over only then: where one was
        # killed before, all go back, and the head is encrypted anew under another key.
        reader = self._reader(link)
        if self.step < 4:
            self.finished(PHASES[3], started, store)
        if self.step < 5:
            started = time.perf_counter()
            record = self._record(reader)
            record["seconds"] = self.before + time.perf_counter() - begun
            if store is not None:
                store.log(record)
                if self.behind:
                    store.log({"event": "evaluation", "step": len(PHASES), **self.behind})
            self.notify(record)
            self.finished(PHASES[4], started, store)
        reader.close()

    def finished(self, phase: str, started: float, store: Store | None) -> None:
        super().finished(phase, started, store)
        self.notify({"event": "step", "step": self.step})

    def outputs(self, link: Link) -> Tensor:
        """The head's outputs for the test rows, jointly with the passive parties."""
        declare_scoring(link, self.job)
        self._meet(link)
        reader = self._reader(link)
        found = list(reader.outputs("test", self.data.test))
        reader.close()
        return torch.cat(found)

    def _meet(self, link: Link) -> None:
        for peer, hello in link.gather(BLIND_HELLO, 0).items():
            splits: tuple[Split, ...] = ("train", *SCORED)
            for split in splits:
                if hello.meta[split] != len(self.data.part(split)):
                    raise WireError(
                        f"hello.{split}",
                        f"{peer!r} knows {hello.meta[split]} rows, {self.name!r} knows {len(self.data.part(split))}",
                    )

    def _tell_labels(self, link: Link) -> None:
        """Once for a row, and alike to all parties: drawn anew, they would average out."""
        blind, rows = self.job.blind, len(self.data.train)
        assert self.targets is not None
        told, classes, transition, account = self.targets.told(self.lasting_key("labels"))
        self.label_account = account
        kind = labels_kind(rows, blind.labels == "private" and blind.label_prior)
        sent = {"told": torch.from_numpy(told.astype(np.int32))}
        if transition is not None:
            sent["transition"] = torch.from_numpy(np.ascontiguousarray(transition))
        link.declare(kind)
        link.broadcast(kind, 0, sent, classes=classes)

    def _own_labels(self) -> FitLabels | None:
        """Its own map may learn from the true labels: nothing of it leaves."""
        assert self.targets is not None
        return self.targets.own_labels(self.lasting_key("labels")) if self.data.train.has_features else None

    @property
    def block(self) -> ActiveBlock:
        """Its part of the sums."""
        assert self.targets is not None
        clip = self.clip if self.widths else None
        return ActiveBlock(self.job, self.data.train, self.columns, self.targets, clip, self.left_out)

    def own_width(self) -> int:
        return self.block.width

    def blocks(self) -> Iterator[Array]:
        yield from self.block.blocks()

    def _leave_out(self, beat: ProgressCallback) -> None:
        """Find the rows that its own columns single out, before anything is summed up."""
        found = self.block.without_heavy_rows(self.lasting_key("left out"), beat)
        self.left_out, self.notes = found.left_out, found.note()

    def _solve(self) -> None:
        assert self.moments is not None
        assert self.targets is not None
        progress = PhaseProgress(self.notify, self.name, "head")
        start = self.moments.slices[self.name].start
        own = slice(start, start + self.block.features)
        label = slice(own.stop + 1, own.stop + 1 + self.targets.width)
        self.head = fit_head(
            self.moments,
            own,
            label,
            self.schema.task,  # type: ignore[arg-type]
            self.schema.outputs,
            self.job.blind.ridge,
            self.job.training.class_weights,
            self.targets.scale,
            answer_noise=self.job.blind.step * math.sqrt(len(self.job.parties.passive) / 12),
        )
        progress(1.0)

    def _reader(self, link: Link) -> ScoreReader:
        assert self.head is not None
        assert self.key is not None
        return ScoreReader(link, self.job, self.head, self.columns, self.key)

    def _record(self, reader: ScoreReader) -> Event:
        """The scores of held-out rows, opened together, and the fit of the training rows as sums tell it."""
        assert self.head is not None
        record: Event = {"event": "epoch", "epoch": 1, "step": len(PHASES), "train": dict(self.head.fit)}
        progress = PhaseProgress(self.notify, self.name, "scores")
        total, done = sum(len(self.data.part(split)) for split in SCORED), 0
        for split in SCORED:
            outputs, labels = [], []
            part = self.data.part(split)
            for found, block in zip(reader.outputs(split, part), part.blocks(reader.width), strict=True):
                outputs.append(found)
                if block.labels is not None:
                    labels.append(block.labels)
                done += len(block)
                progress(done / total)
            if labels:
                told = torch.cat(outputs), torch.cat(labels)
                record[split] = evaluate(self.schema.task, *told)
                every = {name: self.data.part(name).labels for name in SPLITS}
                self.behind = {"split": split, **evaluation(self.schema.task, *told, every)}
        return record

    def summary(self) -> dict[str, Any]:
        """What was opened, and what it cost: for the run's summary as a whole."""
        assert self.head is not None
        noise = 0.0 if self.moments is None else float(np.max(self.moments.noise))
        facts = {
            "rows": len(self.data.train),
            "left_out": 0 if self.left_out is None else int(self.left_out.sum()),
            "predicted": {split: len(self.data.part(split)) for split in SCORED},
            "numbers": self.head.scores_width,
            "rho": self.account.get("rho"),
            "noise": noise,
            "clip": self.clip,
            "label_account": self.label_account,
            "ridge": self.head.fit["ridge"],
            "fit": dict(self.head.fit),
            "fingerprint": self.fingerprint.hex(),
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
        }
        found = super().summary()
        return {**found, "notes": [*found["notes"], *self.notes], "blind_training": facts}

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "moments": None if self.moments is None else self.moments.state(),
            "head": None if self.head is None else self.head.state(),
            "label_account": self.label_account,
            "notes": list(self.notes),
            "left_out": None if self.left_out is None else torch.from_numpy(np.flatnonzero(self.left_out)),
        }

    def load_state(self, state: Mapping[str, Any], store: Store) -> None:
        super().load_state(state, store)
        self.moments = None if state["moments"] is None else Moments.of(state["moments"])
        self.head = None if state["head"] is None else BlindHead.of(state["head"])
        self.label_account, self.notes = state["label_account"], tuple(state["notes"])
        if state["left_out"] is not None:
            self.left_out = np.zeros(len(self.data.train), dtype=bool)
            self.left_out[state["left_out"].numpy()] = True
        if self.step >= 4:
            self.key = HeadKey.load(store.folder / KEY_FILE)
        self.before = sum(self.seconds.values())

    def model(self) -> dict[str, Any]:
        assert self.head is not None
        return {**super().model(), "head": self.head.state(), "fingerprint": self.fingerprint.hex()}

    def load_model(self, model: Mapping[str, Any]) -> None:
        super().load_model(model)
        self.head = BlindHead.of(model["head"])

    def load_key(self, folder: Path) -> None:
        """Take the key of its head from its own folder: without it, a model opens nothing."""
        self.key = HeadKey.load(folder / KEY_FILE)
