"""What an audit of a blind run leaves in its folder: `attacks/NAME/`, `audit.md`, its part of the summary.

`attacks`, `strongest`, `label_attacks` and `verdict` stand in the summary as after an audit of split training, with
what was read as the job ran. `blind_audit` has every situation, those with protections off too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from veracausa.atomic import atomic_write
from veracausa.attacks import blind_attacks
from veracausa.audit.blind import BlindAudit, BlindAuditSettings, BlindOutcome, granted_words, works
from veracausa.audit.blind_system import BlindSystem
from veracausa.audit.blind_verdict import bits_text, sentences, strongest, verdict_of
from veracausa.audit.numbered import Numbered
from veracausa.audit.record import read_kept
from veracausa.audit.snapshots import WHOLE
from veracausa.config import Job
from veracausa.data.load import load
from veracausa.errors import InputError
from veracausa.events import Observer
from veracausa.metrics.blind_bounds import bits_by_range, bits_by_spread
from veracausa.registry import Options
from veracausa.runs.folder import Run, how_it_ended, locked, set_status, write_json

_HEADLINE = ("mse", "psnr", "ssim", "lpips", "leakage", "blind_mse")


def is_blind(job: Job) -> bool:
    """Whether the job trains blindly."""
    return job.training.protocol == "blind"


def audit_blind_run(
    run: Run, settings: BlindAuditSettings, *, resume: bool = False, observer: Observer = lambda event: None
) -> dict[str, Any]:
    """Attack a finished blind run; gives what it adds to the run's `summary.json`."""
    if run.status.get("state") != "done" or not run.summary:
        raise InputError(f"{run.path}: the run is not finished; {run.to_finish}, then audit it")
    job = run.job
    missing = [name for name in (job.parties.active, *job.parties.passive) if not _model(run, name).is_file()]
    if missing:
        raise InputError(
            f"{run.path}: the model of {' and '.join(missing)} is not there; the audit of a blind run needs every "
            "party's, so run it where all parties ran"
        )
    options = settings.options()
    system = BlindSystem.of_run(run, load(job))
    audit = BlindAudit(system, settings)

    def kept(name: str) -> bool:
        asked = _asked(audit, options[name])
        return resume and read_kept(run.path / "attacks" / name / "metrics.json", asked) is not None

    with locked(run.path), _told(run, list(options)):
        left = [name for name in options if not kept(name)]
        audit.observer = Numbered(observer, sum(len(each) for name in left for each in audit.planned(name).values()))
        for name in left:
            _write_attack(run, options[name], _asked(audit, options[name]), list(audit.outcomes([name])))
            _gather(run, system)
        return _gather(run, system)


def _model(run: Run, name: str) -> Path:
    return run.path / "parties" / name / "model.safetensors"


def _asked(audit: BlindAudit, options: Options) -> dict[str, Any]:
    settings = audit.settings
    return {
        "auxiliary": settings.auxiliary,
        "victims": settings.victims,
        "parties": audit.parties,
        "what_if": settings.what_if,
        "situations": list(settings.situations),
        "settings": options.model_dump(mode="json"),
    }


def _write_attack(run: Run, options: Options, asked: Mapping[str, Any], outcomes: Sequence[BlindOutcome]) -> None:
    folder = run.path / "attacks" / options.name
    folder.mkdir(parents=True, exist_ok=True)
    attack = blind_attacks.get(options.name)
    shown: set[str] = set()
    # As run first: the pictures of a party are those of what really was opened.
    for outcome in sorted(outcomes, key=lambda each: not each.situation.as_run):
        if outcome.victim in shown:
            continue
        if outcome.gallery is not None:
            outcome.gallery.write(folder / f"pictures-{outcome.victim}.safetensors")
            outcome.gallery.write_sheet(run.path / "images" / f"{options.name}-{outcome.victim}.png")
            shown.add(outcome.victim)
        if outcome.rows is not None:
            write_json(folder / f"rows-{outcome.victim}.json", outcome.rows)
            shown.add(outcome.victim)
    entries = [
        {**each.entry(), "split": each.situation.split, "works": works(each.scores), "breaks": attack.breaks}
        for each in outcomes
    ]
    granted = granted_words(attack, outcomes[0].situation.view) if outcomes else list(attack.needs.words)
    about = {"attack": options.name, "surface": attack.surface, "about": attack.about, "granted": granted}
    settings = {"settings": options.model_dump(mode="json"), "asked": dict(asked)}
    seconds = sum(outcome.seconds for outcome in outcomes)
    # Last: an attack counts as finished when this is there.
    write_json(folder / "metrics.json", {**about, **settings, "seconds": seconds, "situations": entries})


