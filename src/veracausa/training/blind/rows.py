"""A party's own rows as columns of the sums: mapped, centred, scaled, limited, and checked at home.

The sums of a column with another party's columns tell that party's rows, if few rows make up the column: an indicator
of one row opens that row. So a feature that fewer than `blind.min_rows` rows make up is left out, with a note. That
guards a party that follows the protocol against its own columns; a malicious party can send any column it likes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veracausa.arrays import Array
from veracausa.config import Job
from veracausa.data.vertical import Part, PartyData, RowBlock
from veracausa.errors import InputError, RunError
from veracausa.events import ProgressCallback
from veracausa.features import feature_maps
from veracausa.features.base import FeatureMap, FitContext, FitLabels, OwnRows, row_columns
from veracausa.models.runner import choose_device
from veracausa.runs.store import StateFile
from veracausa.training.blind.leverage import singles_out
from veracausa.training.blind.protocol import MOST_FEATURES

LIMIT = 15.0
"""The largest size of a scaled feature: what lies beyond is set to it. Sums of integers need a bound."""
VALUE_BITS = 12
"""Fractional bits of a feature in the sums, or fewer where rows are so many that their sums would not fit."""
SCORED_ROWS = 256
"""Rows mapped at a time for prediction, always as many: some networks round by how many there are."""
KEPT_BYTES = 1 << 28
"""Mapped training rows are kept in memory up to this size, and are mapped again each time beyond it."""


@dataclass(frozen=True)
class Scaling:
    """Features with mean 0 and spread 1 over a party's own training rows, and none beyond `LIMIT`."""

    kept: NDArray[np.int64]
    """Which features of the map are used."""
    mean: Array
    spread: Array

    def __call__(self, features: Array) -> Array:
        scaled = (features[:, self.kept] - self.mean) / self.spread
        return np.ascontiguousarray(np.clip(scaled, -LIMIT, LIMIT))

    def state(self) -> dict[str, Any]:
        return {
            name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in ("kept", "mean", "spread")
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Scaling:
        return cls(*(state[name].numpy() for name in ("kept", "mean", "spread")))


@dataclass(frozen=True)
class OwnColumns:
    """A fitted map, its scaling, and where needed a presence column: 1 where the party holds a row."""

    map: FeatureMap
    scaling: Scaling
    presence: bool
    trained: Array | None = None
    """The map's features of the very training rows, where the map learnt from labels and gave them cross-fitted."""
    notes: tuple[str, ...] = ()
    clip: float | None = None
    """The norm that no row exceeds, where noise is to be added to the sums."""
    _mapped: dict[int, Array] = field(default_factory=dict)
    """Blocks of scaled training rows, by position, where they fit into memory."""

    @property
    def width(self) -> int:
        return len(self.scaling.kept) + self.presence

    def clipped_to(self, norm: float | None) -> OwnColumns:
        """The same, with rows cut to this norm."""
        return replace(self, clip=norm, _mapped={})

    def training_blocks(self, part: Part, rows: int) -> Iterator[Array]:
        """(rows, width) blocks over all positions in order; zeros where the party lacks the row."""
        keep = 8 * len(part) * self.width <= KEPT_BYTES
        for start in range(0, len(part), rows) if len(self._mapped) * rows >= len(part) else ():
            yield self._mapped[start]
        if len(self._mapped) * rows >= len(part):
            return
        seen = 0
        for block in part.blocks(rows):
            held = 0 if block.features is None else len(block.features)
            columns = self._columns(block, seen)
            seen += held
            if keep:
                self._mapped[block.start] = columns
            yield columns

    def _columns(self, block: RowBlock, seen: int) -> Array:
        assert block.features is not None
        held = len(block.features)
        raw = self.map.map(block.features) if self.trained is None else self.trained[seen : seen + held]
        scaled = self._limited(self.scaling(_checked(raw)))
        if block.present is None:
            return scaled
        whole = np.zeros((len(block), self.width))
        whole[block.present.numpy()] = scaled
        return whole

    def _limited(self, scaled: Array) -> Array:
        """With the presence column, and no longer than the clip."""
        if self.presence:
            scaled = np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)
        return scaled if self.clip is None else shortened(scaled, self.clip, fixed=int(self.presence))

    def of(self, features: Tensor) -> Array:
        """(n, width) of rows to predict, all of them present, each of its own row alone."""
        parts = []
        for rows in torch.split(features, SCORED_ROWS):
            filled = rows
            if len(rows) < SCORED_ROWS:
                filled = torch.cat([rows, rows[-1:].expand(SCORED_ROWS - len(rows), *rows.shape[1:])])
            parts.append(self.scaling(_checked(self.map.map(filled)))[: len(rows)])
        scaled = np.concatenate(parts) if parts else np.zeros((0, len(self.scaling.kept)))
        return self._limited(scaled)

    def state(self, training: bool) -> dict[str, Any]:
        """What `of_state` needs; with `training`, also to go on with the training rows."""
        kept = self.trained if training else None
        return {
            "map": self.map.state(),
            "scaling": self.scaling.state(),
            "presence": self.presence,
            "notes": list(self.notes),
            "clip": self.clip,
            "trained": None if kept is None else torch.from_numpy(kept),
        }

    @classmethod
    def of_state(cls, job: Job, party: str, state: Mapping[str, Any]) -> OwnColumns:
        fitted = make_map(job, party)
        if hasattr(fitted, "model"):  # its network is the job's, which was allowed; a file allows nothing
            fitted.model = job.model
        fitted.load_state(state["map"])
        trained = state.get("trained")
        return cls(
            fitted,
            Scaling.of(state["scaling"]),
            bool(state["presence"]),
            None if trained is None else trained.numpy(),
            tuple(state["notes"]),
            state["clip"],
        )


