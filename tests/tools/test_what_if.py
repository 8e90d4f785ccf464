"""The README's picture of a table can be drawn anew."""

import numpy as np
import pytest

import einet
from tests.tables.test_page import passengers
from tools import what_if


def test_it_has_three_panels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(what_if, "_LEVELS", np.array([0.1, 0.5, 0.9]))
    table = passengers(60)
    model = einet.TableModel.fit(table, num_sums=2, epochs=2)
    figure = what_if.draw(model, table)
    survival, fares, surprise = figure.axes
    assert len(survival.patches) == 9
    assert all(0 < bar.get_height() < 1 for bar in survival.patches)
    for line in fares.lines:
        assert (np.diff(line.get_xdata()) >= 0).all()
    shown = {label.get_text().split(" = ")[0] for label in surprise.get_yticklabels()}
    assert shown <= set(what_if.COLUMNS)
    figure.draw_without_rendering()


def test_it_needs_a_table():
    with pytest.raises(SystemExit, match="usage: what_if.py titanic.csv"):
        what_if.main([])
