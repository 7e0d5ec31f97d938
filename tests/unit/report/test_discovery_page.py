"""The page of a discovery that tells directions and effects: what is certain, what is not, who saw what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from told_graph import EDGES, between_parties, written
from veracausa.report.discovery_page import discovery_headline, discovery_numbers
from veracausa.report.discovery_sections import (
    assumed,
    certain,
    effect_words,
    explained_rows,
    kept_because,
    saw,
    uncertain,
)
from veracausa.report.graph_figures import compared, effect_bar_svg, graph_svg, legend, share_bar_svg

TWO = [
    {"method": "vfedcd", "held_out_log_likelihood": -5.5, "edges": 2, "seconds": 61.0, "kept": False},
    {
        "method": "moments",
        "held_out_log_likelihood": -5.0,
        "edges": 3,
        "seconds": 1.0,
        "kept": True,
        "edge_list": [list(edge) for edge in EDGES],
        "undirected": [["age", "bmi"]],
    },
]


def page_of(path: Path, **how: Any) -> str:
    return written(path, **how).report().read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """What a reader sees, in one line."""
    bare = re.sub(r"<(style|script|svg).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def test_the_page_says_it_in_this_order(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run", parties=True)
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    assert headings[:6] == [
        "The graph",
        "What is certain",
        "What is not",
        "How large the effects are",
        "How much of each column its causes explain",
        "What was assumed, and what would break it",
    ]
    assert "<h1>3 edges among 4 attributes of 2 parties, 2 of them with a direction, from 50 rows.</h1>" in page
    assert "Strength of every possible edge" not in page, "only edges have a strength here"
    assert not re.search(r"""(src|href)=["']?(?!data:|#)\w""", page), "it opens from disk, without anything beside it"