def shortened(rows: Array, norm: float, fixed: int) -> Array:
    """Rows no longer than `norm`: their first columns are scaled down, the last `fixed` stay as they are."""
    free = rows[:, : rows.shape[1] - fixed]
    # A little less than the norm: what the sums find too long they scale down as a whole, with the fixed columns.
    left = np.sqrt(np.maximum((norm * (1 - 1e-9)) ** 2 - (rows[:, rows.shape[1] - fixed :] ** 2).sum(1), 0.0))
    length = np.sqrt((free**2).sum(1))
    factor = np.minimum(1.0, left / np.maximum(length, 1e-300))
    return np.concatenate([free * factor[:, None], rows[:, rows.shape[1] - fixed :]], axis=1)


def make_map(job: Job, party: str) -> FeatureMap:
    """The party's feature map as the job sets it, not fitted."""
    options = job.features_of(party)
    made: FeatureMap = feature_maps.get(options.name)(options)
    return made


def own_rows(data: PartyData) -> OwnRows:
    """The training rows that a party holds, in the order of positions."""
    part = data.train
    assert part.features is not None
    features = part.features
    if part.index is not None:
        rows = part.index[part.index >= 0]
        if not torch.equal(rows, torch.arange(len(rows))):
            features = features[rows]
    return OwnRows(features, row_columns(data.preprocessing))


def check_rows(job: Job, data: PartyData) -> None:
    """Refuse a map that cannot take this party's rows, before anything is started."""
    feature_map = make_map(job, data.name)
    if feature_map.needs_labels and data.name != job.parties.active and job.blind.labels == "none":
        raise InputError(
            f"party {data.name!r}: features.name: {feature_map.options.name!r} learns from labels, and blind.labels is "
            '"none"; take another map, or "private"'
        )
    if data.train.stream is not None:
        if not feature_map.streams:
            raise InputError(
                f"party {data.name!r}: features.name: {feature_map.options.name!r} needs all rows in memory; take one "
                "that streams, or set data.stream = false"
            )
        return
    if not data.train.present_count():
        raise InputError(f"party {data.name!r} holds none of the training rows; check that the ids name the same rows")
    try:
        feature_map.check(own_rows(data))
    except InputError as error:
        raise InputError(f"party {data.name!r}: {error}") from None


def fit_columns(
    job: Job,
    data: PartyData,
    rng: torch.Generator,
    labels: FitLabels | None,
    progress: ProgressCallback,
    store: StateFile | None = None,
) -> OwnColumns:
    """Fit the party's map on its own rows, then centre, scale and check its features. Nothing leaves the party."""
    feature_map = make_map(job, data.name)
    opens = data.name == job.parties.active
    guarded = opens and job.blind.epsilon is None and not job.blind.allow_small_n
    context = FitContext(
        rng,
        choose_device(job.runtime.device),
        job.runtime,
        job.model,
        labels if feature_map.labelled or feature_map.needs_labels else None,
        lambda share: progress(0.9 * share),
        **({} if store is None else {"store": store}),
        opens=opens,
        singles_out=partial(singles_out, least_rows=job.blind.min_rows) if guarded else None,
    )
    part, trained = data.train, None
    try:
        if part.stream is not None:
            feature_map.fit_blocks(
                lambda: _features(part, job.blind.block_rows),
                row_columns(data.preprocessing),
                part.present_count(),
                context,
            )
        else:
            trained = feature_map.fit(own_rows(data), context)
    except InputError as error:  # a map does not know whose it is
        raise InputError(f"party {data.name!r}: {error}") from error
    presence = part.present_count() < len(part)
    scaling, notes = _scaled(job, data, feature_map, trained, lambda share: progress(0.9 + 0.1 * share))
    merged = [f"party {data.name}: {note}" for note in _map_notes(feature_map)]
    learnt = getattr(feature_map, "chosen", feature_map)  # what `auto` has picked
    if labels is not None and data.name != job.parties.active and not (learnt.labelled or learnt.needs_labels):
        merged.append(
            f"party {data.name}: was told labels for nothing: {learnt.options.name!r} learns without them; "
            'set blind.labels = "none"'
        )
    columns = OwnColumns(feature_map, scaling, presence, trained, (*merged, *notes))
    if columns.width > MOST_FEATURES:
        raise InputError(
            f"party {data.name!r}: {columns.width} features, at most {MOST_FEATURES} can be scored; set fewer in "
            "[features]"
        )
    held, lacking = part.present_count(), len(part) - part.present_count()
    if presence and min(held, lacking) < job.blind.min_rows:
        raise InputError(
            f"party {data.name!r} holds {held} of {len(part)} training rows, and sums that tell {min(held, lacking)} "
            f"rows apart would tell these rows (blind.min_rows = {job.blind.min_rows}); train on the rows that all "
            "have, which `veracausa align` writes"
        )
    return columns


