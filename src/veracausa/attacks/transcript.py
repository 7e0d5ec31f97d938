"""A recorded training: what crossed from one passive party, exchange by exchange, in a folder on disk.

What an attacker makes of the many payloads of one id stands here too: their mean, and those nearest to a snapshot.

`transcript.json` says what it is about; `part-00000.safetensors` and its followers hold the payloads. The format is
described in docs/transcripts.md, so that a training of somebody else's program can be attacked too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import save
from torch import Tensor

from veracausa.atomic import atomic_write
from veracausa.attacks.base import Exchange
from veracausa.errors import InputError

__all__ = ["Head", "Transcript", "TranscriptWriter"]


class TranscriptWriter:
    """Writes a transcript; at most `buffer_mib` of payloads wait in memory, a kill leaves whole parts.

    What the folder holds already is forgotten, unless it is opened to `resume`: then `cut_back` says how much stays.
    """

    def __init__(self, path: Path, head: Head, buffer_mib: int = 64, resume: bool = False) -> None:
        self.path, self.head, self.limit = path, head.model_copy(update={"exchanges": None}), buffer_mib << 20
        self.parts, self.exchanges, self._bytes = 0, 0, 0
        self._waiting: list[Exchange] = []
        self.path.mkdir(parents=True, exist_ok=True)
        if not resume:
            self.cut_back(0, 0)

    def add(self, exchange: Exchange) -> None:
        """Keep one exchange; `others` that the head does not name are left out."""
        others = {name: exchange.others[name] for name in self.head.others}
        kept = Exchange(
            exchange.step,
            exchange.ids.to("cpu", torch.int64, copy=True),
            self._stored(exchange.payload),
            None if exchange.labels is None else exchange.labels.to("cpu", copy=True),
            {name: self._stored(payload) for name, payload in others.items()},
        )
        self._waiting.append(kept)
        self.exchanges += 1
        self._bytes += sum(payload.nbytes for payload in (kept.payload, *kept.others.values()))
        if self._bytes >= self.limit:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one part."""
        if not self._waiting:
            return
        rows = [len(exchange.ids) for exchange in self._waiting]
        tensors = {
            "payloads": torch.cat([exchange.payload for exchange in self._waiting]),
            "ids": torch.cat([exchange.ids for exchange in self._waiting]),
            "steps": torch.tensor([exchange.step for exchange in self._waiting]).repeat_interleave(torch.tensor(rows)),
        }
        labels = [exchange.labels for exchange in self._waiting if exchange.labels is not None]
        if len(labels) == len(rows):
            tensors["labels"] = torch.cat(labels)
        for name in self.head.others:
            tensors[f"others/{name}"] = torch.cat([exchange.others[name] for exchange in self._waiting])
        atomic_write(self.path / f"part-{self.parts:05d}.safetensors", save(tensors))
        self.parts += 1
        self._waiting, self._bytes = [], 0

    def cut_back(self, parts: int, exchanges: int) -> None:
        """Forget what was written after the first `parts` parts: a resume will write it again."""
        self._waiting, self._bytes = [], 0
        self.parts, self.exchanges = parts, exchanges
        for number, path in parts_of(self.path):
            if number >= parts:
                path.unlink()
        self._write_head(None)

    def close(self) -> None:
        """The last part, and the number of exchanges: from here on a missing part is noticed."""
        self.flush()
        self._write_head(self.exchanges)

    def _write_head(self, exchanges: int | None) -> None:
        self.head = self.head.model_copy(update={"exchanges": exchanges})
        atomic_write(self.path / HEAD, (self.head.model_dump_json(indent=2) + "\n").encode())

    def _stored(self, payload: Tensor) -> Tensor:
        return payload.detach().to("cpu", DTYPES[self.head.dtype], copy=True).contiguous()


@dataclass(frozen=True)
class _Rows:
    """One part, read."""

    payloads: Tensor
    ids: Tensor
    steps: Tensor
    labels: Tensor | None
    others: Mapping[str, Tensor] = field(default_factory=dict)


