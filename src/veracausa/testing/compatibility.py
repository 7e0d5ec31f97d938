"""What runs with what: every defense, attack and surrogate is tried on synthetic rows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from veracausa import seeding
from veracausa.attacks import attacks
from veracausa.attacks.base import Exchange, Grant, LiveView
from veracausa.attacks.transcript import Head, Transcript, TranscriptWriter
from veracausa.audit.settings import GRANTED
from veracausa.config import Job
from veracausa.data.vertical import VerticalDataset
from veracausa.defenses import defenses
from veracausa.defenses.causshield.surrogates import surrogates
from veracausa.defenses.protocols import Prepares
from veracausa.errors import InputError, VeracausaError
from veracausa.features import feature_maps
from veracausa.runs.store import deserialize_state, serialize_state
from veracausa.testing.synthetic import BATCH, CLASSES, KINDS, SHAPES, Kind, toy_data, toy_job
from veracausa.training.split.active import ActiveParty
from veracausa.training.split.passive import PassiveParty
from veracausa.training.split.program import Schema, make_party
from veracausa.training.train import why_not
from veracausa.wire.launch import Launch
from veracausa.wire.ledger import Ledger
from veracausa.wire.link import Link


@dataclass(frozen=True)
class Condition:
    """One column of the matrix: what the toy job has beyond the plain one."""

    kind: Kind | None = None
    """The rows; None: a kind that the defense suits."""
    payload: Literal["maps", "vectors"] = "maps"
    job: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parties: int = 2
    overlap: float = 1.0


CONDITIONS: dict[str, Condition] = {
    "tables": Condition("tables"),
    "pictures": Condition("pictures"),
    "colour pictures": Condition("colour pictures"),
    "maps": Condition(),
    "vectors": Condition(payload="vectors"),
    "1 party": Condition(parties=1, job={"parties": {"passive": ("passive_1",)}}),
    "3 parties": Condition(parties=3, job={"parties": {"passive": ("passive_1", "passive_2", "passive_3")}}),
    "overlap": Condition(overlap=0.5),
    "FedBCD": Condition(job={"training": {"local_steps": 2}}),
    "bf16": Condition(job={"runtime": {"precision": "bf16"}}),
}
"""What a tiny federation can show; processes, resume and compile are found out otherwise."""

_PARTY = re.compile(r"^party '[^']*': ")
"""Who said it first depends on the threads."""

ASKED = ("threads", "processes", "resume", "compile")
FAST_SETTINGS: dict[str, Mapping[str, Any]] = {"causshield": {"iterations": 2, "surrogate": {"name": "none"}}}
"""Settings that keep a trial short; which surrogates suit which rows is another question."""


def defense_row(name: str) -> dict[str, str]:
    """By condition, why this defense does not run under it; empty where it does."""
    kind, unsuited = suited(name)
    found: dict[str, str] = {}
    for condition, wanted in CONDITIONS.items():
        if condition == "maps" and kind in found:
            found[condition] = found[kind]  # the same job
        else:
            found[condition] = tried(name, condition, kind) if wanted.kind or not unsuited else unsuited
    for what in ASKED:
        found[what] = found["maps"] if what == "threads" else unsuited or asked(name, what, kind)
    return found


def tried(name: str, condition: str, kind: Kind | None = None) -> str:
    """Why a tiny federation with this defense fails under this condition, on rows that it suits; empty if it runs."""
    wanted = CONDITIONS[condition]
    return _failure(lambda: federate(*made(name, wanted, wanted.kind or kind or suited(name)[0])))


def suited(name: str) -> tuple[Kind, str]:
    """A kind of rows that the defense does not refuse, with maps where it can; why not, if there is none."""
    why = ""
    order: tuple[Kind, ...] = ("pictures", "colour pictures", "tables")
    for kind in order:
        why = why_not(*made(name, Condition(), kind))
        if not why:
            return kind, ""
    return "tables", why


def asked(name: str, what: str, kind: Kind) -> str:
    """The same for runs in processes, runs that are broken off, and runs that are compiled."""
    if what == "processes":
        return _found_elsewhere(name)
    if what == "resume":
        return _failure(lambda: _broken_off(*made(name, Condition(), kind)))
    return _failure(lambda: _compiled(*made(name, Condition(job={"runtime": {"compile": True}}), kind)))


def made(name: str, wanted: Condition, kind: Kind) -> tuple[Job, VerticalDataset]:
    """The toy job and its rows under a condition."""
    job = toy_job(kind, {"name": name, **FAST_SETTINGS.get(name, {})}, wanted.payload, **wanted.job)
    return job, toy_data(kind, wanted.parties, wanted.overlap)


def federate(job: Job, data: VerticalDataset, steps: int = 2) -> None:
    """Two exchanges and the test rows, between parties in threads; raises what goes wrong."""
    with tempfile.TemporaryDirectory() as folder:

        def program(name: str) -> Callable[..., None]:
            def run(link: Link, notify: object) -> None:
                link.ledger = Ledger(Path(folder) / f"{name}.jsonl")
                party = make_party(job, data.parties[name], Schema.of(data))
                if isinstance(party, ActiveParty):
                    party.meet(link)
                    for _ in range(steps):
                        party.train_step(link)
                    outputs = party.outputs_of(link, "test")
                    if not outputs.isfinite().all():
                        raise VeracausaError("its predictions are not finite")
                    party.finish(link)
                else:
                    party.run(link)

            return run

        order = sorted(data.parties, key=lambda name: name == data.active)
        Launch("threads", job.runtime.timeout).run({name: program(name) for name in order})


def _failure(work: Callable[[], object]) -> str:
    try:
        work()
    except VeracausaError as error:
        return _PARTY.sub("", str(error))
    except Exception as error:  # a plug-in's own: the reader must see what it was
        return f"{type(error).__name__}: {error}"
    return ""


def _broken_off(job: Job, data: VerticalDataset) -> None:
    """A party that takes over another's checkpoint must send what that one sends next."""
    outputs = Schema.of(data).outputs

    def made() -> PassiveParty:
        return PassiveParty(job, data.parties["passive_1"], outputs)

    old, fresh = made(), made()
    old.bottom.train()
    if isinstance(old.defense, Prepares):
        old.defense.prepare(old.parts["train"])
    ids = torch.arange(job.training.batch_size)
    rows = old.parts["train"].take(ids)
    payload, context = old.defense.forward(rows, ids, 0)
    old.defense.backward(context, torch.full_like(payload, 0.01))
    if isinstance(old.defense, Prepares) and isinstance(fresh.defense, Prepares):
        kept = deserialize_state(serialize_state(old.defense.prepared()))
        fresh.defense.load_prepared(kept, fresh.parts["train"])
    fresh.load_state(deserialize_state(serialize_state(old.state())))
    fresh.bottom.train()
    first, second = (party.defense.forward(rows, ids, 1)[0] for party in (old, fresh))
    if not torch.equal(first, second):
        raise VeracausaError("a resumed party goes on otherwise: its checkpoint does not keep all that it needs")


