"""What a page says of a graph beyond its edges: what is certain, what is not, effects, assumptions, who saw what.

A method tells these or does not. Whatever it does not tell is left out, and so is the section.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from veracausa.report.graph_figures import effect_bar_svg, share_bar_svg
from veracausa.runs.record import mapping, number

STABLE = 0.8
"""A direction that fewer resamples have is not called certain."""
LITTLE = 0.2
"""Causes that explain less than this of a column explain little of it."""
SHAPES = {
    "rises": "rises",
    "falls": "falls",
    "bends": "bends",
    "categories": "differs between categories",
}
MODELS = {
    "linear": "Straight lines with normal noise. Such data leave some directions open.",
    "lingam": "Straight lines with noise that is not normal. Such noise tells directions.",
    "additive": "Curves that add up, with noise beside them. Curves tell directions.",
    "processes": "Any smooth function of all causes together, with normal noise beside it. Curves tell directions.",
    "networks": "Networks of all causes together, with noise beside them.",
}
BREAKS = (
    (
        "A hidden cause",
        "Two columns moved by a third that nobody measured look like cause and effect. No column of the table can "
        "show that it is missing; correlated residuals are a hint.",
    ),
    (
        "Feedback",
        "If two columns drive each other, no graph without cycles is right. The one that is drawn has one half of it.",
    ),
    (
        "Selection",
        "If people are in the table because of what some columns say (only the admitted, only the survivors), columns "
        "are joined that do not act on each other.",
    ),
    (
        "Rows that belong together",
        "Repeated visits, families and clinics are no independent draws. Margins and shares are then too confident.",
    ),
)
"""What no method can see in the columns alone, and what it would do to the graph."""


def tells_more(summary: Mapping[str, Any]) -> bool:
    """Whether the method says what is certain, what is not, or how large effects are."""
    return bool(summary.get("model") or summary.get("effects") or summary.get("undirected"))


def arrow(row: Mapping[str, Any]) -> str:
    """`age → crp`, or `age — crp` where it is not told which is the cause."""
    return f"{row['cause']} {'—' if row.get('directed') == 'no' else '→'} {row['effect']}"


def signed(value: float) -> str:
    """A number with its sign, and a minus as long as the plus."""
    return f"{value:+.2f}".replace("-", "−")


def effect_words(row: Mapping[str, Any]) -> str:
    """`rises, +0.42 deviations, 12 % of the variance`; nothing where the method does not tell effects."""
    slope, share = number(row.get("slope")), number(row.get("share"))
    shape = str(row.get("shape") or "")
    parts = [SHAPES.get(shape, shape)] if shape else []
    if slope is not None:
        parts.append(f"{signed(slope)} deviations" + (" on average" if shape == "bends" else ""))
    if share is not None:
        parts.append(f"{100 * share:.0f} % of the variance")
    return ", ".join(parts)


def sure_words(row: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """How sure an edge and its direction are, in words."""
    confidence, way = number(row.get("confidence")), number(row.get("direction_confidence"))
    margin = number(row.get("margin"))
    parts = []
    if summary.get("bootstrap") and confidence is not None:
        parts.append(f"{100 * confidence:.0f} % of resamples")
        if way is not None and way < 0.995 and row.get("directed") != "no":
            parts.append(f"{100 * way:.0f} % of those with the edge point this way")
    if margin is not None:
        parts.append(f"{margin:.1f} nats likelier than turned around")
    elif row.get("margin") == math.inf:
        parts.append("its direction is known beforehand")
    return "; ".join(parts)


def certain(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """The edges whose direction the data tell, surest first."""
    found = [row for row in rows if row.get("directed") != "no" and not _shaky(row, summary)]
    return [
        {"edge": arrow(row), "effect": effect_words(row), "sure": sure_words(row, summary)}
        for row in sorted(found, key=lambda row: -(number(row.get("confidence")) or 0.0))
    ]


def uncertain(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Edges without a direction, edges that few resamples have, and pairs that a hidden cause may join."""
    sums = summary.get("privacy") is not None or summary.get("model") is not None
    open_end = f"the {'sums' if sums else 'data'} do not tell which way"
    found = [{"edge": arrow(row), "why": open_end} for row in rows if row.get("directed") == "no"]
    found += [{"edge": arrow(row), "why": f"only {sure_words(row, summary)}"} for row in rows if _shaky(row, summary)]
    for pair in summary.get("hidden_causes") or ():
        one, other = pair["columns"]
        size = signed(pair["correlation"])
        found.append({"edge": f"{one} ⋯ {other}", "why": f"no edge, but what is left of both is correlated ({size})"})
    return found


