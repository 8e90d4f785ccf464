"""Columns in bins: where edges lie, what cells become, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from einet import Table
from einet.tables import Column
from einet.tables.columns import Binned, Constant, coding_from_dict
from einet.tables.columns.bin_events import Covered, Spot
from einet.tables.constraints import Interval, Values


def coding_of(cells: Any, given: Any = "bins") -> Binned:
    coding = Table.of(pd.DataFrame({"a": cells}), columns={"a": given}).coding("a")
    assert isinstance(coding, Binned)
    return coding


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decimals", [None, 1, 0, -2])
def test_bins_have_as_many_rows_and_none_is_empty(seed: int, decimals: int | None):
    generator = np.random.default_rng(seed)
    cells = generator.gamma(1.0, 3000.0, 500) * generator.choice([1, 1, 40], 500)
    if decimals is not None:
        cells = cells.round(decimals)
        cells[:150] = cells[0]
    coding = coding_of(cells, Column("bins", bins=20))
    sizes = np.bincount(coding.encode(cells)[:, 0].astype(int), minlength=len(coding.widths))
    assert len(sizes) <= 20
    assert sizes.min() > 0
    assert (coding.smallest, coding.largest) == pytest.approx((cells.min(), cells.max()))
    assert not coding.is_strange(cells).any()
    if decimals is None:
        assert set(sizes) == {25}
    else:
        assert coding.decimals == decimals
        steps = coding.widths / coding.step
        np.testing.assert_allclose(steps, steps.round(), atol=1e-6)


def test_numbers_that_repeat_make_fewer_bins():
    cells = np.repeat([1.0, 2.0, 7.0], [100, 5, 5])
    coding = coding_of(cells)
    assert coding.edges.tolist() == [0.5, 1.5, 7.5]
    # Any number of the grid may be between them.
    assert np.exp(coding.log_slope(np.array([1.0, 2.0, 3.0]))).tolist() == pytest.approx(
        [1, 1 / 6, 1 / 6]
    )
    assert coding_of([0.1234567, 0.2, 0.7]).describe() == "3 bins of numbers, from 0.123457 to 0.7"


def test_the_number_of_bins_follows_the_rows():
    generator = np.random.default_rng(0)
    for rows, bins in ((30, 6), (1000, 20), (60_000, 64)):
        assert len(coding_of(generator.normal(size=rows)).widths) == bins


def test_bounds_and_edges_that_are_given():
    cells = np.arange(20.0, 60.0)
    wide = coding_of(cells, Column("bins", lower=0, upper=99.5, bins=4))
    assert (wide.edges[0], wide.edges[-1]) == (-0.5, 99.5)
    by_edges = coding_of(cells, Column("bins", bins=[18, 30, 65]))
    assert by_edges.edges.tolist() == [17.5, 29.5, 65.5]
    assert by_edges.encode(np.array([29.0, 30.0, 65.0]))[:, 0].tolist() == [0, 1, 1]
    assert by_edges.is_strange(np.array([17.0, 66.0, np.nan])).tolist() == [True, True, False]
    continuous = coding_of(cells + 0.1234567, Column("bins", bins=np.array([0, 30.5, 70])))
    assert continuous.edges.tolist() == [0, 30.5, 70]
    assert continuous.encode(np.array([30.5, 70.0, 80.0]))[:, 0].tolist() == [1, 1, 1]


def test_decimals_of_half_the_digits():
    cells = (np.random.default_rng(0).normal(20_000, 900, 300)).round(1).astype(np.float32)
    frame = pd.DataFrame({"a": cells})
    table = Table.of(frame, columns={"a": "bins"})
    coding = table.coding("a")
    assert isinstance(coding, Binned)
    assert coding.decimals == 1
    assert np.isfinite(table.log_density_change(frame)).all()
    assert table.decode(table.encode(frame))["a"].dtype == np.float32


def test_edges_of_dates():
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(50), unit="D")
    edges = [dt.date(2020, 1, 1), pd.Timestamp("2020-02-01"), np.datetime64("2020-03-01")]
    coding = coding_of(days, Column("bins", bins=edges))
    assert np.diff(coding.edges).tolist() == [31, 30]
    with pytest.raises(TypeError, match="one of dates, but holds str"):
        coding_of(days, Column("bins", bins=["2020", "2021"]))


def test_one_number_alone():
    assert coding_of([0.5] * 30, Column("bins", bins=3)).describe() == (
        "1 bin of numbers in steps of 0.1, from 0.5 to 0.5"
    )
    crooked = Table.of(pd.DataFrame({"a": [1 / 3] * 30}), columns={"a": Column("bins", bins=3)})
    assert isinstance(crooked.coding("a"), Constant)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"kind": "bins", "bins": 0}, ValueError, "bins must be a positive number"),
        ({"kind": "bins", "bins": True}, ValueError, "bins must be a positive number"),
        ({"kind": "bins", "bins": [1.0]}, ValueError, "bins must have two edges or more"),
        ({"kind": "bins", "bins": "many"}, TypeError, "bins must be a number of bins, or edges"),
        ({"kind": "bins", "spikes": [0]}, ValueError, "spikes cannot be given for a column of"),
        ({"kind": "bins", "categories": [0]}, ValueError, "categories cannot be given for"),
        ({"kind": "bins", "bins": [0, 1], "lower": 0}, ValueError, "lower cannot be given beside"),
        ({"kind": "integer", "bins": 4}, ValueError, "bins is for columns of kind 'bins'"),
        ({"bins": 4}, ValueError, "bins is for columns of kind 'bins', but kind is 'automatic'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        Column(**options)


@pytest.mark.parametrize(
    ("edges", "match"),
    [
        ([0, 9], "must lie between the outer edges, 0 and 9, got 10"),
        ([0, 50, 50, 99], "in every bin"),
        ([0, 20.2, 20.8, 99], "in every bin"),
        ([99, 0], "in every bin"),
        ([0, float("nan"), 99], "edges must be two finite numbers or more"),
    ],
)
def test_edges_that_are_refused(edges: list[float], match: str):
    with pytest.raises(ValueError, match=match):
        coding_of(np.arange(10, 40), Column("bins", bins=edges))


def test_text_has_no_bins():
    with pytest.raises(TypeError, match="'bins', which is for numbers"):
        Table.of(pd.DataFrame({"a": ["x", "y"] * 9}), columns={"a": "bins"})


@pytest.mark.parametrize(
    ("plain", "match"),
    [
        ({"edges": [1.0], "decimals": None}, "two finite numbers or more"),
        ({"edges": [1.0, 1.0], "decimals": None}, "must ascend"),
        ({"edges": [0.0, 5.0], "decimals": 0}, "half a step of 1 beside the grid"),
        ({"edges": [0.5, 5.5], "decimals": "0"}, "decimals must be a small integer"),
    ],
)
def test_files_that_are_refused(plain: dict[str, Any], match: str):
    with pytest.raises(ValueError, match=match):
        coding_from_dict({"kind": "bins", **plain})


@pytest.mark.parametrize("decimals", [None, 2, 0, -1])
def test_files_tell_the_same_bins(decimals: int | None):
    cells = np.random.default_rng(0).normal(0, 90, 200)
    coding = coding_of(cells if decimals is None else cells.round(decimals))
    again = coding_from_dict(json.loads(json.dumps(coding.to_dict())))
    assert isinstance(again, Binned)
    assert again.edges.tolist() == coding.edges.tolist()
    assert again.decimals == coding.decimals


def test_events_cover_parts_of_bins():
    coding = Binned([0.0, 2.0, 6.0, 7.0])
    ((covered, *_),) = [a.values() for a in coding.alternatives([Interval(1.5, 5), Interval(6.25)])]
    assert isinstance(covered, Covered)
    assert covered.values.tolist() == [0, 1, 2]
    assert covered.weights.tolist() == [0.25, 0.75, 0.75]
    spots = coding.alternatives([Interval.at(-1), Interval.at(0), Interval.at(2), Interval.at(7)])
    cells = [(float(s), s.cell) for spot in spots for s in spot.values() if isinstance(s, Spot)]
    assert cells == [(0.0, 0.0), (1.0, 2.0), (2.0, 7.0)]
    assert coding.alternatives([Interval(8, 9)]) == []
    whole = Binned([0.5, 2.5, 6.5], decimals=0)
    (only,) = whole.alternatives([Interval(2, 4, closed_lower=False), Interval.at(6)])
    assert (only[0].values.tolist(), only[0].weights.tolist()) == ([1], [0.75])
    assert whole.alternatives([Interval(3.1, 3.9)]) == []
    with pytest.raises(TypeError, match="constrained by intervals"):
        coding.alternatives([Values(["a"])])


@pytest.mark.parametrize("decimals", [None, 0])
def test_draws_are_even_within_what_is_possible(decimals: int | None):
    coding = Binned([0.5, 4.5, 9.5, 12.5], decimals=decimals)
    ends = [Interval(2, 3), Interval(5, 5.75 if decimals is None else 6), Interval(8, 11)]
    (event,) = (alternative[0] for alternative in coding.alternatives(ends))
    random = np.random.default_rng(0)
    for state in range(3):
        x = coding.draw(np.full(4000, float(state)), event, random)
        assert (coding.encode(x)[:, 0] == state).all()
        assert all(any(cell in piece for piece in ends) for cell in x.tolist())
        fine = np.linspace(coding.edges[state], coding.edges[state + 1], 4001)
        if decimals is not None:
            fine = np.unique(fine[(fine > coding.edges[state]) & (fine < 12.5)].round())
            fine = fine[coding.encode(fine)[:, 0] == state]
        possible = np.array([any(cell in piece for piece in ends) for cell in fine.tolist()])
        for q in (0.2, 0.5, 0.8):
            expected = np.quantile(fine[possible], q, method="inverted_cdf")
            assert np.mean(x <= expected) == pytest.approx(
                np.mean(fine[possible] <= expected), abs=0.03
            )
    whole = coding.draw(np.array([0.0, 1.0, 2.0] * 100), None, random)
    assert coding.encode(whole)[:, 0].tolist() == [0.0, 1.0, 2.0] * 100


def test_levels_keep_the_order():
    coding = Binned(np.arange(65.0).tolist())
    z = np.append(np.repeat(np.arange(64.0), 3), np.nan).reshape(-1, 1)
    levels = coding.levels(z, 8)
    assert np.isnan(levels[-1])
    assert np.unique(levels[:-1], return_counts=True)[1].tolist() == [24] * 8
    assert (np.diff(levels[:-1]) >= 0).all()
    assert (coding.levels(z, 64)[:-1] == z[:-1, 0]).all()