def test_an_edge_without_direction_is_listed_and_drawn_without_a_head(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run")
    drawn = {
        title: "polygon" in rest for title, rest in re.findall(r'<g class="edge".*?<title>(.*?)</title>(.*?)</g>', page)
    }
    assert drawn["age — bmi, strength 0.35, direction not told"] is False
    assert drawn["bmi → crp, strength 0.70"] is True
    said = text_of(page)
    assert "age — bmi the sums do not tell which way" in said
    assert "age ⋯ sex no edge, but what is left of both is correlated (−0.21)" in said
    assert "direction not told (1)" in said


def test_effects_have_sign_size_and_words(tmp_path: Path) -> None:
    said = text_of(page_of(tmp_path / "run"))
    assert "bmi → crp falls, −0.30 deviations, 50 % of the variance 8.2 nats likelier than turned around" in said
    assert "sex → crp differs between categories, 6 % of the variance its direction is known beforehand" in said
    assert "+0.11 a unit of age" in said
    assert "bmi 5 % little: expect causes outside the table" in said


def test_what_was_assumed_and_warnings_stand_there(tmp_path: Path) -> None:
    said = text_of(page_of(tmp_path / "run"))
    assert "Warning: bmi: its causes explain 5 % of its variance." in said
    assert "Curves that add up" in said
    assert "No cycle." in said
    for word in ("A hidden cause", "Feedback", "Selection"):
        assert word in said
    assert "bmi: 3 values are missing" in said


def test_scores_stand_only_where_a_truth_was_given(tmp_path: Path) -> None:
    without = text_of(page_of(tmp_path / "without"))
    assert "SHD" not in without
    assert "F1" not in without
    with_truth = text_of(page_of(tmp_path / "with", truth=True))
    assert "F1 1.00 without directions and 0.83 with them" in with_truth
    assert "has it" in with_truth


def test_who_saw_what_in_words(tmp_path: Path) -> None:
    said = text_of(page_of(tmp_path / "run", parties=True))
    assert "No row was opened." in said
    assert "opened to the validator alone" in said
    assert "No noise was added" in said
    assert "lab crp ciphertexts, and the whole graph 9 2 MB" in said
    assert "validator no data all sums over rows, and the whole graph" in said
    noisy = text_of(page_of(tmp_path / "noisy", parties=True, epsilon=4.0))
    assert "ε = 4, δ = 1e-05" in noisy
    assert "No noise was added" not in noisy
    every = text_of(page_of(tmp_path / "all", parties=True, **between_parties(receiver="all", encryption="none")))
    assert "every party: clinic, lab" in every
    assert "Nothing was encrypted here: functions of every row crossed as plain numbers" in every
    assert "No row was opened" not in every
    assert "All columns were in one place" in text_of(page_of(tmp_path / "one"))


@pytest.mark.parametrize("encryption", ["bfv", "none"])
def test_rows_that_networks_opened_are_told(tmp_path: Path, encryption: str) -> None:
    opened = between_parties(estimator="auto", networks=True, encryption=encryption)
    said = text_of(page_of(tmp_path / "run", method="auto", parties=True, **opened))
    assert "No row was opened" not in said
    assert "only sums over all" not in said
    assert "enough of them let it solve for those columns" in said
    assert "features of every row (mixtures of the others&#39; columns)" in said


def test_candidates_stand_side_by_side_with_why_one_was_kept(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run", method="auto", compared_=TWO)
    said = text_of(page)
    assert "moments was kept: a held-out row is likelier under it than under vfedcd, by 0.500 nats on average." in said
    assert said.index("moments, kept") < said.index("held-out log-likelihood −5.50 a row")
    assert 'aria-label="The graph of moments"' in page
    assert "What was compared" not in page_of(tmp_path / "alone", method="auto", compared_=TWO[1:])
    assert kept_because({"compared": [{**TWO[1], "why": "networks were not asked for"}, TWO[0]]}).startswith("networks")


def test_few_resamples_make_a_direction_uncertain() -> None:
    row = {"cause": "a", "effect": "b", "directed": "yes", "confidence": 0.6, "direction_confidence": 0.7}
    summary = {"bootstrap": 50}
    assert not certain([row], summary)
    assert uncertain([row], summary) == [
        {"edge": "a → b", "why": "only 60 % of resamples; 70 % of those with the edge point this way"}
    ]
    assert certain([{**row, "confidence": 0.9}], summary)
    assert certain([row], {"bootstrap": 0}), "without resamples nobody doubts it"


def test_other_methods_that_leave_directions_open_are_told_too(tmp_path: Path) -> None:
    nothing = {"effects_": [], "model_": None, "explained_": None, "assumes_": None, "found_": None}
    said = text_of(page_of(tmp_path / "run", method="pc", **nothing))
    assert "age — bmi the data do not tell which way" in said
    assert "How large" not in said
    assert "Edges cause effect strength" in said


def test_words() -> None:
    row = {"slope": 0.42, "share": 0.12, "shape": "rises"}
    assert effect_words(row) == "rises, +0.42 deviations, 12 % of the variance"
    assert effect_words({**row, "shape": "bends"}) == "bends, +0.42 deviations on average, 12 % of the variance"
    assert effect_words({"strength": 0.3}) == ""
    assert assumed({"model": "straight lines", "assumes": "no cycle."}) == ["Straight lines.", "No cycle."]
    assert assumed({"model": None, "assumes": "noise is added; no cycle"}) == ["Noise is added.", "No cycle."]
    assert saw({"reveal": "own", "privacy": {"opened_to": ["validator"], "encryption": "bfv"}}, "lab", True) == (
        "ciphertexts, and the edges that touch its own columns"
    )
    rows = explained_rows({"explained": {"a": None, "b": 0.4}}, [{"cause": "a", "effect": "b"}])
    assert [(row["name"], row["words"]) for row in rows] == [("b", "40 %"), ("a", "no cause found")]


@pytest.mark.parametrize("model", ["linear", "straight lines with normal noise, which leave some directions open"])
def test_more_rows_will_not_tell_directions_of_lines_with_normal_noise(model: str, tmp_path: Path) -> None:
    said = "more rows of the same kind will not tell"
    assert said in text_of(page_of(tmp_path / "lines", model_=model))
    assert said not in text_of(page_of(tmp_path / "curves"))


def test_an_empty_graph_is_said_without_a_threshold(tmp_path: Path) -> None:
    none = np.zeros((4, 4), dtype=bool)
    said = text_of(page_of(tmp_path / "run", adjacency_matrix_=none, undirected_=none, effects_=[]))
    assert "no column explains enough of another one" in said
    assert "threshold" not in said


def test_numbers_of_an_open_graph_are_no_matter_of_luck() -> None:
    summary = {"edges": 3, "undirected": [["a", "b"]], "shd": 1, "f1": 0.6, "skeleton_f1": 1.0, "partial_f1": 0.8}
    shown = dict(discovery_numbers(summary))
    assert shown["SHD, open ones as drawn"] == "1"
    assert "F1" not in shown
    assert "none of them with a direction" in discovery_headline({**summary, "edges": 1, "shd": None})


@pytest.mark.parametrize(("slope", "side"), [(0.5, "right"), (-0.5, "left"), (None, ""), (0.0, "")])
def test_bars_show_the_sign(slope: float | None, side: str) -> None:
    bar = re.search(r'<rect x="([\d.]+)"', effect_bar_svg(slope, 0.4, 0.8))
    assert (bar is None) == (side == "")
    if bar is not None:
        assert (float(bar[1]) >= 75) == (side == "right")
    assert 'width="148.0"' in share_bar_svg(2.0), "a share of more than all is all"


def test_a_line_over_a_true_edge_is_right_either_way() -> None:
    found = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    lines = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)
    truth = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)
    drawn = {
        (edge.cause, edge.effect): (edge.kind, edge.directed) for edge in compared(found, found * 1.0, truth, lines)
    }
    assert drawn == {(0, 1): ("right", False), (1, 2): ("reversed", True)}
    svg = graph_svg(["a", "b", "c"], [0, 0, 0], compared(found, found * 1.0, truth, lines), "t")
    assert svg.count("<polygon") == 1
    assert legend({"directed": 1, "undirected": 2}).count("<svg") == 2
    # A line is a kind of edge there, so edges of the true graph have their colour alone.
    both = legend({"directed": 1, "undirected": 2, "right": 3})
    assert (both.count("<svg"), both.count('class="key"')) == (2, 1)
    assert "in the true graph (3)" in both
    assert legend({"directed": 1}) == ""


def test_what_a_party_wrote_is_escaped(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    page = page_of(
        tmp_path / "run",
        assumes_=(bad,),
        warnings_=(bad,),
        notes_=(bad,),
        compared_=[{**TWO[0], "method": bad}, TWO[1]],
    )
    assert bad not in page
