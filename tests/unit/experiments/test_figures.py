"""A figure of lines draws what was measured, with its spread, and breaks a line where a cell is not finished."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from veracausa.experiments.experiment import load_experiment
from veracausa.experiments.figures import PRINT, drawings_of, write_figure
from veracausa.experiments.pictures import Gallery, gallery_drawing
from veracausa.experiments.table import Line, PanelTable, Value


def test_a_line_is_broken_at_what_is_not_finished_and_a_row_without_numbers_is_not_drawn():
    values = {
        "none": [Value(0.4, (0.1,)), Value(0.6), Value(0.7)],
        "ressfl": [Value(0.3), Value(None), Value(0.6)],
        "soteria": [Value(None), Value(None), Value(None)],
    }
    table = PanelTable("cifar10", "CIFAR-10", "")
    for row, means in values.items():
        table.lines += [Line(row, row, at, {"accuracy": of}) for at, of in zip((0.1, 0.3, 1.0), means, strict=True)]
    (drawing,) = drawings_of(load_experiment("causshield/fig13", "smoke").figures, [table])
    axes = Canvas().add_subplot()
    drawing.draw(axes, PRINT)
    drawn = {line.get_label(): np.asarray(line.get_ydata(), float) for line in axes.lines if len(line.get_xdata()) == 3}
    assert set(drawn) == {"none", "ressfl"}
    assert math.isnan(drawn["ressfl"][1])
    assert list(drawn["none"]) == [0.4, 0.6, 0.7]
    assert len(axes.collections) == 1  # the one spread that there is


def gallery(truth: int, people: range = range(3)) -> Gallery:
    """What was read of some people, whose pictures are of one shade."""
    pictures = np.full((len(people), 1, 4, 2), truth, dtype=np.uint8)
    mse = np.full(len(people), 0.25)
    return {"positions": [*people], "truth": pictures, "guess": pictures + 1, "blind": pictures + 2, "mse": mse}


def test_readings_of_another_party_stand_below_that_party_s_originals():
    kept = {"none": gallery(10), "laplace": gallery(90), "prune": gallery(10), "another seed": gallery(10, range(7, 9))}
    axes = Canvas().add_subplot()
    gallery_drawing("oracle decoder", kept).draw(axes, PRINT)
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    guess = "no payload: best guess"
    assert labels == ["original", "none", "prune", guess, "original, another party", "laplace", guess]
    sheet = np.asarray(axes.images[0].get_array())
    middles = [int(middle) for middle in axes.get_yticks()]
    assert [int(sheet[middle, 0, 0]) for middle in middles] == [10, 11, 11, 12, 90, 91, 92]


@pytest.mark.draws
def test_a_long_title_makes_the_picture_no_wider_which_would_squeeze_its_axes():
    lines = [Line(row, f"{row} search: spectral radius of squares", None, {"f1": Value(0.8)}) for row in ("a", "b")]
    widths = []
    for label in ("short", "leakage of the recommended profile, its three searches apart and together, three graphs"):
        tables = [PanelTable(str(number), label, "", lines=list(lines)) for number in range(3)]
        _, png = write_figure(drawings_of(load_experiment("vfedcd/table3", "smoke").figures[:1], tables))
        widths.append(int.from_bytes(png[16:20], "big"))
    assert widths[1] <= 1.1 * widths[0]