class Transcript:
    """A transcript to attack; checked when it is opened, read a part at a time."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.head = read_head(self.path)
        self._paths = self._numbered()
        before, exchanges, labelled = 0, 0, set()
        for number in range(len(self._paths)):
            rows = self._checked(number)
            if int(rows.steps[0]) <= before:
                raise InputError(
                    f"{self._paths[number]}: begins with exchange {int(rows.steps[0])}, the part before it ends "
                    f"with {before}; a part stands here twice or out of order"
                )
            before = int(rows.steps[-1])
            exchanges += len(_counted(rows.steps)[0])
            labelled.add(rows.labels is not None)
        if len(labelled) > 1:
            raise InputError(f"{self.path}: some parts have labels and some have none; give all of them or none")
        if self.head.exchanges is not None and exchanges != self.head.exchanges:
            raise InputError(
                f"{self.path}: {HEAD} says {self.head.exchanges} exchanges, its parts hold {exchanges}; "
                "put the missing part back"
            )
        self.exchanges = exchanges

    def __len__(self) -> int:
        return self.exchanges

    def __iter__(self) -> Iterator[Exchange]:
        for number in range(len(self._paths)):
            rows = self._read(number)
            steps, counts = _counted(rows.steps)
            parts = [torch.split(value, counts) for value in (rows.ids, rows.payloads)]
            labels = torch.split(rows.labels, counts) if rows.labels is not None else [None] * len(counts)
            others = {name: torch.split(value, counts) for name, value in rows.others.items()}
            for place, (step, ids, payload, label) in enumerate(zip(steps, *parts, labels, strict=True)):
                yield Exchange(step, ids, payload, label, {name: split[place] for name, split in others.items()})

    def step_of(self, moment: str | int) -> int:
        """The exchange that a moment's name means; a number stands for itself."""
        if isinstance(moment, int):
            return moment
        if moment not in self.head.moments:
            raise InputError(f"{self.path}: no moment {moment!r} (there are: {', '.join(self.head.moments) or 'none'})")
        return self.head.moments[moment]

    def at(self, moment: str | int) -> Exchange:
        """The exchange of that moment."""
        wanted = self.step_of(moment)
        for exchange in self:
            if exchange.step == wanted:
                return exchange
        raise InputError(f"{self.path}: exchange {wanted} was not recorded")

    def last_payloads(self, ids: Tensor, until: str | int | None = None) -> tuple[Tensor, Tensor]:
        """The latest payload of each id, and the exchange it crossed in; with `until`, up to that moment."""
        payloads, steps = self.all_payloads(ids, 1, until)
        if (steps < 0).any():
            lost = int(ids[(steps[:, 0] < 0).nonzero()[0, 0]])
            raise InputError(f"{self.path}: no payload of id {lost} was recorded")
        return payloads[:, 0], steps[:, 0]

    def all_payloads(self, ids: Tensor, most: int = 32, until: str | int | None = None) -> tuple[Tensor, Tensor]:
        """(n, most, *shape) payloads of each id, the latest first, and (n, most) their exchanges, -1 where none is."""
        last = None if until is None else self.step_of(until)
        wanted = ids.to("cpu", torch.int64)
        order = wanted.argsort()
        ranked = wanted[order]
        payloads = torch.zeros(len(ids), most, *self.head.payload_shape, dtype=DTYPES[self.head.dtype])
        steps = torch.full((len(ids), most), -1)
        filled = torch.zeros(len(ids), dtype=torch.int64)
        if not len(ids):
            return payloads, steps
        for number in reversed(range(len(self._paths))):
            if int(filled.min()) >= most:
                break
            rows = self._read(number)
            place = torch.searchsorted(ranked, rows.ids).clamp(max=len(ranked) - 1)
            hit = ranked[place] == rows.ids
            if last is not None:
                hit &= rows.steps <= last
            for row in reversed(hit.nonzero().squeeze(1).tolist()):
                target = int(order[place[row]])
                if (slot := int(filled[target])) < most:
                    payloads[target, slot], steps[target, slot] = rows.payloads[row], rows.steps[row]
                    filled[target] += 1
        return payloads, steps

    def _numbered(self) -> list[Path]:
        found = parts_of(self.path)
        for expected, (number, _) in enumerate(found):
            if number != expected:
                raise InputError(f"{self.path}: part-{expected:05d}.safetensors is missing; parts count up from 00000")
        if not found:
            raise InputError(f"{self.path}: there is no part-00000.safetensors; nothing was recorded")
        return [path for _, path in found]

    def _read(self, number: int) -> _Rows:
        path = self._paths[number]
        try:
            with safetensors.safe_open(path, "pt") as file:
                names = set(file.keys())
                tensors = {name: file.get_tensor(name) for name in names}
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(f"{path}: not a whole safetensors file ({error}); record or copy it again") from None
        for name in ("payloads", "ids", "steps", *(f"others/{other}" for other in self.head.others)):
            if name not in names:
                raise InputError(f"{path}: has no tensor {name!r} (there are: {', '.join(sorted(names))})")
        others = {other: tensors[f"others/{other}"] for other in self.head.others}
        return _Rows(tensors["payloads"], tensors["ids"], tensors["steps"], tensors.get("labels"), others)

    def _checked(self, number: int) -> _Rows:
        path, rows, head = self._paths[number], self._read(number), self.head
        count = len(rows.payloads) if rows.payloads.ndim else 0
        if not count:
            raise InputError(f"{path}: has no payloads")
        for name, values, shape in (
            ("payloads", rows.payloads, head.payload_shape),
            *((f"others/{other}", rows.others[other], shape) for other, shape in head.others.items()),
        ):
            check_payloads(path, name, values, (count, *shape), head.dtype)
        for name, numbers in (("ids", rows.ids), ("steps", rows.steps), ("labels", rows.labels)):
            if numbers is not None and tuple(numbers.shape) != (count,):
                raise InputError(f"{path}: {count} payloads and {name} of shape {tuple(numbers.shape)}; each needs one")
        for name, numbers in (("ids", rows.ids), ("steps", rows.steps)):
            if numbers.dtype != torch.int64:
                raise InputError(f"{path}: {name} are {type_word(numbers.dtype)}; they must be int64")
        if int(rows.ids.min()) < 0:
            raise InputError(f"{path}: an id is {int(rows.ids.min())}; ids count from 0")
        if int(rows.steps.min()) < 1 or bool((rows.steps.diff() < 0).any()):
            raise InputError(f"{path}: steps must count up from 1, and none may come after a later one")
        if rows.labels is not None:
            check_labels(path, rows.labels, head)
        return rows


