"""A figure of lines draws what was measured, with its spread, and breaks a line where a cell is not finished."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure as Canvas

from veracausa.experiments.experiment import load_experiment
from veracausa.experiments.figures import PRINT, drawings_of
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
