"""A causal graph drawn, and its strengths as a map: inline SVG in the page's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from veracausa.data.causal import topological_order
from veracausa.discovery.graphs import is_acyclic
from veracausa.report.graph_layout import BOX, layered

LETTER = 7.4
"""Width of a letter, about."""
LONGEST = 26
MARGIN = 12.0
HEAD = 8.0
COLOURS = 6

STROKES = {
    "found": ("var(--soft)", ""),
    "right": ("var(--soft)", ""),
    "extra": ("var(--fail)", ""),
    "reversed": ("var(--warn)", "9 3 2 3"),
    "missing": ("var(--fail)", "4 4"),
}
"""Colour and dashes of each kind of edge."""


@dataclass(frozen=True)
class DrawnEdge:
    """An edge and what is to be seen of it: found; or right, extra, reversed or missing where the truth is known.

    One that is not `directed` is a line without a head: which end is the cause is not told.
    """

    cause: int
    effect: int
    strength: float = 0.0
    kind: str = "found"
    note: str = ""
    directed: bool = True


def compared(
    adjacency: NDArray[np.bool_],
    strengths: NDArray[np.float64],
    truth: NDArray[np.bool_] | None,
    undirected: NDArray[np.bool_] | None = None,
) -> list[DrawnEdge]:
    """The edges found, and those that should have been; a reversed edge is drawn as it was found.

    An edge of `undirected` is right if the true graph has it in either direction.
    """
    drawn = []
    for cause, effect in np.argwhere(adjacency):
        line = undirected is not None and bool(undirected[cause, effect])
        kind = "found"
        if truth is not None:
            either = truth[cause, effect] or (line and truth[effect, cause])
            kind = "right" if either else "reversed" if truth[effect, cause] else "extra"
        strength = float(strengths[cause, effect])
        drawn.append(DrawnEdge(int(cause), int(effect), strength, kind, directed=not line))
    if truth is not None:
        lost = np.argwhere(truth & ~adjacency & ~adjacency.T)
        drawn += [DrawnEdge(int(cause), int(effect), 0.0, "missing") for cause, effect in lost]
    return drawn


def graph_svg(names: Sequence[str], party: Sequence[int], edges: Sequence[DrawnEdge], title: str) -> str:
    """The graph, causes above their effects; `party` numbers each node's colour, width is strength."""
    d = len(names)
    widths = [max(44.0, LETTER * len(_short(name)) + 22) for name in names]
    down, up = _downward(d, edges)
    layout = layered(d, [_ends(edge, edge in up) for edge in (*down, *up)], widths)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    most = max((edge.strength for edge in edges), default=0.0) or 1.0
    parts = [
        f'<svg role="img" aria-label="{escape(title)}" class="causal" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{1.25 * width:.0f}px;min-width:{min(0.8 * width, width):.0f}px">'
    ]
    # What is wrong lies above what is right, and strong above weak.
    for edge in sorted(edges, key=lambda edge: (edge.kind not in ("found", "right"), edge.strength)):
        way = layout.ways[_ends(edge, edge in up)]
        parts.append(_edge_svg(edge, names, way, edge in up, 1 + 2.8 * (edge.strength / most) ** 1.5))
    for node, name in enumerate(names):
        x, y = layout.x[node] + MARGIN, layout.y[node] + MARGIN
        colour = f"var(--s{party[node] % COLOURS + 1})"
        parts.append(
            f'<g class="node" data-node="{node}" tabindex="0"><title>{escape(name)}</title>'
            f'<rect x="{x - widths[node] / 2:.1f}" y="{y - BOX / 2:.1f}" width="{widths[node]:.1f}" height="{BOX:.0f}" '
            f'rx="6" fill="var(--paper)"/>'
            f'<rect x="{x - widths[node] / 2:.1f}" y="{y - BOX / 2:.1f}" width="{widths[node]:.1f}" height="{BOX:.0f}" '
            f'rx="6" fill="{colour}" fill-opacity=".16" stroke="{colour}" stroke-width="1.6"/>'
            f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle" font-size="13" fill="currentColor">'
            f"{escape(_short(name))}</text></g>"
        )
    return "".join([*parts, "</svg>"])


