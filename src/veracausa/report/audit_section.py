"""What a report shows of an audit: the verdict, a table of attacks, guesses without payloads, pictures and curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from veracausa.audit.baseline import baseline_folder, undefended_leakage
from veracausa.audit.snapshots import Snapshot, coverage_sentence, snapshots, works_on, worst
from veracausa.errors import InputError
from veracausa.report.audit_figures import frontier_svg, moments_svg, point_of, tables_read, wall
from veracausa.runs.record import RunRecord, mapping, number, numbers, read_run

_SCORES = ("mse", "psnr", "ssim", "lpips")
_STRENGTH = ("epochs", "channels", "blocks", "main", "input_steps", "clone_steps", "batch_size", "schedule")


def audit_section(run: RunRecord) -> dict[str, Any] | None:
    """What the template shows; None where nobody attacked."""
    entries = mapping(run.summary.get("attacks"))
    told = mapping(run.status.get("audit"))
    if not entries and not told:
        return None
    baseline = _baseline(run)
    defended = any(
        party["role"] != "active" and party["defense"] not in ("none", "not recorded", "")
        for party in run.parties.values()
    )
    undefended = mapping(baseline.summary.get("attacks")) if baseline is not None else {}
    strongest = str(mapping(run.summary.get("strongest")).get("attack", ""))
    victims = dict.fromkeys(party for entry in entries.values() for party in mapping(mapping(entry).get("parties")))
    walls = [found for party in victims if (found := wall(run.path, party, list(entries), strongest, defended))]
    on = " and ".join(dict.fromkeys(str(p["defense"]) for p in run.parties.values() if p["role"] != "active"))
    points = [
        point_of(run, on if defended else run.name),
        point_of(baseline, "undefended") if baseline is not None else None,
    ]
    shown = [point for point in points if point is not None]
    return {
        "defended": defended,
        "verdict": str(run.summary.get("verdict") or leakage_sentence(run)),
        "coverage": coverage_sentence(run.coverage) if entries else "",
        "broken": broken_off(told),
        "rows": attack_rows(run),
        "failing": [name for name, entry in entries.items() if mapping(entry).get("works") is False],
        "trivial": trivial_rows(entries),
        "strength": strength_rows(entries),
        "frontier": Markup(frontier_svg(shown)) if len(shown) > 1 else None,
        "curves": [Markup(svg) for svg in moments_svg(entries, undefended).values()],
        "walls": walls,
        "tables": tables_read(run.path, mapping(entries.get(strongest))) if strongest else [],
        "strongest": strongest,
        "unavailable": _unavailable(entries),
        "labels": label_rows(mapping(run.summary.get("label_attacks"))),
        "label_verdict": str(run.summary.get("label_verdict") or ""),
        "usefulness": usefulness(run),
        "identified": any(row["identified"] for row in attack_rows(run)),
        "scores": [name for name in _SCORES if any(row.get(name) for row in attack_rows(run))],
    }


def leakage_sentence(run: RunRecord) -> str:
    """What an audit found, in one sentence; empty where nobody attacked."""
    if run.leakage is None:
        return ""
    attack = mapping(run.summary.get("strongest")).get("attack", "the strongest attack")
    of = {"whole training": "over the whole training"}.get(run.coverage, f"({run.coverage} only)")
    if run.leakage == 0:
        return f"The strongest attack, {attack}, reads nothing more of the rows than a blind guess does {of}."
    return f"The strongest attack, {attack}, reads {100 * run.leakage:.0f} % of what a blind guess misses {of}."


def attack_rows(run: RunRecord) -> list[dict[str, Any]]:
    """Every attack on every party and split, with the blind guess it is measured against; `sort` has the numbers."""
    blind = numbers(run.summary.get("blind")).get("mse")
    rows = []
    for attack, result in mapping(run.summary.get("attacks")).items():
        entry = mapping(result)
        for party, split, told, most, end in _read(entry):
            scores = {**numbers(most.scores), "leakage": most.leakage}
            without = undefended_leakage(entry, party, split)
            guess = scores.get("blind_mse", blind)
            sort: dict[str, float | None] = {**scores, "blind": guess, "undefended": without, "end": end.leakage}
            shown = {name: f"{value:.3g}" for name, value in scores.items()}
            shown["blind"] = f"{guess:.3g}" if guess is not None else ""
            shown |= {"leakage": f"{100 * most.leakage:.0f} %", "when": most.short, "end": f"{100 * end.leakage:.0f} %"}
            known = numbers(told.get("identified")).get("top_1")
            sort["identified"], shown["identified"] = known, f"{100 * known:.0f} %" if known is not None else ""
            shown["undefended"] = f"{100 * without:.0f} %" if without is not None else ""
            granted = ", ".join(map(str, entry.get("granted", ())))
            works = {True: "yes", False: "no", None: "not known"}[works_on(entry, party)]
            named = {"attack": attack, "party": party, "split": split, "granted": granted, "works": works}
            count = number(told.get("samples"))
            rows.append({**named, **shown, "samples": f"{count:.0f} " if count else "", "sort": sort})
    return rows


def _read(entry: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any], Snapshot, Snapshot]]:
    """Party, split, what is told of the last model, the snapshot read best, and the last model as one."""
    by_party = mapping(entry.get("parties")) or {"the worst victim": {"train": entry}}
    return [
        (party, split, mapping(mapping(own).get(split)), worst(found), found[-1])
        for party, own in by_party.items()
        for split in ("train", "test")
        if (found := snapshots({party: own}, split))
    ]


def trivial_rows(entries: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Guesses that need no payload: name, party, MSE on the training victims of the attack that had most of them."""
    best: dict[str, tuple[float, dict[str, float]]] = {}
    for entry in entries.values():
        for party, own in mapping(mapping(entry).get("parties")).items():
            train = mapping(mapping(own).get("train"))
            found, count = numbers(train.get("trivial")), number(train.get("samples")) or 0.0
            if found and count > best.get(party, (0.0, {}))[0]:
                best[party] = (count, found)
    return [
        (name, party, f"{error:.3g}")
        for party, (_, found) in best.items()
        for name, error in sorted(found.items(), key=lambda item: item[1])
    ]