def _gather(run: Run, system: BlindSystem) -> dict[str, Any]:
    """Lay what all finished attacks found over the summary, and write the table; gives what it added."""
    kept = [found for name in blind_attacks.names() if (found := _read(run.path / "attacks" / name)) is not None]
    kept.sort(key=lambda found: (blind_attacks.get(found["attack"]).order, found["attack"]))
    situations = [each for found in kept for each in found["situations"]]
    blind = run.job.blind
    about = {
        "rows": len(system.active.train),
        "audited_rows": len(system.training),
        "numbers": system.numbers,
        "parties": len(system.passive),
        "step": system.step,
        "bits": _bits(system),
        "epsilon": blind.epsilon,
        "delta": blind.delta,
        "labels": blind.labels,
        "situations": situations,
    }
    said = sentences(about)
    entries = {found["attack"]: entry for found in kept if (entry := _entry(found)) is not None}
    added: dict[str, Any] = {
        "blind_audit": {**about, "sentences": said, "about": {found["attack"]: found["about"] for found in kept}},
        "verdict": verdict_of(said),
    }
    best = strongest(situations, "test") or strongest(situations, "train")
    if best is not None:
        headline = entries[best["attack"]]
        added |= {
            "attacks": entries,
            "blind": {"mse": headline["blind_mse"]},
            "strongest": {
                "attack": best["attack"],
                **{key: headline[key] for key in ("leakage", "party", "moment", "at", "end", "coverage")},
            },
            "coverage": WHOLE,
            "parties_not_attacked": [
                name for name in system.passive if all(name not in entry["parties"] for entry in entries.values())
            ],
        }
    labels = {found["attack"]: entry for found in kept if (entry := _label_entry(found)) is not None}
    if labels:
        added |= {"label_attacks": labels, "label_verdict": said.get("labels", "")}
    write_json(run.path / "summary.json", {**run.summary, **added})
    atomic_write(run.path / "audit.md", audit_text(run.path.name, added, run.summary).encode())
    return added


def _bits(system: BlindSystem) -> dict[str, float]:
    """Bounds on what one opened answer carries, from the scores of test rows."""
    positions = system.choose(10_000, 2000).predicted
    scores = system.opened("test", positions).numpy()
    return {
        "range": bits_by_range(np.ptp(scores, axis=0), system.step),
        "spread": bits_by_spread(scores, system.step),
    }


