"""What both parties of blind training do alike: fit features at home, take part in the sums, keep what is done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from veracausa import seeding
from veracausa.arrays import Array
from veracausa.config import Job
from veracausa.crypto.moments import MomentParty, MomentPlan, Moments
from veracausa.crypto.moments.account import EXACT
from veracausa.crypto.moments.engines import make_engine
from veracausa.crypto.moments.plan import most_bits
from veracausa.crypto.randomness import make_draws, subkey
from veracausa.data.vertical import PartyData
from veracausa.errors import RunError
from veracausa.events import Observer
from veracausa.features.base import FitLabels
from veracausa.runs.store import StateFile, Store
from veracausa.training.blind.book import enter_release, lasting_key, releases_in
from veracausa.training.blind.protocol import PhaseProgress, exchange_widths
from veracausa.training.blind.rows import LIMIT, VALUE_BITS, OwnColumns, fit_columns
from veracausa.training.split.program import Schema
from veracausa.wire.link import Link

SIMULATION = (
    "simulation: masks, noise, told labels and dithers follow from the job's seed, and who knows it can redraw them"
)
BOOK = "answers"
"""The folder of a member's book, beside its run."""
PHASES = ("labels", "features", "moments", "head", "scores")
"""What is done in turn. After each, every party keeps a checkpoint: `step` is how many are done."""


