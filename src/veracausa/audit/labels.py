"""The other half of an audit: what the passive parties of a run learn about the labels, and the verdict on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.attacks.labels.returned import gradients_folder
from veracausa.audit.gate import percent
from veracausa.audit.label_inference import KNOWN, infer_labels
from veracausa.data.vertical import VerticalDataset
from veracausa.events import Event, Observer
from veracausa.runs.folder import Run, write_json

_FILE = "label_attacks.json"
MORE = 0.01
"""An attack learnt something if it is right this much more often than without it: less could be chance."""


def attack_labels(
    run: Run, dataset: VerticalDataset, parties: Sequence[str], observer: Observer, resume: bool = False
) -> None:
    """Attack the labels from the seat of each party whose gradients the run kept, and write down what it learnt."""
    labels = dataset.parties[dataset.active].train.labels
    if dataset.task != "classification" or labels is None:
        return
    found = _kept(run) if resume else {}
    for party in parties:
        if party in found or not any(gradients_folder(run.path, party).glob("*.safetensors")):
            continue

        def heard(event: Event) -> None:
            observer({**event, "event": "attack", "attack": f"{event['attack']} (labels)"})

        found[party] = infer_labels(run, party, known=KNOWN, dataset=dataset, observer=heard)
        write_json(run.path / _FILE, found)


def label_entries(run: Run, twin: Run | None) -> dict[str, Any]:
    """What a summary says of each attack on the labels: the party that learnt most, all parties, and the twin's."""
    found, without = _kept(run), _kept(twin) if twin is not None else {}
    entries: dict[str, Any] = {}
    for name in dict.fromkeys(name for own in found.values() for name in own):
        by_party = {party: own[name] for party, own in found.items() if name in own}
        able = {party: own for party, own in by_party.items() if "accuracy" in own}
        if not able:
            entries[name] = next(iter(by_party.values()))
            continue
        worst = max(able, key=lambda party: learnt(able[party]))
        entries[name] = {**able[worst], "party": worst, "parties": by_party}
        beside = without.get(worst, {}).get(name, {})
        if "accuracy" in beside:
            entries[name]["undefended"] = {key: beside[key] for key in ("accuracy", "rows_alone") if key in beside}
    return entries


def learnt(entry: Mapping[str, Any]) -> float:
    """How much more often an attack is right than what its party knew before: the prior, or its own bare rows."""
    return float(entry["accuracy"]) - max(float(entry["prior"]), float(entry.get("rows_alone", 0.0)))


def label_verdict(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """What a passive party learns about the labels, in one sentence; empty where nothing could be tried."""
    able = {name: entry for name, entry in entries.items() if "accuracy" in entry}
    if not able:
        return ""
    strongest = max(able, key=lambda name: learnt(able[name]))
    entry = able[strongest]
    given = int(entry.get("known_labels", 0))
    knowing = f", though it was given {given} of them" if given else ""
    if learnt(entry) < MORE:
        return (
            "In the other direction no passive party tells the labels better than it could without the training"
            f"{knowing}; other attacks are not ruled out."
        )
    named = ", its groups given their best names" if entry.get("up_to_permutation") else ""
    before = "its own rows alone give" if "rows_alone" in entry else "always naming the commonest class gives"
    known = max(float(entry["prior"]), float(entry.get("rows_alone", 0.0)))
    right = percent(float(entry["accuracy"]))
    return (
        f"In the other direction {entry['party']} tells {right} of the labels by {strongest}"
        f"{named}{f', given {given} of them' if given else ''}; {before} {percent(known)}."
    )


def _kept(run: Run) -> dict[str, Any]:
    try:
        found = json.loads((run.path / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