def _entry(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """An attack on rows as a split audit's summary has it; None where it read nothing as the job ran."""
    as_run = [each for each in found["situations"] if each["as_run"] and "leakage" in each]
    if not as_run:
        return None
    most = max(as_run, key=lambda each: float(each["leakage"]))
    parties: dict[str, dict[str, Any]] = {}
    for each in as_run:
        scores = {key: value for key, value in each.items() if key not in ("notes", "says", "auxiliary", "seconds")}
        own = {**parties.get(each["victim"], {}), each["split"]: scores, "auxiliary": each["auxiliary"]}
        parties[each["victim"]] = own
    entry = {
        **{key: most[key] for key in _HEADLINE if key in most},
        "party": most["victim"],
        "moment": 1.0,
        "at": "of predicted rows" if most["split"] == "test" else "from the sums",
        "end": {"leakage": most["leakage"], "party": most["victim"]},
        "coverage": WHOLE,
        "granted": found["granted"],
        "settings": found["settings"],
        "seconds": found["seconds"],
        "parties": parties,
        "works": None,
    }
    off = [each for each in found["situations"] if each["off"] and "leakage" in each]
    if off:
        proof = max(off, key=lambda each: float(each["leakage"]))
        entry["works"] = bool(proof["works"])
        entry["undefended"] = {
            "leakage": proof["leakage"],
            "parties": {proof["victim"]: {proof["split"]: proof["leakage"]}},
            "works": {proof["victim"]: bool(proof["works"])},
        }
    return entry


def _label_entry(found: Mapping[str, Any]) -> dict[str, Any] | None:
    as_run = [each for each in found["situations"] if each["as_run"] and "accuracy" in each]
    if not as_run:
        return None
    best = max(as_run, key=lambda each: float(each["accuracy"]) - float(each["rows_alone"]))
    named = ("accuracy", "prior", "advantage", "up_to_permutation", "auc", "rows_alone", "bound", "epsilon")
    kept = (*named, "known_labels", "samples")
    parties = {each["victim"]: {key: each[key] for key in kept} for each in as_run}
    return {**parties[best["victim"]], "party": best["victim"], "granted": found["granted"], "parties": parties}


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "situations" in found else None


@contextmanager
def _told(run: Run, names: Sequence[str]) -> Iterator[None]:
    """Say in the run's status how the audit stands."""
    set_status(run.path, audit={"state": "running", "attacks": list(names), "error": None})
    try:
        yield
    except BaseException as error:
        state, message = how_it_ended(error)
        set_status(run.path, audit={"state": state, "attacks": list(names), "error": message})
        raise
    set_status(run.path, audit={"state": "done", "attacks": list(names), "error": None})


HEAD = ("attack", "situation", "as run", "rows", "leakage", "blind MSE", "MSE", "works", "seconds")


def audit_text(name: str, added: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """The verdict, a sentence a side, and every situation in a table of its surface."""
    found = added["blind_audit"]
    lines = [f"# Audit of {name}", "", str(added["verdict"]), ""]
    lines += [f"- **{side}.** {sentence}" for side, sentence in found["sentences"].items()]
    lines += ["", f"An opened answer carries {bits_text(found['bits'])} (step {found['step']:g}).", ""]
    if "accuracy" in summary:
        lines += [f"Test accuracy {100 * summary['accuracy']:.1f} %.", ""]
    lines += [_row(HEAD), _row(["---"] * len(HEAD))]
    for each in found["situations"]:
        if "leakage" in each:
            cells = [each["attack"], each["situation"], _yes(each["as_run"]), f"{each['samples']} of {each['victim']}"]
            cells += [f"{100 * each['leakage']:.1f} %", f"{each['blind_mse']:.4f} ({each['blind']})"]
            lines.append(_row([*cells, f"{each['mse']:.4f}", _yes(each["works"]), f"{each['seconds']:.0f}"]))
    lines += ["", LEAKAGE, "", "## Was a row trained on?", ""]
    lines += [_row(("situation", "as run", "statistic", "advantage", "AUC", "bound")), _row(["---"] * 6)]
    for each in found["situations"]:
        if "statistic" in each:
            bound = "" if each["bound"] is None else f"{each['bound']:.3f}"
            cells = [each["situation"], _yes(each["as_run"]), each["statistic"], f"{each['advantage']:.3f}"]
            lines.append(_row([*cells, f"{each['auc']:.3f}", bound]))
    lines += ["", "## The labels", ""]
    lines += [_row(("by", "situation", "as run", "right", "bound", "own columns", "prior")), _row(["---"] * 7)]
    for each in found["situations"]:
        if "accuracy" in each:
            shares = (f"{100 * each[key]:.1f} %" for key in ("accuracy", "bound", "rows_alone", "prior"))
            lines.append(_row([each["seat"], each["situation"], _yes(each["as_run"]), *shares]))
    lines += ["", "Situations:", ""]
    lines += [f"- {name}: {says}." for name, says in {e["situation"]: e["says"] for e in found["situations"]}.items()]
    return "\n".join(lines) + "\n"


LEAKAGE = (
    "Leakage: 0 % is no better than the best guess without anything opened (class mean, own columns), 100 % a perfect "
    "copy. `as run`: the attacker kept to the protocol. Otherwise a protection is off or broken: that shows what it is "
    "worth and that the attack works at all. A low figure says that these attacks failed, not that every attack must."
)


def _yes(value: Any) -> str:
    return "yes" if value else "no"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
