"""What the page of a blind run says of its training: what crossed in words, what was opened, and the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from veracausa.report.page import format_seconds
from veracausa.runs.record import RunRecord, mapping, number, numbers

SENT = {
    "moment_query": ("features of the training rows, encrypted under its own key", "encrypted features"),
    "moment_answer": ("sums over rows, masked, encrypted under the receiver's key", "encrypted sums"),
    "moment_share": ("its share of the sums", "shares of sums"),
    "labels": ("labels of the training rows", "labels"),
    "head": ("the head, encrypted under its own key", "encrypted head"),
    "answer": ("scores of predicted rows: masked and encrypted, and the masks as a share", "masked scores"),
    "ask": ("which rows to score", "other"),
    "mask_seed": ("seeds of the masks between passive parties", "other"),
    "key": ("its public key", "public keys"),
}
"""Kinds of messages in words, and in two words for a figure. All others greet, toss coins and give signs of life."""
OTHER = ("greetings, coin tosses and signs of life", "other")
IN_CLEAR = {
    "moment_query": "FEATURES OF THE TRAINING ROWS, IN CLEAR",
    "moment_answer": "sums over rows, masked",
    "head": "the head, in clear",
    "answer": "scores of predicted rows: masked, and the masks as a share",
}
"""The same where a run was not encrypted."""
TOLD_LABELS = {"private": "randomised labels of the training rows", "shared": "the true labels of the training rows"}
PHASES = {"features": "features at home", "moments": "sums", "head": "head", "scores": "scores"}


def facts(run: RunRecord) -> Mapping[str, Any]:
    """What a blind run's summary says of its training."""
    return mapping(run.summary.get("blind_training"))


def blind_section(run: RunRecord) -> dict[str, Any] | None:
    """What the template shows; None for a run that was not blind."""
    if run.protocol != "blind":
        return None
    told = facts(run)
    return {
        "title": title(run),
        "crossed": crossed_sentence(run),
        "sent": [row for name in run.parties for row in sent_in_words(run, name)],
        "opened": list(opened(run)),
        "account": list(account(run)),
        "features": feature_rows(run),
        "head": list(head_facts(run)),
        "seconds": [
            (words, format_seconds(taken))
            for phase, words in PHASES.items()
            if (taken := number(mapping(told.get("seconds")).get(phase))) is not None
        ],
        "unencrypted": _setting(run, "encryption", "bfv") == "none",
    }


def title(run: RunRecord) -> str:
    """What was opened and read, where the run is done and was attacked; else empty."""
    if run.state != "done" or run.leakage is None or _setting(run, "encryption", "bfv") == "none":
        return ""
    count = number(facts(run).get("numbers"))
    scores = "the opened scores" if count is None else f"{_counted(count, 'opened score')} a row"
    return f"No training row was opened; {100 * run.leakage:.0f} % of predicted rows was read from {scores}."


def crossed_sentence(run: RunRecord) -> str:
    """What crossed between the parties, in one line."""
    told = facts(run)
    if _setting(run, "encryption", "bfv") == "none":
        return "Not encrypted: features of the training rows crossed in clear, so that nothing was hidden from anybody."
    rows = number(told.get("rows"))
    over = "all training rows" if rows is None else f"{rows:,.0f} rows"
    noise = "" if (epsilon := _epsilon(run)) is None else f", epsilon = {epsilon:g}"
    scores = "" if (count := number(told.get("numbers"))) is None else f"; {_counted(count, 'number')} a predicted row"
    return f"Sums over {over} crossed{noise}; no training row was opened{scores}."


def sent_in_words(run: RunRecord, party: str) -> list[dict[str, Any]]:
    """What a party sent, in words, the largest first; what says nothing of data is one line."""
    found: dict[tuple[str, str], int] = {}
    clear = IN_CLEAR if _setting(run, "encryption", "bfv") == "none" else {}
    for line in run.sent.get(party, ()):
        words = clear.get(line.kind) or SENT.get(line.kind, OTHER)[0]
        if line.kind == "labels":
            words = TOLD_LABELS.get(_setting(run, "labels"), words)
        to = line.to if words != OTHER[0] else ""
        found[words, to] = found.get((words, to), 0) + line.bytes
    rows = [{"party": party, "what": words, "to": to, "bytes": size} for (words, to), size in found.items()]
    return sorted(rows, key=lambda row: (row["what"] == OTHER[0], -row["bytes"]))


def kind_in_a_figure(kind: str) -> str:
    """What a kind of message is called where there is little room."""
    return SENT.get(kind, OTHER)[1]