def _found_elsewhere(name: str) -> str:
    """Whether a process of its own would find the defense: in this package, or behind an entry point."""
    module = defenses.get(name).__module__
    plugins = {plugin.value.partition(":")[0] for plugin in defenses.plugins()}
    if module.startswith("veracausa.defenses.") or module in plugins:
        return ""
    return f"registered in {module}, which a process of its own does not import; name it as an entry point"


def _compiled(job: Job, data: VerticalDataset) -> None:
    """Fails unless something of the defense is handed to the compiler, which only notes it: it takes a minute."""
    handed: list[object] = []
    party = PassiveParty(job, data.parties["passive_1"], Schema.of(data).outputs)
    party.bottom.train()
    if isinstance(party.defense, Prepares):
        party.defense.prepare(party.parts["train"])
    ids = torch.arange(job.training.batch_size)
    with _compiler(handed):
        party.defense.forward(party.parts["train"].take(ids), ids, 0)
    if not handed:
        raise VeracausaError("has nothing that is compiled: runtime.compile changes nothing")


@contextmanager
def _compiler(handed: list[object]) -> Iterator[None]:
    real = torch.compile

    def noted(function: Any = None, **settings: Any) -> Any:
        handed.append(function)
        return function

    torch.compile = noted  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compile = real


FROM_A_RUN = Grant.WEIGHTS | Grant.DEFENSE | Grant.QUERIES | Grant.TAMPER
"""What no transcript can give: the victim's own model or defense, or a say in its training."""


class _Begun(Exception):
    """The attack has begun to learn: nothing refused these rows."""


def facts_of(name: str) -> dict[str, Any]:
    """What the attack declares.

    `live`: it must be there while the victim trains. `transcript alone`: what was recorded, and rows of its own, are
    all it needs. `past payloads`: it reads what crossed in earlier exchanges too. `granted`: an audit can give it all
    of `needs`.
    """
    attack = attacks.get(name)
    granted = GRANTED | Grant.TAMPER if attack.live else GRANTED
    return {
        "live": attack.live,
        "transcript alone": not attack.live and not attack.needs & FROM_A_RUN,
        "past payloads": attack.uses_transcript,
        "granted": not attack.needs & ~granted,
        "needs": list(attack.needs.words),
    }