class BlindParty:
    """One party, with what it keeps at home: its fitted columns, its keys, and how far it is."""

    role: str
    defense_name = ""
    serving_keys: tuple[str, ...] = ()
    """The purposes of the keys that predictions need."""

    def __init__(
        self, job: Job, data: PartyData, schema: Schema, notify: Observer = lambda event: None, secret: bool = False
    ) -> None:
        """`secret`: masks and noise come from the system, as between organisations; else from the job's seed."""
        self.job, self.data, self.schema, self.notify, self.secret = job, data, schema, notify, secret
        self.name, self.active = data.name, job.parties.active
        self.step = 0
        self.columns: OwnColumns | None = None
        self.widths: dict[str, int] = {}
        """Of every party's block of the sums."""
        self.prepared = ""
        """The digest of the fitted columns, as the party's store keeps them."""
        self.seconds: dict[str, float] = {}
        self.account: dict[str, Any] = {}
        self.run_folder: Path | None = None
        self.kept_keys: dict[str, bytes] = {}
        """Of a saved model, by purpose: where it serves, another seed must not change its answers."""

    def modules(self) -> list[nn.Module]:
        """None: a feature map counts its weights itself."""
        return []

    @property
    def scores(self) -> int:
        """How many numbers of a predicted row are opened: one less than there are classes, or the one target."""
        return max(1, self.schema.outputs - 1) if self.schema.task == "classification" else 1

    def lasting_key(self, purpose: str) -> bytes:
        """A key of this party's own for one purpose, the same in every start of this run and in its saved model.

        With a book it is the same in all jobs of that book. Else it follows from the seed, which between organisations
        is the party's own secret.
        """
        if purpose in self.kept_keys:
            return self.kept_keys[purpose]
        if (book := self.book_folder) is not None:
            return subkey(lasting_key(book), purpose)
        return seeding.derive_key(self.job.seed, self.name, purpose)

    @property
    def book_folder(self) -> Path | None:
        """Where this party remembers over jobs: the folder it names, or at its own site one beside its runs."""
        own = self.job.party.get(self.name)
        if own is not None and own.book is not None:
            return own.book_path / self.name
        return self.run_folder.parent / BOOK if self.secret and self.run_folder is not None else None

    # --- phases that both have

    def fit(self, labels: FitLabels | None, beat: Any, store: Store | None) -> None:
        """Learn the features at home; `beat` keeps the links alive meanwhile."""
        if not self.data.train.has_features:
            return
        rng = seeding.generator(self.job.seed, self.name, "features")
        progress = PhaseProgress(self.notify, self.name, "features", beat)
        left_off = None if store is None else StateFile(store.folder / "fit.safetensors")
        self.columns = fit_columns(self.job, self.data, rng, labels, progress, left_off)
        if store is not None:
            self.prepared = store.keep_prepared(self.columns.state(training=True))
            assert left_off is not None
            left_off.path.unlink(missing_ok=True)

    def own_width(self) -> int:
        """Columns of this party's block of the sums."""
        return 0 if self.columns is None else self.columns.width

    def blocks(self) -> Iterator[Array]:
        """This party's block of the sums, rows in order."""
        assert self.columns is not None
        yield from self.columns.training_blocks(self.data.train, self.job.blind.block_rows)

    def agree_on_widths(self, link: Link) -> None:
        """What everybody's block has, and with noise the norm that all cut their rows to."""
        self.widths = exchange_widths(link, self.own_width())
        if self.columns is not None:
            self.columns = self.columns.clipped_to(self.clip)

    @property
    def clip(self) -> float | None:
        """The norm of a party's part of a row, where noise is added: as set, or by a rule that all know."""
        if self.job.blind.epsilon is None:
            return None
        # Features have spread 1, so half the length of a typical row of the widest party. Noise falls by four against
        # its whole length, and what is lost of longer rows is little. The constant and a label need some room.
        return self.job.blind.clip or max(2.0, 0.5 * math.sqrt(max(self.widths.values())))

    def plan(self) -> MomentPlan:
        """The release of all sums, as all parties know it."""
        blind, rows = self.job.blind, len(self.data.train)
        names = (self.active, *self.job.parties.passive)
        return MomentPlan(
            parties=names,
            widths={name: self.widths[name] for name in names},
            rows=rows,
            receiver=self.active,
            encryption=blind.encryption,
            value_bits=min(VALUE_BITS, most_bits(rows, LIMIT + 1) if rows else VALUE_BITS),
            limit=LIMIT + 1,
            clip=self.clip,
            epsilon=blind.epsilon,
            delta=blind.delta,
            block_rows=blind.block_rows,
            allow_small_n=blind.allow_small_n,
        )

    def sum_up(self, link: Link, store: Store | None) -> Moments | None:
        """Take part in the release of the sums; the sums at the active party, None at the others."""
        plan = self.plan()
        plan.check()
        kept = None if store is None else StateFile(store.folder / "sums.safetensors")
        begun = None if kept is None else kept.load()
        self._refuse_second_release("" if begun is None else begun["release"])
        runtime = self.job.runtime
        with make_engine(runtime.engine, runtime.workers, runtime.scheduler) as engine:
            party = MomentParty(
                plan,
                self.name,
                self.blocks,
                make_draws(None if self.secret else seeding.derive(self.job.seed, "moments"), self.name),
                begun,
                self._saving(kept, plan),
                engine=engine,
            )
            found = party.run(link, PhaseProgress(self.notify, self.name, "moments"))
        if plan.account is not None:
            self.account = plan.account.state()
        return found

    def _saving(self, kept: StateFile | None, plan: MomentPlan) -> Callable[[Mapping[str, Any]], None]:
        """Keeps the state of the sums, and enters the release into the party's book before anything of it leaves."""

        def save(state: Mapping[str, Any]) -> None:
            if kept is not None:
                kept.save(state)
            if self.book_folder is not None:
                enter_release(self.book_folder, state["release"], EXACT if plan.account is None else plan.account.rho)

        return save

    def _refuse_second_release(self, begun: str) -> None:
        """The party's book knows its earlier releases; `begun` is the one that goes on, if any."""
        own = self.job.party.get(self.name)
        if self.book_folder is None or (own is not None and own.second_head):
            return
        if set(releases_in(self.book_folder)) - {begun}:
            raise RunError(
                f"party {self.name!r} has taken part in sums over its rows before, and two that differ by a row tell "
                "that row; let that party set second_head = true if it agrees, or begin another book"
            )

    # --- what is kept

    def finished(self, phase: str, started: float, store: Store | None) -> None:
        """A phase is over: keep what it gave."""
        assert PHASES[self.step] == phase
        self.seconds[phase] = time.perf_counter() - started
        self.step += 1
        if store is not None:
            store.save(self.step, self.state())

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "prepared": self.prepared,
            "widths": self.widths,
            "seconds": self.seconds,
            "account": self.account,
        }

    def load_state(self, state: Mapping[str, Any], store: Store) -> None:
        self.step, self.widths, self.seconds = state["step"], dict(state["widths"]), dict(state["seconds"])
        self.prepared, self.account = state["prepared"], dict(state["account"])
        if self.prepared:
            self.columns = OwnColumns.of_state(self.job, self.name, store.prepared(self.prepared))
            if self.widths:
                self.columns = self.columns.clipped_to(self.clip)

    def resume(self, store: Store | None) -> None:
        """Take the store, and go on from its checkpoint where there is one."""
        if store is None:
            return
        self.run_folder = store.run
        if store.start_step is not None:
            self.load_state(store.load(store.start_step), store)

    def model(self) -> dict[str, Any]:
        """What this party keeps to serve predictions later."""
        return {
            "protocol": "blind",
            "secret": self.secret,
            "columns": None if self.columns is None else self.columns.state(training=False),
            "widths": self.widths,
            "keys": {purpose: self.lasting_key(purpose).hex() for purpose in self.serving_keys},
            "shape": list(self.data.shape),
            "preprocessing": dict(self.data.preprocessing) if self.data.preprocessing else None,
        }

    def load_model(self, model: Mapping[str, Any]) -> None:
        """Serve with what a training kept."""
        self.kept_keys = {purpose: bytes.fromhex(key) for purpose, key in model["keys"].items()}
        self.secret, self.widths = bool(model["secret"]), dict(model["widths"])
        if model["columns"] is not None:
            self.columns = OwnColumns.of_state(self.job, self.name, model["columns"])

    def summary(self) -> dict[str, Any]:
        """How many features it has, and what is to be known of them."""
        notes = [] if self.secret or self.name != self.active else [SIMULATION]
        if self.columns is None:
            return {"features": 0, "notes": notes}
        return {
            "notes": [*notes, *self.columns.notes],
            "features": self.columns.width,
            "feature_map": getattr(self.columns.map, "chosen", self.columns.map).options.name,
            "feature_notes": list(self.columns.notes),
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
        }
