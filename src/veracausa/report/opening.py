"""What a page begins with: a verdict in one plain sentence, what it rests on, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veracausa.report.blind_section import crossed_sentence
from veracausa.report.page import SCORES, NextStep, PageOpening, format_score
from veracausa.runs.record import RunRecord, mapping, number, numbers

MUCH, SOME = 0.5, 0.1
"""From this leakage on, most or some of the rows counts as read."""
NAMED = 6
"""So many runs of a comparison are named in its opening."""
HERE = "RUN is the folder of this page."


def opening_of_run(run: RunRecord, headline: str, audit: Mapping[str, Any] | None, blind: str) -> PageOpening:
    """Of a training. Where it was audited, what was read comes first; `blind` is the title of a blind run."""
    if run.state != "done" or run.leakage is None:
        verdict = _together(run) if run.state == "done" else ""
        lead = [*([headline] if verdict else []), *_not_measured(run)]
        return PageOpening(verdict or headline, lead, _steps(run))
    told = str(audit.get("verdict") or "") if audit else ""
    if run.protocol == "blind":
        return PageOpening(blind or read_sentence(run), [headline], _steps(run))
    labels = str(audit.get("label_verdict") or "") if audit else ""
    lead = [line for line in (told, labels, headline) if line]
    return PageOpening(read_sentence(run), lead, _steps(run), tone_of(run.leakage))


def _together(run: RunRecord) -> str:
    """What the partners are good for, in one number; empty where there is no score."""
    score = "auc" if run.unbalanced and "auc" in run.scores else run.main_score
    if score is None:
        return ""
    said = f"Together the parties reach a test {SCORES[score]} of {format_score(score, run.scores[score])}"
    alone = numbers(mapping(run.summary.get("baselines")).get("active_only")).get(score)
    return f"{said}." if alone is None else f"{said}, the active party alone {format_score(score, alone)}."


def read_sentence(run: RunRecord) -> str:
    """What the audit comes to, in words that need no explanation."""
    leakage = run.leakage or 0.0
    strongest = mapping(run.summary.get("strongest"))
    whose = f" of {strongest['party']}" if strongest.get("party") else ""
    if leakage >= MUCH:
        return f"Most of the rows{whose} can be read from what was sent: {100 * leakage:.0f} %."
    if leakage >= SOME:
        return f"Part of the rows{whose} can be read from what was sent: {100 * leakage:.0f} %."
    return f"The attacks tried read little of the rows: {100 * leakage:.0f} %. This is no guarantee."


def tone_of(leakage: float) -> str:
    """How bad it is."""
    return "bad" if leakage >= MUCH else "part" if leakage >= SOME else "little"


def _not_measured(run: RunRecord) -> list[str]:
    if run.state != "done":
        return []
    if run.protocol == "blind":
        return [crossed_sentence(run)]
    return ["What partners can read of the rows was not measured in this run."]


def _steps(run: RunRecord) -> list[NextStep]:
    if run.state in ("failed", "stopped") and (run.path.parent / "federation.toml").is_file():
        return [
            NextStep("Start this party again; all go on from the last checkpoint.", "veracausa federation run FOLDER")
        ]
    if run.state in ("failed", "stopped"):
        return [
            NextStep(f"Go on from the last checkpoint. {HERE}", "veracausa train RUN/config.toml --resume --out RUN")
        ]
    if run.state != "done":
        return [NextStep(f"Look again later. {HERE}", "veracausa report RUN")]
    if run.leakage is None:
        return [
            NextStep(f"Measure what partners could read. {HERE}", "veracausa audit RUN --quick"),
            NextStep("Score new rows.", "veracausa predict RUN PARTY=NEW.csv …"),
        ]
    if run.protocol == "blind":
        return [
            NextStep(f"Score new rows. {HERE}", "veracausa predict RUN PARTY=NEW.csv …"),
            NextStep("Compare with a run of split training.", "veracausa report RUN OTHER_RUN"),
        ]
    if run.leakage < SOME:
        return [
            NextStep(
                f"Try stronger attackers before you rely on this. {HERE}", "veracausa audit RUN --until-converged"
            ),
            NextStep("Compare with other runs.", "veracausa report RUN OTHER_RUN"),
        ]
    defended = mapping(run.config.get("defense")).get("name", "none") != "none"
    bare = " --set defense.name=none" if defended else ""
    return [
        NextStep(
            f"Train blind: only sums over rows cross, and no training row is opened. {HERE}",
            f"veracausa train RUN/config.toml --set training.protocol=blind{bare}",
        ),
        NextStep(
            "Or see which defense costs least, and what it holds back.",
            "veracausa frontier RUN/config.toml --defenses noisy_bottleneck,prune,nopeek --budget 20m",
        ),
    ]


def opening_of_discovery(summary: Mapping[str, Any], headline: str, beside: str) -> PageOpening:
    """Of a learnt graph; `beside` compares it with a true one."""
    steps = []
    if not summary.get("edges"):
        if not summary.get("model") and number(summary.get("threshold")) is not None:
            steps.append(
                NextStep(
                    f"Look at the strengths below, and run it again with another threshold. {HERE}",
                    "veracausa discover RUN/config.toml --set threshold=NUMBER --out AGAIN",
                )
            )
    elif not summary.get("bootstrap"):
        steps.append(
            NextStep(
                f"See how stable the edges are: draw the rows anew twenty times. {HERE}",
                "veracausa discover RUN/config.toml --bootstrap 20 --out AGAIN",
            )
        )
    told = mapping(summary.get("parties"))
    if sum("columns" in mapping(party) for party in told.values()) > 1:
        steps.append(NextStep(f"See what the parties learn of each other's columns. {HERE}", "veracausa audit RUN"))
    return PageOpening(headline, [beside] if beside else [], steps)


def opening_of_comparison(headline: str, rows: Sequence[Mapping[str, Any]]) -> PageOpening:
    """Of several runs side by side."""
    unread = [str(row["name"]) for row in rows if row["leakage"] is None and row["state"] == "done"]
    steps = []
    if unread:
        which = unread[0] if len(unread) == 1 else f"each of {', '.join(unread)}"
        steps.append(NextStep(f"Measure what partners could read in {which}.", "veracausa audit RUN --quick"))
    else:
        steps.append(NextStep("See what was read in one of them, row by row.", "veracausa report RUN"))
    lead = []
    for rows_of, what in (("training_rows", "training row"), ("predicted_rows", "predicted row")):
        read = [f"{row['name']} {100 * row[rows_of]:.0f} %" for row in rows if row[rows_of] is not None]
        if 0 < len(read) <= NAMED:
            lead.append(f"Read of a {what} by the strongest attack: {', '.join(read)}.")
    return PageOpening(headline, lead, steps)