def opened(run: RunRecord) -> Iterator[tuple[str, str]]:
    """Who opened what, as (party, words)."""
    told, active = facts(run), _active(run)
    if _setting(run, "encryption", "bfv") == "none":
        yield "everybody", "what its partners sent, features of training rows included"
        return
    rows, count, width = number(told.get("rows")), number(told.get("numbers")), _width(run)
    size = f" of products of {width:,} features" if width else ""
    over = "all training rows" if rows is None else f"{rows:,.0f} training rows"
    yield active, f"one release of sums over {over}{size}; no number of a single training row"
    if predicted := numbers(told.get("predicted")):
        of = " and ".join(f"{counted:,.0f} {split} rows" for split, counted in predicted.items() if counted)
        each = "scores" if count is None else f"{_counted(count, 'score')} each"
        summed = told.get("summed", len(_passive(run)) > 1)
        alone = "the sum of all parties' scores alone" if summed else "the one passive party's part alone, see below"
        yield active, f"{each} of {of}: {alone}"
    labels = _setting(run, "labels")
    who = ", ".join(_passive(run)) or "passive parties"
    if labels == "private":
        yield who, f"randomised labels of the training rows: {_label_words(run)}"
    elif labels == "shared":
        yield who, "the true labels of the training rows"
    else:
        yield who, "nothing: ciphertexts and random shares are all that reached them"


def account(run: RunRecord) -> Iterator[tuple[str, str]]:
    """The differential privacy of what was opened, as (what, words); what has none says so."""
    told, epsilon = facts(run), _epsilon(run)
    if epsilon is None:
        yield "sums", "exact, no differential privacy: they are as private as sums over that many rows are"
    else:
        noise = number(told.get("noise"))
        spread = f"; noise of standard deviation {noise:.3g} on every sum" if noise else ""
        delta = number(told.get("delta")) or number(_agreed(run).get("delta")) or 0.0
        yield "sums", f"epsilon = {epsilon:g}, delta = {delta:g}, one release{spread}"
        if any("learnt" in str(row["fixed"]) for row in feature_rows(run)):
            yield "features", "learnt from the rows: the account above holds for the sums, not for the maps"
    if _setting(run, "labels") == "private":
        yield "labels", _label_words(run)
    step = number(told.get("step")) or number(_agreed(run).get("step"))
    blurred = "" if step is None else f"; each is blurred by a fixed draw of width {step:g} and never drawn again"
    yield "scores", f"no differential privacy{blurred}"


def feature_rows(run: RunRecord) -> list[dict[str, Any]]:
    """A party's feature map, how many features it gives and what it merged or left out."""
    known = mapping(facts(run).get("features"))
    rows = []
    for name in run.parties:
        entry = mapping(known.get(name))
        if entry and entry.get("width") != 0:
            width = number(entry.get("width"))
            rows.append(
                {
                    "party": name,
                    "map": str(entry.get("name", "")),
                    "width": "" if width is None else f"{width:,.0f}",
                    "fixed": "learnt" if entry.get("learnt") else "",
                    "notes": "; ".join(str(note) for note in entry.get("notes") or ()),
                }
            )
    return rows


def head_facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    """How the head was found and calibrated, as (name, value)."""
    told = facts(run)
    if (ridge := number(told.get("ridge"))) is not None:
        by = ", by generalised cross-validation on the sums" if told.get("ridge_by") == "gcv" else ", set by the job"
        yield "ridge λ", f"{ridge:.4g}{by}"
    if left_out := number(told.get("left_out")):
        yield "rows left out", f"{left_out:,.0f}: the active party's own columns single them out"
    fit = numbers(told.get("fit"))
    if "degrees" in fit and (width := _width(run)):
        yield "degrees of freedom", f"{fit['degrees']:.1f} of {width:,} features"
    if "gcv_r2" in fit:
        yield (
            "R² of the labels, from sums",
            f"{fit.get('r2', fit['gcv_r2']):.3f}, expected on new rows {fit['gcv_r2']:.3f}",
        )
    for name, value in mapping(told.get("calibration")).items():
        if (shown := number(value)) is not None:
            yield f"calibration, {name.replace('_', ' ')}", f"{shown:.4g}"
    for split, scores in (("validation", run.summary.get("validation")), ("test", run.summary.get("test"))):
        if (gap := numbers(scores).get("calibration_error")) is not None:
            yield f"calibration error, {split} rows", f"{100 * gap:.1f} %"


def _label_words(run: RunRecord) -> str:
    told = mapping(facts(run).get("label_account"))
    epsilon = number(told.get("epsilon")) or number(_agreed(run).get("label_epsilon"))
    kept = number(told.get("kept"))
    words = "randomised" if epsilon is None else f"epsilon = {epsilon:g} a label"
    return words if kept is None else f"{words}, {100 * kept:.0f} % of them are told as they are"


def _width(run: RunRecord) -> int:
    """How many features all parties have together."""
    widths = (number(mapping(entry).get("width")) for entry in mapping(facts(run).get("features")).values())
    return int(sum(width or 0 for width in widths))


def _epsilon(run: RunRecord) -> float | None:
    told = facts(run)
    return number(told["epsilon"]) if "epsilon" in told else number(_agreed(run).get("epsilon"))


def _setting(run: RunRecord, name: str, default: str = "none") -> str:
    return str(facts(run).get(name) or _agreed(run).get(name) or default)


def _agreed(run: RunRecord) -> Mapping[str, Any]:
    return mapping(run.config.get("blind"))


def _active(run: RunRecord) -> str:
    return next((name for name, party in run.parties.items() if party["role"] == "active"), "active")


def _passive(run: RunRecord) -> list[str]:
    return [name for name, party in run.parties.items() if party["role"] != "active"]


def _counted(count: float, word: str) -> str:
    return f"{count:.0f} {word}{'s' if count != 1 else ''}"