def strength_rows(entries: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How strong each attack was made: the settings that weigh most, and what it learnt from."""
    rows = []
    for name, entry in entries.items():
        settings = mapping(mapping(entry).get("settings"))
        words = [f"{key.replace('_', ' ')} {settings[key]}" for key in _STRENGTH if settings.get(key) is not None]
        auxiliary = [number(mapping(own).get("auxiliary")) for own in mapping(mapping(entry).get("parties")).values()]
        known = [count for count in auxiliary if count]
        if known and "auxiliary" in " ".join(map(str, mapping(entry).get("granted", ()))):
            words.append(f"{min(known):.0f} auxiliary rows")
        seconds = number(mapping(entry).get("seconds"))
        words += [f"{seconds:.0f} s"] if seconds else []
        if words:
            rows.append((name, ", ".join(words)))
    return rows


def label_rows(entries: Mapping[str, Any]) -> list[dict[str, str]]:
    """What each passive party learnt of the labels by each attack; one that cannot work here says why."""
    rows = []
    for attack, found in entries.items():
        entry = mapping(found)
        by_party = mapping(entry.get("parties")) or {"": entry}
        for party, own in by_party.items():
            told = mapping(own)
            known = numbers(told)
            shares = (name for name in ("accuracy", "prior", "rows_alone") if name in known)
            shown: dict[str, str] = {str(name): f"{100 * known[name]:.0f} %" for name in shares}
            without = numbers(entry.get("undefended")).get("accuracy") if party == entry.get("party") else None
            shown["undefended"] = f"{100 * without:.0f} %" if without is not None else ""
            given = f"{known['known_labels']:.0f}" if "known_labels" in known else ""
            rows.append(
                {"attack": attack, "party": party, "why": str(told.get("unavailable", "")), "given": given, **shown}
            )
    return rows


def usefulness(run: RunRecord) -> dict[str, str] | None:
    """The cosine to the causal proxy, of the run and of its baseline; None where it was not measured."""
    told = mapping(run.summary.get("causal_cosine"))
    kept = numbers(told)
    if "centred" not in kept:
        return None
    without = numbers(told.get("undefended")).get("centred")
    return {
        "centred": f"{kept['centred']:.2f}",
        "to_clean": f"{kept.get('to_clean', float('nan')):.2f}",
        "undefended": f"{without:.2f}" if without is not None else "",
        "proxies": f"{kept.get('proxies', 0):.0f}",
        "samples": f"{kept.get('samples', 0):.0f}",
    }


def _unavailable(entries: Mapping[str, Any]) -> list[str]:
    """Why a score is missing, each reason once."""
    splits = [
        mapping(mapping(own).get(split))
        for entry in entries.values()
        for own in mapping(mapping(entry).get("parties")).values()
        for split in ("train", "test")
    ]
    return list(dict.fromkeys(str(told["lpips_unavailable"]) for told in splits if "lpips_unavailable" in told))


def broken_off(told: Mapping[str, Any]) -> str:
    """Why the audit is not whole, if it is not."""
    state = told.get("state")
    if state == "failed":
        return f"The audit broke off: {str(told.get('error') or 'no reason was recorded').rstrip('.')}."
    if state == "stopped":
        return "The audit was stopped; `--resume` goes on with it."
    return "The audit has not finished." if state == "running" else ""


def _baseline(run: RunRecord) -> RunRecord | None:
    folder = baseline_folder(run.path)
    try:
        return read_run(folder) if folder is not None else None
    except InputError:
        return None
