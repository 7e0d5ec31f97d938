"""A passive party: it holds columns, a bottom model and a defense, and answers requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Job
from veracausa.data.vertical import PartyData, Split
from veracausa.defenses.base import Context, Defense
from veracausa.defenses.protocols import Prepares
from veracausa.errors import InputError, WireError
from veracausa.models.runner import Runner, choose_device, fetch_rows, to_device, wire_dtype
from veracausa.runs.store import Store
from veracausa.training.optimization import learning_rate, load_optimizer, make_optimizer, set_learning_rate
from veracausa.training.split.diagnostics import EpochDiagnostics
from veracausa.training.split.halves import build_defended, make_defense
from veracausa.training.split.protocol import HELLO, READY, REQUEST, Heartbeat, gradient, representation
from veracausa.wire.link import Link
from veracausa.wire.message import Message


class PassiveParty:
    """A straight program: wait for a request, answer it, learn from the gradient that comes back."""

    role = "passive"

    def __init__(self, job: Job, data: PartyData, outputs: int) -> None:
        self.job, self.data = job, data
        self.name, self.active = data.name, job.parties.active
        self.device = choose_device(job.runtime.device)
        self.rng = seeding.generator(job.seed, self.name, "training")
        self.model_rng = seeding.generator(job.seed, self.name, "model")
        self.defense: Defense = make_defense(job, self.name)
        built = build_defended(job, self.name, data.shape, outputs, self.model_rng, self.defense, columns=data.columns)
        self.shape, self.expected = built.payload, built.expected
        self.bottom: nn.Module = to_device(built.module, job.runtime, self.device)
        self.optimizer = make_optimizer(self.bottom.parameters(), job.training.optimizer)
        runner = Runner(self.bottom, job.runtime, self.device, job.training.batch_size)
        self.defense.key = seeding.derive_key(job.seed, self.name, "noise")
        self.defense.bind(self.bottom, self.optimizer, self.rng, runner)
        self.parts = {split: data.part(split).to(self.device) for split in ("train", "validation", "test")}
        self.diagnostics = EpochDiagnostics(job, self.name, self.parts["train"], self.defense)
        self.dtype = wire_dtype(job.runtime)
        self.payload_kind = representation(self.shape, self.dtype)
        self.gradient_kind = gradient(self.shape, self.dtype)
        self.exchange = 0
        self.step = 0
        self.ready = False
        """Whether the defense has prepared, or has taken over what an earlier one prepared."""
        self.prepared = ""
        """The digest of what the defense prepared, as the party's store keeps it; empty where there is nothing."""

    @property
    def defense_name(self) -> str:
        return self.defense.options.name

    def modules(self) -> list[nn.Module]:
        return [self.bottom]

    def summary(self) -> dict[str, Any]:
        """The shape of its payloads, and what it measured of its defense."""
        return {"payload": list(self.shape), **self.diagnostics.summary()}

    def run(self, link: Link, store: Store | None = None) -> None:
        """Take part in a federation until the active party says it is done."""
        link.declare(HELLO, READY, REQUEST, self.payload_kind, self.gradient_kind, peer=self.active)
        if store is not None and store.start_step is not None:
            self.resume(store, store.load(store.start_step))
        train = self.data.train
        said = {"shape": torch.tensor(self.shape), "present": train.present(torch.arange(len(train)))}
        if self.expected != self.shape:
            said["expected"] = torch.tensor(self.expected)
        link.send(
            self.active,
            HELLO,
            0,
            said,
            train=len(train),
            validation=len(self.data.validation),
            test=len(self.data.test),
        )
        self._prepare(Heartbeat(link, self.active), store)
        for self.exchange in count(self.exchange + 1):  # noqa: B020
            request = link.receive(self.active, REQUEST, self.exchange)
            match request.meta["purpose"]:
                case "train":
                    self._train(link, request)
                    if store is not None and self.step in self.job.checkpoints.moment_steps(int(request.meta["of"])):
                        store.keep_moment(self.step, self.model())
                case "infer":
                    self._infer(link, request)
                case "epoch":
                    self._end_epoch(request, store)
                case "save":
                    if store is not None:
                        store.save(self.step, self.state())
                case _:
                    if store is not None and (risk := self.diagnostics.end()):
                        took = self.diagnostics.seconds
                        store.log({"event": "risk", "step": self.step, "seconds": took, "risk": risk})
                    return

    def _prepare(self, sign: Heartbeat, store: Store | None) -> None:
        defense = self.defense
        if not self.ready and len(self.data.train) and isinstance(defense, Prepares):
            started = time.perf_counter()
            try:
                defense.prepare(self.parts["train"], sign)
            except InputError as error:  # a defense does not know whose it is
                raise InputError(f"party {self.name!r}: {error}") from error
            seconds = time.perf_counter() - started
            if store is not None:
                if kept := defense.prepared():
                    self.prepared = store.keep_prepared(kept)
                if checks := defense.quality_checks():
                    named = {"event": "prepared", "step": 0, "defense": defense.options.name}
                    store.log({**named, "seconds": seconds, "gates": checks})
        self.ready = True
        sign.done()

    def _end_epoch(self, request: Message, store: Store | None) -> None:
        if store is None:
            return
        step, steps = int(request.meta["at"]), int(request.meta["of"])
        epoch = step * self.job.training.epochs // steps
        if found := self.diagnostics.epoch(epoch):
            named = {"event": "defense", "epoch": epoch, "step": step, "defense": self.defense.options.name}
            took = {"seconds": self.diagnostics.seconds} if "risk" in found else {}
            store.log({**named, **took, **found})

    def _asked_for(self, request: Message, split: Split) -> Tensor:
        """The positions that are asked for; refused where there is no such row."""
        ids = request.tensors["ids"].cpu()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.parts[split]):
            raise WireError("request.ids", f"{self.active!r} asks for {split} rows that are not there")
        return ids

    def _train(self, link: Link, request: Message) -> None:
        ids = self._asked_for(request, "train")
        step, steps = int(request.meta["at"]), int(request.meta["of"])
        options = self.job.training
        set_learning_rate(self.optimizer, learning_rate(step, steps, options.optimizer.lr, options.schedule))
        held = None if self.data.train.index is None else self.data.train.present(ids)
        if held is not None and held.sum() == 1 < len(held) and self.job.overlap.missing == "gwd":
            # The active party learns nothing from a single row, and batch normalisation could not even run it.
            held = torch.zeros_like(held)
        own = ids if held is None else ids[held]
        if not self.bottom.training:
            self.bottom.train()
        context: Context | None = None
        if len(own):
            payload, context = self.defense.forward(fetch_rows(self.parts["train"], own, self.job.runtime), own, step)
        else:
            payload = torch.zeros(0, *self.shape, device=self.device)
        if held is not None:
            payload = self._with_dummies(payload, held)
        link.send(self.active, self.payload_kind, self.exchange, {"payload": payload.to(self.dtype)})
        answer = link.receive(self.active, self.gradient_kind, self.exchange)
        grad = answer.tensors["gradient"].to(self.device)
        if context is not None and answer.meta["rows"]:
            grad = grad if held is None else grad[held.to(self.device)]
            self.defense.backward(context, grad.to(context.payload.dtype), options.local_steps)
        self.step = step + 1

    def _infer(self, link: Link, request: Message) -> None:
        split: Split = request.meta["split"]  # type: ignore[assignment]
        if split not in self.parts:
            raise WireError("request.split", f"{self.active!r} asks for rows of a split that there is not")
        ids = self._asked_for(request, split)
        payload = self.defense.infer(fetch_rows(self.parts[split], ids, self.job.runtime), ids)
        link.send(self.active, self.payload_kind, self.exchange, {"payload": payload.to(self.dtype)})

    def _with_dummies(self, payload: Tensor, held: Tensor) -> Tensor:
        """The payload of the whole batch: for ids this party lacks, zeros or a genuine payload of somebody else."""
        whole = torch.zeros(len(held), *self.shape, dtype=payload.dtype, device=payload.device)
        # A dummy must look genuine only where it has no say; `zero_fill` trains on what stands in its place.
        overlap = self.job.overlap
        if overlap.dummy == "resample" and overlap.missing == "gwd" and len(payload):
            drawn = torch.randint(len(payload), (len(held),), generator=self.rng)
            whole = payload[drawn.to(payload.device)]
        whole[held.to(payload.device)] = payload
        return whole

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "exchange": self.exchange,
            "bottom": self.bottom.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "defense": self.defense.state(),
            "prepared": self.prepared,
            "meters": self.diagnostics.last,
            "rng": [self.rng.get_state(), self.model_rng.get_state()],
        }

    def resume(self, store: Store, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, with what the defense had prepared for it."""
        self.take_prepared(store, state.get("prepared", ""))
        self.load_state(state)

    def take_prepared(self, store: Store, digest: str) -> None:
        """Let the defense have what it once prepared, in place of preparing again."""
        if isinstance(self.defense, Prepares):
            kept = store.prepared(digest) if digest else {}
            self.defense.load_prepared(kept, self.parts["train"] if len(self.data.train) else None)
        self.prepared, self.ready = digest, True

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.step, self.exchange = state["step"], state["exchange"]
        self.bottom.load_state_dict(state["bottom"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.defense.load_state(state["defense"])
        self.diagnostics.last = dict(state.get("meters", {}))
        for rng, kept in zip((self.rng, self.model_rng), state["rng"], strict=True):
            rng.set_state(kept)

    def model(self) -> dict[str, Any]:
        """What this party keeps to serve predictions later."""
        return {
            "bottom": self.bottom.state_dict(),
            "defense": self.defense.state(),
            "prepared": self.prepared,
            "shape": list(self.data.shape),
            "preprocessing": dict(self.data.preprocessing) if self.data.preprocessing else None,
        }
