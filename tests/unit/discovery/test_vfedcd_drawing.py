"""A drawn graph: causes above effects, nothing on top of anything else, and the truth told apart."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veracausa.data.causal.synthetic import random_dag
from veracausa.report.graph_figures import compared, graph_svg, heat_map_svg, legend
from veracausa.report.graph_layout import BOX, _crossings, _monotone, layered


@settings(max_examples=25, deadline=None)
@given(d=st.integers(1, 14), share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_boxes_do_not_overlap_and_causes_are_above(d: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [(int(i), int(j)) for i, j in np.argwhere(random_dag(d, round(share * d * (d - 1) / 2), rng))]
    widths = rng.uniform(40, 160, d).tolist()
    layout = layered(d, edges, widths)
    for one, other in combinations(range(d), 2):
        apart = abs(layout.x[one] - layout.x[other]) - (widths[one] + widths[other]) / 2
        assert apart > 5 or abs(layout.y[one] - layout.y[other]) > BOX
    for node in range(d):
        assert layout.x[node] - widths[node] / 2 >= -0.01
        assert layout.x[node] + widths[node] / 2 <= layout.width + 0.01
        assert BOX / 2 <= layout.y[node] <= layout.height - BOX / 2 + 0.01
    for cause, effect in edges:
        way = layout.ways[cause, effect]
        heights = [down for _, down in way]
        assert heights == sorted(heights)
        assert heights[0] == layout.y[cause] + BOX / 2
        assert heights[-1] == layout.y[effect] - BOX / 2
        # An edge ends at its own boxes, and passes no other.
        assert abs(way[0][0] - layout.x[cause]) <= widths[cause] / 2
        assert abs(way[-1][0] - layout.x[effect]) <= widths[effect] / 2
        for across, down in way[1:-1]:
            for node in range(d):
                if abs(layout.y[node] - down) < 1:
                    assert abs(layout.x[node] - across) > widths[node] / 2


def test_a_crossing_that_need_not_be_is_undone() -> None:
    layout = layered(4, [(0, 3), (1, 2)], [50.0] * 4)
    joined = layered(5, [(0, 3), (1, 2), (4, 0), (4, 1)], [50.0] * 5)
    assert layout.width > 0
    assert (joined.x[0] < joined.x[1]) == (joined.x[3] < joined.x[2])
    assert _crossings([[0, 1], [2, 3]], [[3], [2], [], []]) == 1
    assert _crossings([[0, 1], [3, 2]], [[3], [2], [], []]) == 0


def test_the_nearest_values_that_never_fall() -> None:
    assert _monotone([1, 3, 2, 4], [1, 1, 1, 1]) == [1, 2.5, 2.5, 4]
    assert _monotone([3, 0], [2, 1]) == [2, 2]


FOUND = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
TRUTH = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)


def test_edges_are_told_apart_by_the_truth() -> None:
    kinds = {(edge.cause, edge.effect): edge.kind for edge in compared(FOUND, FOUND * 0.5, TRUTH)}
    assert kinds == {(0, 1): "right", (0, 2): "reversed", (2, 3): "extra", (1, 3): "missing"}
    assert {edge.kind for edge in compared(FOUND, FOUND * 0.5, None)} == {"found"}


def test_the_picture_names_all_and_stronger_is_wider() -> None:
    strengths = FOUND * np.array([[0, 0.5, 1, 0], [0] * 4, [0, 0, 0, 0.1], [0] * 4])
    svg = graph_svg(["a<b", "dose", "x" * 40, "d"], [0, 1, 6, 0], compared(FOUND, strengths, TRUTH), "t")
    assert "a&lt;b" in svg
    assert "a<b" not in svg
    assert svg.count('class="node"') == 4
    assert svg.count('class="edge"') == 4
    assert "x" * 25 + "…" in svg
    widths = {ends: float(width) for ends, width in re.findall(r'data-ends="(\d \d)".*?stroke-width="([\d.]+)"', svg)}
    assert widths["2 3"] < widths["0 1"] < widths["0 2"]
    # The seventh party has the first one's colour again.
    assert svg.count('stroke="var(--s1)"') == 3


def test_a_true_edge_that_would_close_a_cycle_is_drawn_upwards() -> None:
    found = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    truth = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=bool)
    svg = graph_svg(["a", "b", "c"], [0, 0, 0], compared(found, found * 1.0, truth), "t")
    head = re.search(r'data-ends="2 0">.*?points="[\d.]+,([\d.]+) [\d.]+,([\d.]+)', svg)
    assert head is not None
    assert float(head[1]) < float(head[2])


def test_the_map_frames_edges_and_marks_the_truth() -> None:
    svg = heat_map_svg(["a", "b", "c", "d"], FOUND * 0.5, FOUND, TRUTH, "t")
    assert svg.count("stroke-width") == FOUND.sum()
    assert svg.count("<circle") == TRUTH.sum()
    assert "a → c: 0.500" in svg


@pytest.mark.parametrize(("kinds", "said"), [({"right": 2, "missing": 1}, 2), ({"found": 3}, 0)])
def test_the_legend_has_what_occurs(kinds: dict[str, int], said: int) -> None:
    assert legend(kinds).count("<svg") == said


def test_a_graph_without_edges_is_drawn() -> None:
    svg = graph_svg([f"x{at}" for at in range(30)], [0] * 30, [], "t")
    assert svg.count('class="node"') == 30
