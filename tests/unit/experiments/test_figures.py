"""A figure of lines draws what was measured, with its spread, and breaks a line where a cell is not finished."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas

from veracausa.experiments.experiment import load_experiment
from veracausa.experiments.figures import PRINT, drawings_of, write_figure
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


@pytest.mark.draws
def test_a_long_title_makes_the_picture_no_wider_which_would_squeeze_its_axes():
    lines = [Line(row, f"{row} search: spectral radius of squares", None, {"f1": Value(0.8)}) for row in ("a", "b")]
    widths = []
    for label in ("short", "leakage of the recommended profile, its three searches apart and together, three graphs"):
        tables = [PanelTable(str(number), label, "", lines=list(lines)) for number in range(3)]
        _, png = write_figure(drawings_of(load_experiment("vfedcd/table3", "smoke").figures[:1], tables))
        widths.append(int.from_bytes(png[16:20], "big"))
    assert widths[1] <= 1.1 * widths[0]