def _shaky(row: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    confidence = number(row.get("confidence"))
    directed = row.get("directed") != "no"
    return bool(directed and summary.get("bootstrap") and confidence is not None and confidence < STABLE)


def effect_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row an edge with its bar; empty where the method does not tell effects."""
    if not any(number(row.get("share")) is not None for row in rows):
        return []
    most = max((number(row.get("share")) or 0.0 for row in rows), default=0.0)
    return [
        {
            **row,
            "edge": arrow(row),
            "words": effect_words(row),
            "bar": Markup(effect_bar_svg(number(row.get("slope")), number(row.get("share")), most)),
            "units": _in_units(row),
        }
        for row in rows
    ]


def _in_units(row: Mapping[str, Any]) -> str:
    slope = number(row.get("slope_in_units"))
    return "" if slope is None else f"{slope:+.3g} a unit of {row['cause']}".replace("-", "−", 1)


def explained_rows(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The share of each column's variance that its causes explain, largest first; columns without an edge last."""
    joined = {end for row in rows for end in (row["cause"], row["effect"])}
    caused = {row["effect"] for row in rows}
    told = [(name, number(share)) for name, share in mapping(summary.get("explained")).items()]
    found = []
    for name, share in sorted(told, key=lambda one: -(one[1] or 0.0)):
        shown = max(share or 0.0, 0.0)
        words = f"{100 * shown:.0f} %" if name in caused else "no cause found" if name in joined else "no edge at all"
        note = "little: expect causes outside the table" if name in caused and shown < LITTLE else ""
        found.append({"name": name, "words": words, "note": note, "bar": Markup(share_bar_svg(shown))})
    return found


def assumed(summary: Mapping[str, Any]) -> list[str]:
    """What the graph rests on, a sentence each."""
    model, said = summary.get("model"), summary.get("assumes")
    sentences = [MODELS.get(str(model), str(model))] if model else []
    sentences += said.split("; ") if isinstance(said, str) else [str(one) for one in said or ()]
    return [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in dict.fromkeys(sentences) if text]


def open_for_good(summary: Mapping[str, Any]) -> bool:
    """Whether edges without a direction stay so however many rows there are: of lines with normal noise."""
    return str(summary.get("model")).startswith(("linear", "straight lines with normal"))


def candidate_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was compared, the one that was kept first."""
    found = [dict(one) for one in summary.get("compared") or ()]
    return sorted(found, key=lambda one: (not one.get("kept"), -(number(one.get("evidence")) or 0.0)))


def kept_because(summary: Mapping[str, Any]) -> str:
    """Why one of several candidates was kept, in one sentence; empty where there was one."""
    found = candidate_rows(summary)
    if len(found) < 2 or not found[0].get("kept"):
        return ""
    kept, other = found[0], found[1]
    if kept.get("why"):
        return str(kept["why"])
    for key, what in (("evidence", "row"), ("held_out_log_likelihood", "held-out row")):
        best, next_best = number(kept.get(key)), number(other.get(key))
        if best is not None and next_best is not None:
            return (
                f"{kept['method']} was kept: a {what} is likelier under it than under {other['method']}, by "
                f"{best - next_best:.3f} nats on average."
            )
    return f"{kept['method']} was kept."


def saw(summary: Mapping[str, Any], name: str, holds: bool) -> str:
    """What this member of a run between parties was sent, in words."""
    privacy = mapping(summary.get("privacy"))
    if name in privacy.get("opened_to", ()):
        return "all sums over rows, and the whole graph"
    graph = "the edges that touch its own columns" if summary.get("reveal") == "own" else "the whole graph"
    masked = "ciphertexts" if privacy.get("encryption") != "none" else "columns' functions as they are"
    if name in privacy.get("features_opened_to", ()):
        masked += ", features of every row (mixtures of the others' columns)"
    return f"{masked}, and {graph}" if holds else masked


def receivers(summary: Mapping[str, Any]) -> str:
    """Who opened the sums, in words."""
    told = mapping(summary.get("privacy")).get("opened_to", [])
    return "the validator alone" if told == ["validator"] else f"every party: {', '.join(told)}"
