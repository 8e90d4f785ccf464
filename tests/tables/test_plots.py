"""Pictures hold what they should."""

from __future__ import annotations

import math
import sys

import numpy as np
import pandas
import pytest

from einet.tables import plots
from einet.tables.constraints import Interval, Values
from einet.tables.query import AskedColumn, ask, condition_boxes
from tests.tables.query.enumeration import ROWS, WEIGHTS, Rows

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture
def figure():
    """A figure that no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(layout="constrained")
    FigureCanvasAgg(drawn)
    yield drawn
    # What was drawn can be painted.
    drawn.canvas.draw()


def frame(rows: int, seed: int) -> pandas.DataFrame:
    generator = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "age": generator.normal(40, 10, rows),
            "sex": [[None, "f", "m"][place] for place in generator.integers(0, 3, rows)],
            "day": pandas.Timestamp("2020-01-01")
            + pandas.to_timedelta(generator.integers(0, 99, rows), "D"),
            "member": generator.random(rows) < 0.5,
        }
    )


def test_pairs_have_a_panel_for_any_two_columns(figure):
    data, samples = frame(2500, 0), frame(50, 1)
    data.loc[3, "age"] = math.nan
    axes = plots.plot_pairs(data, samples, figure=figure)
    assert axes.shape == (4, 4)
    (below,) = axes[1, 0].lines
    (above,) = axes[0, 1].lines
    # Below the diagonal are the data, as many as can be seen; above it the samples.
    assert (len(below.get_xdata()), len(above.get_xdata())) == (2000, 50)
    assert [text.get_text() for text in axes[1, 0].get_yticklabels()] == ["f", "m"] or [
        text.get_text() for text in axes[1, 0].get_yticklabels()
    ] == ["m", "f"]
    assert axes[3, 2].get_xlabel() == "day"


def test_pairs_of_chosen_columns(figure):
    axes = plots.plot_pairs(frame(20, 0), frame(20, 1), ["sex"], figure=figure)
    assert axes.shape == (1, 1)
    heights = [bar.get_height() for bar in axes[0, 0].patches]
    assert sum(heights) == pytest.approx(2)
    with pytest.raises(ValueError, match="columns must be some that there are, got 'x'"):
        plots.plot_pairs(frame(20, 0), frame(20, 1), ["x"])
    with pytest.raises(ValueError, match="one column at least"):
        plots.plot_pairs(frame(20, 0), frame(20, 1), [])


def test_marginals_before_and_after(figure):
    source = Rows()
    event = condition_boxes(source, "age>=2, sex=Female or member")
    axes = plots.plot_marginals(source, event, figure=figure)
    assert [ax.get_title() for ax in axes] == list(source.columns)
    by_name = dict(zip(source.columns, axes, strict=True))
    for name in ("sex", "grade", "member"):
        before, after = np.split(np.array([bar.get_height() for bar in by_name[name].patches]), 2)
        given = ask(source, f"distribution({name} | age>=2, sex=Female or member)").value
        assert after == pytest.approx(list(given.values()))
        assert before == pytest.approx(list(ask(source, f"distribution({name})").value.values()))
    before, after = (stairs.get_data() for stairs in by_name["age"].patches)
    assert before.values.sum() == pytest.approx(1)
    assert after.values.sum() == pytest.approx(1)
    # No bin of ages below 2 is left.
    assert after.values[after.edges[:-1] < 1].sum() == 0


def test_marginals_of_few_numbers_are_bars(figure):
    few = AskedColumn("age", "number", (0, 1, 2, 3))
    source = Rows(ROWS, WEIGHTS, {"age": few})
    (ax,) = plots.plot_marginals(source, [{"age": (Interval.at(2),)}], figure=figure)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights[4:] == pytest.approx([0, 0, 1, 0])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "2", "3"]


def test_marginals_given_what_cannot_be(figure):
    with pytest.raises(ValueError, match="event has probability 0"):
        plots.plot_marginals(Rows(), [{"sex": (Values(["nobody"]),)}], figure=figure)


def test_surprise_is_drawn_by_column(figure):
    ax = figure.subplots()
    surprise = {"age": 0.5, "job": math.nan, "sex": 7.0, "zip": math.inf, "hours": -1.0}
    assert plots.plot_surprise(surprise, ax) is ax
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["hours", "age", "sex", "zip (impossible)"]
    lengths = [bar.get_width() for bar in ax.patches]
    assert lengths[:3] == [-1.0, 0.5, 7.0]
    assert 7 < lengths[3] < math.inf
    assert len(plots.plot_surprise(surprise, figure.subplots(), most=2).patches) == 2


def test_training_curve(figure):
    import einet

    history = einet.History(train=[-3.0, -2.0], seconds=[1.0, 1.0])
    ax = figure.subplots()
    assert plots.plot_training(history, ax) is ax
    assert ax.lines[0].get_ydata().tolist() == [-3.0, -2.0]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'einet\[plots\]'"):
        plots.plot_surprise({"age": 1.0})