def heat_map_svg(
    names: Sequence[str],
    strengths: NDArray[np.float64],
    adjacency: NDArray[np.bool_],
    truth: NDArray[np.bool_] | None,
    title: str,
) -> str:
    """Strengths, a row a cause and a column an effect, causes first; an edge of the graph is framed."""
    order = topological_order(adjacency) or list(range(len(names)))
    size = 22 if len(names) <= 20 else 16 if len(names) <= 40 else 9
    letters = max(len(_short(names[at])) for at in order)
    left, top = LETTER * 0.9 * letters + 10, LETTER * 0.9 * letters + 10
    d = len(order)
    width, height = left + size * d + 6, top + size * d + 6
    most = float(strengths.max(initial=0.0)) or 1.0
    font = min(12, size - 2)
    parts = [
        f'<svg role="img" aria-label="{escape(title)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{1.3 * width:.0f}px;min-width:{0.62 * width:.0f}px">'
    ]
    for i, at in enumerate(order):
        name = escape(_short(names[at]))
        parts.append(
            f'<text x="{left - 6:.1f}" y="{top + size * (i + 0.5) + font * 0.35:.1f}" text-anchor="end" '
            f'font-size="{font}" fill="currentColor">{name}</text>'
        )
        x, y = left + size * (i + 0.5) + font * 0.35, top - 6
        parts.append(
            f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)" font-size="{font}" fill="currentColor">'
            f"{name}</text>"
        )
    for i, cause in enumerate(order):
        for j, effect in enumerate(order):
            x, y = left + size * j, top + size * i
            if cause == effect:
                parts.append(f'<rect x="{x}" y="{y}" width="{size - 1}" height="{size - 1}" fill="var(--wash)"/>')
                continue
            share = strengths[cause, effect] / most
            framed = adjacency[cause, effect]
            true = truth is not None and truth[cause, effect]
            if share < 0.01 and not framed and not true and size < 20:
                continue  # a large map would be a large file
            frame = ' stroke="currentColor" stroke-width="1.4"' if framed else ""
            told = f"{names[cause]} → {names[effect]}: {strengths[cause, effect]:.3f}"
            fill = f'fill="var(--s1)" fill-opacity="{max(share, 0.02):.2f}"'
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{size - 1}" height="{size - 1}" {fill}{frame}>'
                f"<title>{escape(told)}</title></rect>"
            )
            if true:
                parts.append(
                    f'<circle cx="{x + (size - 1) / 2:.1f}" cy="{y + (size - 1) / 2:.1f}" r="{size / 7:.1f}" '
                    f'fill="var(--s2)"/>'
                )
    return "".join([*parts, "</svg>"])


def _downward(d: int, edges: Sequence[DrawnEdge]) -> tuple[list[DrawnEdge], set[DrawnEdge]]:
    """Edges that lead down together, and those of the truth that can only lead up among them."""
    matrix = np.zeros((d, d), dtype=bool)
    down, up = [], set()
    for edge in sorted(edges, key=lambda edge: edge.kind == "missing"):
        matrix[edge.cause, edge.effect] = True
        if edge.kind != "missing" or is_acyclic(matrix):
            down.append(edge)
        else:
            matrix[edge.cause, edge.effect] = False
            matrix[edge.effect, edge.cause] = True
            up.add(edge)
    return down, up


def _ends(edge: DrawnEdge, upward: bool) -> tuple[int, int]:
    return (edge.effect, edge.cause) if upward else (edge.cause, edge.effect)