def _map_notes(feature_map: FeatureMap) -> tuple[str, ...]:
    notes = getattr(feature_map, "notes", ())
    return tuple(map(str, notes)) if isinstance(notes, tuple | list) else ()


def _features(part: Part, rows: int) -> Iterator[Tensor]:
    for block in part.blocks(rows):
        assert block.features is not None
        if len(block.features):
            yield block.features


def _scaled(
    job: Job, data: PartyData, feature_map: FeatureMap, trained: Array | None, progress: ProgressCallback
) -> tuple[Scaling, list[str]]:
    """Mean and spread of each feature over the rows the party holds, without those that too few rows make up."""
    rows = job.blind.block_rows
    total = max(1, data.train.present_count())
    kept: list[Array] = []
    small = 8 * total * feature_map.width <= KEPT_BYTES

    def mapped() -> Iterator[Array]:
        if trained is not None:
            yield from (trained[at : at + rows] for at in range(0, len(trained), rows))
        elif kept:
            yield from kept
        else:
            for features in _features(data.train, rows):
                raw = _checked(feature_map.map(features))
                if small:
                    kept.append(raw)
                yield raw

    count, mean, squares, common = 0, np.zeros(feature_map.width), np.zeros(feature_map.width), None
    for raw in mapped():
        if common is None:
            common = _commonest(raw)
        # Chan's update: no pass over all rows at once, and no difference of large sums.
        here, delta = raw.mean(0), raw.mean(0) - mean
        squares += ((raw - here) ** 2).sum(0) + delta**2 * count * len(raw) / (count + len(raw))
        mean += delta * len(raw) / (count + len(raw))
        count += len(raw)
        progress(0.5 * count / total)
    assert common is not None
    spread = np.sqrt(squares / count)
    varies = spread > 1e-9 * np.maximum(np.abs(mean), 1.0)
    everything = Scaling(np.flatnonzero(varies), mean[varies], spread[varies])
    support = _support(mapped, everything, common, lambda share: progress(0.5 + 0.5 * share * count / total))
    enough = support >= job.blind.min_rows
    notes = []
    if dropped := int((~enough).sum()):
        notes.append(
            f"party {data.name}: {dropped} of {feature_map.width} features left out: fewer than {job.blind.min_rows} "
            "rows make them up"
        )
    if not enough.any():
        raise InputError(
            f"party {data.name!r}: no feature is made up by {job.blind.min_rows} rows or more (blind.min_rows); give "
            "it other columns, or more rows"
        )
    return Scaling(everything.kept[enough], everything.mean[enough], everything.spread[enough]), notes


def _commonest(raw: Array) -> Array:
    """The most frequent value of each column in the first rows: of an indicator, the value of all the other rows."""
    return np.array([values[counts.argmax()] for values, counts in (np.unique(c, return_counts=True) for c in raw.T)])


def _support(
    mapped: Callable[[], Iterator[Array]], scaling: Scaling, common: Array, progress: ProgressCallback
) -> Array:
    """By how many rows each feature is made up: those off its commonest value, and less if few of them carry it.

    The second is (Σz²)² / Σz⁴, which is m for an indicator of m rows among many.
    """
    off, squares, fourth = (np.zeros(len(scaling.kept)) for _ in range(3))
    for raw in mapped():
        off += (raw[:, scaling.kept] != common[scaling.kept]).sum(0)
        z = scaling(raw) ** 2
        squares += z.sum(0)
        fourth += (z**2).sum(0)
        progress(1.0)
    return np.minimum(off, squares**2 / np.maximum(fourth, 1e-300))


def _checked(raw: Array) -> Array:
    if not np.isfinite(raw).all():
        raise RunError("a feature map gave values that are not numbers; check the rows, or take another map")
    return raw


def row_contents(features: Tensor) -> list[bytes]:
    """A digest of each row as the party holds it."""
    return [hashlib.sha256(row.tobytes()).digest() for row in np.ascontiguousarray(features.cpu().numpy())]