def attack_row(name: str) -> dict[str, str]:
    """By kind of rows, why the attack refuses them; empty where it begins."""
    return {kind: begun(name, kind) for kind in KINDS}


def begun(name: str, kind: Kind) -> str:
    """Why this attack does not begin on rows of this kind, given all it needs; empty if it does."""
    options = attacks.options(name)(name=name)
    with tempfile.TemporaryDirectory() as folder:
        view = _view(kind, Path(folder))
        try:
            attacks.get(name)(options).begin(view)
        except _Begun:
            return ""
        except VeracausaError as error:
            return str(error)
    return ""


def _view(kind: Kind, folder: Path) -> LiveView:
    """Everything that can be granted, over a toy party's untrained model."""
    job, data = toy_job(kind, {"name": "none"}), toy_data(kind)
    active, schema = data.parties["active"], Schema.of(data)
    party = PassiveParty(job, data.parties["passive_1"], schema.outputs)
    party.bottom.eval()
    rows = party.parts["test"].take(torch.arange(len(party.parts["test"])))
    known = torch.arange(BATCH)

    def oracle() -> torch.Tensor:
        with torch.no_grad():
            payloads: torch.Tensor = party.bottom(rows)
        return payloads

    def fresh(rng: torch.Generator) -> torch.nn.Module:
        return PassiveParty(job, data.parties["passive_1"], schema.outputs).bottom

    def defense(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator) -> Any:
        made = PassiveParty(job, data.parties["passive_1"], schema.outputs).defense
        made.bind(model, optimizer, rng)
        return made

    def begins(share: float) -> None:
        raise _Begun

    assert active.train.labels is not None
    assert active.test.labels is not None
    return LiveView(
        grants=~Grant.NONE,
        victim="passive_1",
        payload_shape=party.shape,
        row_shape=party.data.shape,
        pixels=kind != "tables",
        rng=seeding.generator(0, "toy"),
        device=torch.device("cpu"),
        auxiliary=rows,
        auxiliary_labels=active.test.labels,
        labels=active.train.labels,
        classes=CLASSES,
        bottom=fresh,
        defense=defense,
        transmit=party.bottom,
        transcript=_transcript(folder, party),
        known_ids=known,
        known=party.parts["train"].take(known),
        oracle=oracle,
        oracle_at={"start": oracle, "end": oracle},
        progress=begins,
        predict=lambda payloads, numbers=None: torch.zeros(len(rows), CLASSES),
        others={"passive_2": data.parties["passive_2"].test.take(torch.arange(len(rows)))},
        other_bottoms={"passive_2": fresh},
    )


def _transcript(folder: Path, party: PassiveParty) -> Transcript:
    """What crossed in two exchanges."""
    head = Head(victim="passive_1", payload_shape=party.shape, moments={"start": 1, "end": 2})
    writer = TranscriptWriter(folder, head)
    ids = torch.arange(BATCH)
    with torch.no_grad():
        payload = party.bottom(party.parts["train"].take(ids))
    for step in (1, 2):
        writer.add(Exchange(step, ids, payload, None))
    writer.close()
    return Transcript(folder)


Progress = Callable[[str], None]


def support_matrix(progress: Progress = lambda name: None) -> dict[str, dict[str, dict[str, Any]]]:
    """Kind of thing -> name -> column -> what was found.

    A column that asks whether something runs holds the reason why not, and nothing where it does; the other columns of
    an attack, and those of a feature map, hold what it declares.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {"defenses": {}, "attacks": {}, "surrogates": {}, "features": {}}
    for name in defenses.names():
        progress(name)
        found["defenses"][name] = dict(defense_row(name))
    for name in attacks.names():
        progress(name)
        found["attacks"][name] = {**attack_row(name), **facts_of(name)}
    for name in surrogates.names():
        found["surrogates"][name] = dict(surrogate_row(name))
    for name in feature_maps.names():
        found["features"][name] = dict(feature_map_row(name))
    return found


def feature_map_row(name: str) -> dict[str, bool]:
    """What the feature map declares: which rows it takes, what it does with labels, whether it reads row by row."""
    made = feature_maps.get(name)
    return {
        "tables": made.tables,
        "pictures": made.pictures,
        "uses labels": made.labelled,
        "needs labels": made.needs_labels,
        "streams": made.streams,
    }


def surrogate_row(name: str) -> dict[str, str]:
    """By kind of rows, why this kind of surrogate does not suit them."""
    row: dict[str, str] = {}
    for kind in KINDS:
        try:
            surrogates.get(name)(surrogates.options(name)(name=name)).check(torch.Size(SHAPES[kind]))
            row[kind] = ""
        except InputError as error:
            row[kind] = str(error)
    return row