def _edge_svg(
    edge: DrawnEdge, names: Sequence[str], way: Sequence[tuple[float, float]], upward: bool, width: float
) -> str:
    points = [(x + MARGIN, y + MARGIN) for x, y in way]
    head = HEAD + 0.8 * width
    tip = points[0] if upward else points[-1]
    # The line ends inside its head, so that a thick one does not show beyond the tip.
    if not edge.directed:
        pass
    elif upward:
        points[0] = (tip[0], tip[1] + 0.7 * head)
    else:
        points[-1] = (tip[0], tip[1] - 0.7 * head)
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    # Upright at both boxes, and in between as steep as from the point before to the point after.
    inner = ((x1 - x0) / (y1 - y0) for (x0, y0), (x1, y1) in zip(points, points[2:], strict=False))
    for ((x0, y0), (x1, y1)), (leave, arrive) in zip(pairwise(points), pairwise([0.0, *inner, 0.0]), strict=True):
        pull = (y1 - y0) / (2 if len(points) == 2 else 3)
        path.append(
            f"C{x0 + leave * pull:.1f} {y0 + pull:.1f} {x1 - arrive * pull:.1f} {y1 - pull:.1f} {x1:.1f} {y1:.1f}"
        )
    away = head if upward else -head
    half = 0.42 * head
    triangle = (
        f"{tip[0]:.1f},{tip[1]:.1f} {tip[0] - half:.1f},{tip[1] + away:.1f} {tip[0] + half:.1f},{tip[1] + away:.1f}"
    )
    colour, dashes = STROKES[edge.kind]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    told = f"{names[edge.cause]} {'→' if edge.directed else '—'} {names[edge.effect]}"
    told += f", strength {edge.strength:.2f}" if edge.strength else ""
    told += f", {edge.kind}" if edge.kind not in ("found", "right") else ""
    told += "" if edge.directed else ", direction not told"
    told += f", {edge.note}" if edge.note else ""
    arrow = f'<polygon points="{triangle}" fill="{colour}"/>' if edge.directed else ""
    return (
        f'<g class="edge" data-ends="{edge.cause} {edge.effect}"><title>{escape(told)}</title>'
        f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width:.2f}"{dashed}/>{arrow}</g>'
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def legend(kinds: Mapping[str, int]) -> str:
    """What the kinds of edges that occur look like, as one row of small pictures.

    `directed` and `undirected` are told apart where both words are counted and there are undirected ones.
    """
    words = {
        "right": "in the true graph",
        "extra": "not in the true graph",
        "reversed": "reversed in the true graph",
        "missing": "in the true graph, not found",
    }
    parts = []
    if kinds.get("undirected"):
        head = '<polygon points="34,5 25,1.2 25,8.8" fill="var(--soft)"/>'
        parts += [_key("var(--soft)", "", f"cause to effect ({kinds['directed']})", head)] if kinds["directed"] else []
        parts.append(_key("var(--soft)", "", f"direction not told ({kinds['undirected']})"))
    for kind, meaning in words.items():
        if count := kinds.get(kind):
            # A plain line would say twice what it means: here it is the colour alone.
            plain = kind == "right" and kinds.get("undirected")
            parts.append(_dot(f"{meaning} ({count})") if plain else _key(*STROKES[kind], f"{meaning} ({count})"))
    return "".join(parts)


def _key(colour: str, dashes: str, meaning: str, head: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<span class="whole"><svg width="34" height="10" viewBox="0 0 34 10" aria-hidden="true">'
        f'<path d="M0 5H{26 if head else 34}" stroke="{colour}" stroke-width="2.5"{dashed}/>{head}</svg> '
        f"{meaning}</span> "
    )


def _dot(meaning: str) -> str:
    return f'<span class="whole"><span class="key" style="background:{STROKES["right"][0]}"></span>{meaning}</span> '


BAR = (150, 14)
"""Width and height of a bar in a table."""


def effect_bar_svg(slope: float | None, share: float | None, most: float) -> str:
    """What an effect explains: a bar to the right of the middle if the effect rises, to the left if it falls.

    `most` is the largest share of the table; no bar where an effect has no slope. Slopes are no measure of size: an
    effect that bends may have an average of 0.
    """
    width, height = BAR
    size = 0.0 if not slope else min(max(share or 0.0, 0.0) / (most or 1.0), 1.0)
    middle, length = width / 2, (width / 2 - 2) * size
    start = middle if slope is not None and slope > 0 else middle - length
    colour = "var(--s1)" if slope is not None and slope > 0 else "var(--s2)"
    bar = f'<rect x="{start:.1f}" y="3" width="{length:.1f}" height="{height - 6}" rx="1.5" fill="{colour}"/>'
    return (
        f'<svg class="bar" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'{bar if length else ""}<path d="M{middle} 0V{height}" stroke="var(--rule)"/></svg>'
    )


def share_bar_svg(share: float) -> str:
    """A share of 0 to 1 as a bar in its frame."""
    width, height = BAR
    full = (width - 2) * min(max(share, 0.0), 1.0)
    return (
        f'<svg class="bar" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<rect x="1" y="3" width="{width - 2}" height="{height - 6}" rx="1.5" fill="var(--wash)" '
        f'stroke="var(--rule)"/><rect x="1" y="3" width="{full:.1f}" height="{height - 6}" rx="1.5" '
        f'fill="var(--s3)"/></svg>'
    )
