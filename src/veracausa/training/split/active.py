"""The active party: it holds the labels and the top model, draws the batches and leads the training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from veracausa import seeding
from veracausa.config import Job
from veracausa.data.vertical import SPLITS, PartyData, Split
from veracausa.errors import InputError, RunError, WireError
from veracausa.events import Event, Observer
from veracausa.models.cut import JoinAxis, build_bottom, build_top, join, payload_shape
from veracausa.models.runner import Runner, choose_device, eval_output, fetch_rows, to_device, wire_dtype
from veracausa.runs.store import Store
from veracausa.training.evaluate import evaluate, evaluation, loss_function
from veracausa.training.hooks import ActivePartyHook, FederationInfo
from veracausa.training.optimization import BatchOrder, learning_rate, load_optimizer, make_optimizer, set_learning_rate
from veracausa.training.split.halves import Adapters, announced
from veracausa.training.split.protocol import HELLO, READY, REQUEST, await_ready, gradient, representation
from veracausa.wire.link import Link
from veracausa.wire.message import Kind

EVALUATION_ROWS = 512
EXPLODED = 100.0
"""So many times the first batch's loss, and an epoch's mean loss is no longer a training."""


class ActiveParty:
    """A straight program: draw ids, gather representations, learn, return gradients; evaluate, keep checkpoints."""

    role = "active"
    defense_name = ""

    def __init__(
        self,
        job: Job,
        data: PartyData,
        task: str,
        outputs: int,
        join_axis: JoinAxis,
        notify: Observer = lambda event: None,
        watcher: ActivePartyHook | None = None,
    ) -> None:
        self.job, self.data, self.task, self.outputs, self.join_axis = job, data, task, outputs, join_axis
        self.name = data.name
        self.notify, self.watcher = notify, watcher or ActivePartyHook()
        self.device = choose_device(job.runtime.device)
        self.model_rng = seeding.generator(job.seed, self.name, "model")
        self.bottom: nn.Module | None = None
        if data.shape:
            # What it gives stays here: it needs no limit.
            bottom = build_bottom(job.model, data.shape, outputs, self.model_rng)
            self.own_shape = payload_shape(bottom, data.shape)
            self.bottom = to_device(bottom, job.runtime, self.device)
            self.run_bottom = Runner(self.bottom, job.runtime, self.device, job.training.batch_size)
        self.parts = {split: data.part(split).to(self.device) for split in ("train", "validation", "test")}
        labels = data.train.labels if data.train.labels is not None else torch.empty(0, dtype=torch.int64)
        self.loss = loss_function(task, labels, outputs, job.training.class_weights).to(self.device)
        self.exchange = 0
        self.step = 0
        self.loss_sum = torch.zeros((), device=self.device)
        self.loss_steps = 0
        self.first_loss = torch.tensor(math.inf)  # unknown before the first batch, and in checkpoints of old
        self.seconds = 0.0
        self.behind: dict[str, Any] = {}
        """What stands behind the last scores; its own record alone has it."""

    def meet(self, link: Link) -> None:
        """Hear from every passive party what it will send, build the top model for it, wait until all are ready."""
        self.kinds: dict[str, tuple[Kind, Kind]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.present: dict[str, Tensor] = {}
        expected: dict[str, tuple[int, ...]] = {}
        dtype = wire_dtype(self.job.runtime)
        link.declare(HELLO, READY, REQUEST)
        for peer, hello in link.gather(HELLO, 0).items():
            for split in ("train", "validation", "test"):
                if hello.meta[split] != len(self.data.part(split)):
                    raise WireError(
                        f"hello.{split}",
                        f"{peer!r} knows {hello.meta[split]} rows, {self.name!r} knows {len(self.data.part(split))}",
                    )
            if len(hello.tensors["present"]) != len(self.data.train):
                raise WireError("hello.present", f"{peer!r} must say it for all {len(self.data.train)} rows")
            shape = announced(peer, hello, "shape")
            expected[peer] = announced(peer, hello, "expected") if "expected" in hello.tensors else shape
            self.shapes[peer], self.present[peer] = shape, hello.tensors["present"].cpu()
            self.kinds[peer] = (representation(shape, dtype), gradient(shape, dtype))
            link.declare(*self.kinds[peer], peer=peer)
        self._build(expected)
        self._plan()
        await_ready(link, self.notify)
        self.watcher.begin(FederationInfo(self.predict, self.shapes, self.present, self.steps))

    def _build(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """The top model for what the model's own bottoms would send, and adapters for peers that send another shape."""
        shapes = [*([self.own_shape] if self.bottom is not None else []), *expected.values()]
        top = build_top(self.job.model, shapes, self.join_axis, self.outputs, self.model_rng)
        self.top: nn.Module = to_device(top, self.job.runtime, self.device)
        self.run_top = Runner(self.top, self.job.runtime, self.device, self.job.training.batch_size)
        # Drawn after the top, which is therefore the same with and without them.
        self.adapters = Adapters(self.job, self.shapes, expected, self.device, self.model_rng)
        parameters = [weight for module in self.modules() for weight in module.parameters()]
        self.optimizer = make_optimizer(parameters, self.job.training.optimizer)

    def modules(self) -> list[nn.Module]:
        """All that it trains: its own bottom where it has one, the top, the adapters."""
        return [*([self.bottom] if self.bottom is not None else []), self.top, *self.adapters.modules.values()]

    def summary(self) -> dict[str, Any]:
        """Nothing: it sends no payloads."""
        return {}

    def _plan(self) -> None:
        """Which positions are trained on, and how many steps there are, by the policy for missing ids."""
        training, overlap = self.job.training, self.job.overlap
        everyone = torch.arange(len(self.data.train))
        common = torch.stack(list(self.present.values())).all(0) if len(everyone) else torch.ones(0, dtype=torch.bool)
        self.weighted = common | (overlap.missing == "zero_fill")
        full = BatchOrder(everyone, training.batch_size, self.job.seed)
        positions = everyone[common] if overlap.missing == "drop" else everyone
        if len(everyone) and not self.weighted.any():
            raise InputError('overlap: no training id is held by all parties; use overlap.missing = "zero_fill"')
        self.order = BatchOrder(positions, training.batch_size, self.job.seed)
        per_epoch = full.per_epoch if overlap.keep == "steps" else self.order.per_epoch
        self.per_epoch = per_epoch
        self.steps = training.epochs * per_epoch

    def run(self, link: Link, store: Store | None = None) -> None:
        """Lead the federation from the first exchange to the last."""
        # Loaded before anything is sent: the ledger goes back to the checkpoint, and what is sent from here on stays.
        kept = store.load(store.start_step) if store is not None and store.start_step is not None else None
        self.meet(link)
        if kept is not None:
            self.load_state(kept)
        training, every = self.job.training, self.job.checkpoints.every_steps
        self.notify({"event": "start", "epochs": training.epochs, "steps": self.steps, "step": self.step})
        started = time.perf_counter() - self.seconds
        while self.step < self.steps:
            self.train_step(link)
            if store is not None and self.step in self.job.checkpoints.moment_steps(self.steps):
                store.keep_moment(self.step, self.model())
            self.notify({"event": "step", "step": self.step})
            epoch, within = divmod(self.step, self.per_epoch)
            if within == 0:
                last = self.step == self.steps
                record = self._epoch_record(link, epoch, last or epoch % training.evaluate_every == 0)
                record["seconds"] = self.seconds = time.perf_counter() - started
                if store is not None:
                    store.log(record)
                    if self.behind:
                        store.log({"event": "evaluation", "step": self.step, **self.behind})
                self.notify(record)
            if store is not None and (within == 0 or (every and self.step % every == 0)):
                self._ask(link, "save")
                store.save(self.step, self.state())
        self.finish(link)
        self.watcher.close()

    def finish(self, link: Link) -> None:
        """Let the passive parties go."""
        self._ask(link, "done")

    def train_step(self, link: Link) -> None:
        """One exchange: ids out, representations in, one (or `local_steps`) updates, gradients out."""
        ids = self.order.batch(self.step)
        self._ask(link, "train", ids)
        received = link.gather_each({peer: kinds[0] for peer, kinds in self.kinds.items()}, self.exchange)
        payloads = {peer: message.tensors["payload"].to(self.device) for peer, message in received.items()}
        labels = self.parts["train"].labels
        assert labels is not None
        target = labels[ids.to(labels.device)]
        self.watcher.on_payloads(
            self.step + 1, ids, {peer: payload.detach() for peer, payload in payloads.items()}, target
        )
        kept = self.weighted[ids]
        rows = None if kept.all() else kept.nonzero().squeeze(1).to(self.device)
        used = len(ids) if rows is None else len(rows)
        if used < 2 <= len(ids):
            used = 0  # one row alone has no batch statistics; it is left for another epoch

        def answer(gradients: Mapping[str, Tensor]) -> None:
            for peer, (_, kind) in self.kinds.items():
                sent = self.watcher.on_gradient(peer, gradients[peer])
                link.send(peer, kind, self.exchange, {"gradient": sent}, rows=used)

        if used:
            self._learn(ids, target, payloads, rows, answer)
        else:
            answer({peer: torch.zeros_like(payload) for peer, payload in payloads.items()})
        self.watcher.on_step_end()
        self.step += 1

    def _learn(
        self,
        ids: Tensor,
        target: Tensor,
        payloads: Mapping[str, Tensor],
        rows: Tensor | None,
        answer: Callable[[Mapping[str, Tensor]], None],
    ) -> None:
        """Update the top model; `answer` gets every payload's gradient as soon as it is known, before the updates.

        Rows that somebody lacks are left out of the batch, so that a dummy touches nothing, not even a batch
        normalisation; their gradient is zero.
        """
        training = self.job.training
        lr = learning_rate(self.step, self.steps, training.optimizer.lr, training.schedule)
        set_learning_rate(self.optimizer, lr)
        self._mode(True)
        for local in range(training.local_steps):
            leaves = {peer: payload.requires_grad_(local == 0) for peer, payload in payloads.items()}
            own = self._own("train", ids) if self.bottom is not None else None
            arrived, chosen = leaves, target
            if rows is not None:
                own = own[rows] if own is not None else None
                arrived, chosen = {peer: leaf[rows] for peer, leaf in leaves.items()}, target[rows]
            output = self.run_top(self._joined(own, arrived))
            loss = self.loss(output.float(), chosen)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if local == 0:
                answer({peer: _gradient_of(leaf) for peer, leaf in leaves.items()})
                payloads = {peer: leaf.detach() for peer, leaf in leaves.items()}
                if self.step == 0:
                    self.first_loss = loss.detach()
                self.loss_sum += loss.detach()
                self.loss_steps += 1
            self.optimizer.step()

    def _own(self, split: Split, ids: Tensor) -> Tensor:
        assert self.bottom is not None
        x = fetch_rows(self.parts[split], ids, self.job.runtime)
        return self.run_bottom(x).to(wire_dtype(self.job.runtime))

    def _joined(self, own: Tensor | None, payloads: Mapping[str, Tensor]) -> Tensor:
        """What the top takes: everybody's payload in the expected shape, side by side."""
        return join([*([own] if own is not None else []), *self.adapters.adapted(payloads)], self.join_axis)

    def predict(self, payloads: Mapping[str, Tensor], own: Tensor | None = None) -> Tensor:
        """The top model's outputs in eval mode, differentiable in the payloads; `own`: this party's rows, if any."""
        with self.run_top.precision():
            inputs = self.adapters.predicted({peer: payloads[peer] for peer in self.kinds})
            if self.bottom is not None:
                assert own is not None
                inputs.insert(0, eval_output(self.bottom, own))
            return eval_output(self.top, join(inputs, self.join_axis)).float()

    def outputs_of(self, link: Link, split: Split) -> Tensor:
        """The top model's outputs for a whole split, jointly with the passive parties."""
        self._mode(False)
        outputs = []
        for ids in torch.split(torch.arange(len(self.data.part(split))), EVALUATION_ROWS):
            self._ask(link, "infer", ids, split)
            received = link.gather_each({peer: kinds[0] for peer, kinds in self.kinds.items()}, self.exchange)
            with torch.no_grad():
                own = self._own(split, ids) if self.bottom is not None else None
                payloads = {peer: message.tensors["payload"].to(self.device) for peer, message in received.items()}
                outputs.append(self.run_top(self._joined(own, payloads)).float())
        return torch.cat(outputs)

    def _epoch_record(self, link: Link, epoch: int, evaluated: bool) -> Event:
        record: Event = {"event": "epoch", "epoch": epoch, "step": self.step}
        loss = float(self.loss_sum) / max(1, self.loss_steps)
        if diverged(loss, float(self.first_loss)):
            raise RunError(f"training diverged: the loss is {loss:.3g} in epoch {epoch}; lower training.optimizer.lr")
        self._ask(link, "epoch")  # not before the check above: nobody measures a model that diverged
        record["train"] = {"loss": loss}
        self.loss_sum.zero_()
        self.loss_steps = 0
        splits: tuple[Split, ...] = ("validation", "test")
        for split in splits:
            labels = self.data.part(split).labels
            if evaluated and labels is not None and len(labels):
                outputs = self.outputs_of(link, split)
                record[split] = evaluate(self.task, outputs, labels)
                if self.step == self.steps:  # of the splits the last, the test rows where there are any
                    every = {name: self.data.part(name).labels for name in SPLITS}
                    self.behind = {"split": split, **evaluation(self.task, outputs, labels, every)}
        return record

    def _ask(self, link: Link, purpose: str, ids: Tensor | None = None, split: str = "train") -> None:
        self.exchange += 1
        ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
        link.broadcast(REQUEST, self.exchange, {"ids": ids}, purpose=purpose, split=split, at=self.step, of=self.steps)

    def _mode(self, training: bool) -> None:
        for module in self.modules():
            if module.training != training:
                module.train(training)

    def _weights(self) -> dict[str, Any]:
        bottom = self.bottom.state_dict() if self.bottom is not None else None
        return {"top": self.top.state_dict(), "bottom": bottom, **self.adapters.state()}

    def load_weights(self, kept: Mapping[str, Any]) -> None:
        """Take over a trained top, its adapters and the bottom, as `state` and `model` keep them."""
        self.top.load_state_dict(kept["top"])
        if self.bottom is not None:
            self.bottom.load_state_dict(kept["bottom"])
        self.adapters.load_state(kept)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "exchange": self.exchange,
            **self._weights(),
            "optimizer": self.optimizer.state_dict(),
            "rng": self.model_rng.get_state(),
            "loss_sum": self.loss_sum,
            "loss_steps": self.loss_steps,
            "first_loss": self.first_loss,
            "seconds": self.seconds,
            "watcher": self.watcher.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.step, self.exchange = state["step"], state["exchange"]
        self.load_weights(state)
        load_optimizer(self.optimizer, state["optimizer"])
        self.model_rng.set_state(state["rng"])
        self.loss_sum = state["loss_sum"].to(self.device)
        self.loss_steps = state["loss_steps"]
        self.first_loss = state.get("first_loss", self.first_loss)
        self.seconds = state["seconds"]
        self.watcher.load_state(state.get("watcher", {}))

    def model(self) -> dict[str, Any]:
        """What this party keeps to serve predictions later."""
        return {
            **self._weights(),
            "shape": list(self.data.shape),
            "payloads": {peer: list(shape) for peer, shape in self.shapes.items()},
            "preprocessing": dict(self.data.preprocessing) if self.data.preprocessing else None,
        }


def diverged(loss: float, first: float) -> bool:
    """Whether an epoch's mean loss says that training has blown up, beside the loss of the very first batch."""
    return not math.isfinite(loss) or loss > EXPLODED * max(1.0, first)


def _gradient_of(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
