"""A passive party of blind training: its rows stay at home, and what leaves it are parts of sums and of scores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veracausa.data.vertical import Split
from veracausa.errors import InputError, WireError
from veracausa.features.base import FitLabels
from veracausa.runs.store import Store
from veracausa.training.blind.book import RECORDS_FILE, AnswerBook
from veracausa.training.blind.kept_head import KeptHead
from veracausa.training.blind.party import PHASES, BlindParty
from veracausa.training.blind.predict import SCORED, ScoreHolder, receive_head
from veracausa.training.blind.protocol import (
    BLIND_HELLO,
    MOST_CLASSES,
    as_array,
    declare_all,
    declare_scoring,
    labels_kind,
)
from veracausa.training.split.protocol import Heartbeat
from veracausa.wire.link import Link


class BlindPassive(BlindParty):
    """A straight program: hear labels if any are told, fit, sum up, then answer for rows until the end."""

    role = "passive"
    serving_keys = ("answers", "book")
    head: KeptHead | None = None
    """Its part of the head, encrypted; None before there was one."""
    labels: FitLabels | None = None

    def run(self, link: Link, store: Store | None = None) -> None:
        """Take part until the active party says it is done."""
        self.resume(store)
        declare_all(link, self.job)
        self._hello(link)
        blind = self.job.blind
        if self.step < 1:
            started = time.perf_counter()
            if blind.labels != "none":
                self.labels = self._hear_labels(link)
            self.finished(PHASES[0], started, store)
        if self.step < 2:
            started = time.perf_counter()
            beat = Heartbeat(link, self.active)
            self.fit(self.labels, beat, store)
            beat.done()
            self.finished(PHASES[1], started, store)
        if self.step < 3:
            started = time.perf_counter()
            self.agree_on_widths(link)
            self.sum_up(link, store)
            self.finished(PHASES[2], started, store)
        if self.step < 4:
            started = time.perf_counter()
            assert self.columns is not None
            self.head = receive_head(link, self.job, self.columns.width, self.scores)
            self.finished(PHASES[3], started, store)
        started = time.perf_counter()
        holder = self._hold(link)
        holder.serve({split: self.data.part(split) for split in SCORED})
        if self.step < 5:
            self.finished(PHASES[4], started, store)

    def serve(self, link: Link, run: Path) -> None:
        """Answer for new rows with what the training kept in the folder `run`."""
        self.run_folder = run
        declare_scoring(link, self.job)
        self._hello(link)
        self._hold(link).serve({split: self.data.part(split) for split in SCORED})

    def _hello(self, link: Link) -> None:
        splits: tuple[Split, ...] = ("train", *SCORED)
        counts: dict[str, int] = {split: len(self.data.part(split)) for split in splits}
        link.send(self.active, BLIND_HELLO, 0, None, held=self.data.train.present_count(), **counts)

    def _hear_labels(self, link: Link) -> FitLabels:
        blind, rows = self.job.blind, len(self.data.train)
        kind = labels_kind(rows, blind.labels == "private" and blind.label_prior)
        link.declare(kind, peer=self.active)
        message = link.receive(self.active, kind, 0)
        told, classes = message.tensors["told"].long(), message.meta["classes"]
        if not isinstance(classes, int) or not 2 <= classes <= MOST_CLASSES:
            raise WireError("labels.classes", f"{self.active!r} names {classes} classes")
        if rows and not 0 <= int(told.min()) <= int(told.max()) < classes:
            raise WireError("labels.told", f"{self.active!r} tells labels beyond its {classes} classes")
        transition = as_array(message, "transition").copy() if "transition" in message.tensors else None
        if (transition is None) != (blind.labels == "shared") or (
            transition is not None and transition.shape[-2:] != (classes, classes)
        ):
            raise WireError("labels.transition", f"{self.active!r} tells chances that do not fit its {classes} classes")
        if transition is not None and not ((transition >= 0) & (transition <= 1)).all():
            raise WireError("labels.transition", f"{self.active!r} tells chances that are none")
        index = self.data.train.index
        if index is not None:
            held = index >= 0
            told = told[held]
            if transition is not None and transition.ndim == 3:
                transition = transition[held.numpy()]
        return FitLabels(told, classes, transition)

    def _hold(self, link: Link) -> ScoreHolder:
        """Ready to answer, with the head of the training and no other."""
        assert self.columns is not None
        assert self.head is not None
        key, book = self.lasting_key("answers"), self._book()
        return ScoreHolder(link, self.job, self.columns, self.scores, self.head, key, book, self.secret)

    def _book(self) -> AnswerBook:
        own = self.job.party.get(self.name)
        allowed = own is not None and own.second_head
        folder = self.book_folder
        if folder is None and self.run_folder is not None:
            folder = self.run_folder / "parties" / self.name
        path = None if folder is None else folder / RECORDS_FILE
        return AnswerBook(path, self.lasting_key("book"), allowed)

    def state(self) -> dict[str, Any]:
        told = self.labels if self.step == 1 else None
        kept = None
        if told is not None:
            import torch

            chances = None if told.transition is None else torch.from_numpy(told.transition)
            kept = {"values": told.values, "classes": told.classes, "transition": chances}
        return {**super().state(), "labels": kept, "kept_head": self._kept_head()}

    def _kept_head(self) -> dict[str, Any] | None:
        return None if self.head is None else self.head.state()

    def load_state(self, state: Mapping[str, Any], store: Store) -> None:
        super().load_state(state, store)
        if self.step >= 4:
            self.head = KeptHead.of(state["kept_head"], self.name)
        if (kept := state["labels"]) is not None:
            chances = kept["transition"]
            self.labels = FitLabels(kept["values"], kept["classes"], None if chances is None else chances.numpy())

    def model(self) -> dict[str, Any]:
        """What it keeps to serve predictions later: of the head the ciphertexts, for it never had a weight in clear."""
        return {**super().model(), "kept_head": self._kept_head(), "scores": self.scores}

    def load_model(self, model: Mapping[str, Any]) -> None:
        super().load_model(model)
        if self.columns is None:
            raise InputError(f"party {self.name!r}: its saved model has no features; train again")
        self.head = KeptHead.of(model.get("kept_head"), self.name)