def _counted(steps: Tensor) -> tuple[list[int], list[int]]:
    """The exchanges of a part, and how many rows each has."""
    found, counts = torch.unique_consecutive(steps, return_counts=True)
    return found.tolist(), counts.tolist()


VERSION = 1
HEAD = "transcript.json"
_PART = re.compile(r"part-(\d{5})\.safetensors")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Head(BaseModel):
    """What `transcript.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = VERSION
    victim: str
    payload_shape: tuple[int, ...] = Field(min_length=1)
    dtype: str = "float32"
    row_shape: tuple[int, ...] | None = None
    task: str = Field("classification", pattern="^(classification|regression)$")
    classes: int = Field(0, ge=0)
    """How many; 0 in a regression, or where they are not known."""
    moments: dict[str, int] = {}
    """Exchanges by name, such as {"start": 1, "end": 1280}."""
    others: dict[str, tuple[int, ...]] = {}
    """The other passive parties whose payloads stand beside the victim's, and their shapes."""
    exchanges: int | None = None
    """How many there are; unset while a training is still being recorded."""


def check_payloads(path: Path, name: str, values: Tensor, shape: Sequence[int], dtype: str) -> None:
    """Refuse payloads of another shape or type than the head says, or that are not finite."""
    if tuple(values.shape) != tuple(shape):
        raise InputError(f"{path}: {name} have shape {tuple(values.shape)}, {HEAD} makes it {tuple(shape)}")
    if values.dtype != DTYPES[dtype]:
        raise InputError(f"{path}: {name} are {type_word(values.dtype)}, {HEAD} says {dtype}")
    if not values.isfinite().all():
        row = int((~values.isfinite()).flatten(1).any(1).nonzero()[0, 0])
        raise InputError(f"{path}: row {row} of {name} is not finite; a training that diverged cannot be read")


def check_labels(path: Path, labels: Tensor, head: Head) -> None:
    """Refuse labels that do not suit the task."""
    if head.task == "regression":
        if not (labels.is_floating_point() and labels.isfinite().all()):
            raise InputError(f"{path}: the labels of a regression must be finite floating-point numbers")
    elif labels.dtype != torch.int64 or int(labels.min()) < 0:
        raise InputError(f"{path}: labels must be int64 classes from 0")
    elif head.classes and int(labels.max()) >= head.classes:
        raise InputError(f"{path}: a label is {int(labels.max())}, {HEAD} says {head.classes} classes")


def read_head(path: Path) -> Head:
    """What `transcript.json` says, checked."""
    try:
        text = (path / HEAD).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: not a transcript (it has no {HEAD})") from None
    try:
        head = Head.model_validate_json(text)
    except (ValidationError, UnicodeDecodeError) as error:
        problem: Any = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {}
        where = ".".join(map(str, problem.get("loc", ())))
        raise InputError(f"{path / HEAD}: {where + ': ' if where else ''}{problem.get('msg', 'not text')}") from None
    if head.version != VERSION:
        raise InputError(f"{path / HEAD}: version {head.version} of the format; this program reads version {VERSION}")
    if head.dtype not in DTYPES:
        raise InputError(f"{path / HEAD}: dtype {head.dtype!r} (there are: {', '.join(DTYPES)})")
    return head


def parts_of(path: Path) -> list[tuple[int, Path]]:
    """The parts by number, as far as there are any."""
    found = ((_PART.fullmatch(entry.name), entry) for entry in path.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match)


def type_word(dtype: torch.dtype) -> str:
    """Its name as a head would write it."""
    return str(dtype).removeprefix("torch.")


_ENOUGH_ROWS = 16
_NEVER = torch.iinfo(torch.int64).max


def averaged(payloads: Tensor, known: Tensor) -> Tensor:
    """The mean over the second axis of (n, k, *shape), of those that are known (n, k)."""
    weight = known.float() / known.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("nk,nk...->n...", weight, payloads.float())


def nearest_payloads(exchanges: Iterable[Exchange], ids: Tensor, steps: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(n, k, *shape): of each id the payload that crossed nearest to each of k exchanges; and which ids crossed, (n,).

    One pass over the transcript. An id crosses once an epoch, so "nearest" may be half an epoch away.
    """
    wanted = ids.to("cpu", torch.int64)
    ranked, order = wanted.sort()
    targets = torch.tensor(list(steps))
    distance = torch.full((len(ids), len(steps)), _NEVER)
    found: Tensor | None = None
    for exchange in exchanges:
        if found is None:
            found = torch.zeros(len(ids), len(steps), *exchange.payload.shape[1:])
        known = exchange.ids.cpu()
        # Every place where an id is asked for: it may be asked for twice.
        first, last = torch.searchsorted(ranked, known), torch.searchsorted(ranked, known, right=True)
        rows = torch.arange(len(known)).repeat_interleave(last - first)
        if not len(rows):
            continue
        within = torch.arange(len(rows)) - ((last - first).cumsum(0) - (last - first))[rows]
        place = order[first[rows] + within]
        away = (targets - exchange.step).abs()
        payload = exchange.payload.cpu().float()
        for number in range(len(steps)):
            nearer = distance[place, number] > away[number]
            found[place[nearer], number] = payload[rows[nearer]]
            distance[place[nearer], number] = away[number]
    if found is None:
        raise InputError("the transcript is empty: nothing crossed that an attack could remember")
    return found, (distance < _NEVER).all(1)


def aligned(payloads: Tensor, like: Tensor) -> Tensor:
    """The payloads with the mean and deviation of others, by channel of maps or feature of vectors.

    What crossed in training came from batch statistics and from weights of other epochs; its scale is not the final
    model's. Of a few rows no scale can be told, and they stay as they are.
    """
    if len(payloads) < _ENOUGH_ROWS or len(like) < _ENOUGH_ROWS:
        return payloads
    over = (0, *range(2, payloads.ndim)) if payloads.ndim > 2 else (0,)
    have, want = (values.std(over, correction=0, keepdim=True) for values in (payloads, like))
    scale = torch.where(have > 1e-6 * want.max() + 1e-12, want / have.clamp(min=1e-12), 0.0)
    moved: Tensor = (payloads - payloads.mean(over, keepdim=True)) * scale + like.mean(over, keepdim=True)
    return moved


def stack(parts: Sequence[Tensor]) -> Tensor:
    """Maps of one height and width as channels; else everything as one vector a row."""
    if len({part.shape[2:] for part in parts}) == 1:
        return torch.cat(list(parts), 1)
    return torch.cat([part.reshape(len(part), math.prod(part.shape[1:])) for part in parts], 1)


def spread(transcript: Transcript, count: int) -> list[int]:
    """So many exchanges of the training, evenly spread, the last among them; fewer where it had fewer."""
    steps = [exchange.step for exchange in transcript]
    if not steps:
        raise InputError("the transcript is empty: nothing crossed that an attack could remember")
    places = {len(steps) - 1 - share * len(steps) // count for share in range(count)}
    return [steps[place] for place in sorted(places)]
