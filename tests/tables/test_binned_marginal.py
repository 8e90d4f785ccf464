"""Models of columns in bins: all answers, against sums over fine grids of the reported density."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.kernels.dispatch import backend
from einet.tables import Column, TableWarning, cell_surprise
from einet.tables.bins import Bins
from einet.tables.constraints import Interval, complement, covers, union
from einet.tables.information import column_information
from einet.tables.query.table_source import TableSource

ROWS = 200
COLUMNS = {"height": Column("bins", bins=9), "age": Column("bins", bins=7), "day": "bins"}
GIVEN: dict[str, Any] = {
    "nothing": {},
    "a state": {"sex": "f"},
    "an interval": {"height": (158.0, 171.5)},
    "within one bin": {"height": (165.0, 165.25)},
    "two sides": {
        "height": complement([Interval(160, 171)]),
        "age": complement([Interval(25, 70)]),
    },
    "a point": {"height": 166.5},
    "points": {"height": [155.25, 166.5, 180.125]},
    "a cell on a grid": {"age": 28},
    "cells on a grid": {"age": [20, 27, 70]},
    "both": {"height": (170, None), "age": (None, 40)},
    "another column": {"gain": (0.0, 60.0)},
}


def make_frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], ROWS)
    height = generator.normal(np.where(sex == "f", 165, 180), 7)
    young, old = generator.integers(18, 31, ROWS), generator.integers(60, 90, ROWS)
    gain = np.where(generator.random(ROWS) < 0.6, 0.0, generator.gamma(2.0, 50.0, ROWS))
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 900, ROWS), unit="D")
    age = np.where(height > 172, young, old)
    frame = pd.DataFrame({"sex": sex, "height": height, "age": age, "day": day, "gain": gain})
    return frame.astype({"age": "Int64"})


@pytest.fixture(scope="module")
def model() -> einet.TableModel:
    options: dict[str, Any] = {"num_sums": 4, "epochs": 3, "device": "cpu"}
    return einet.TableModel.fit(make_frame(), columns=COLUMNS, **options)


def _places(model: einet.TableModel, column: str) -> np.ndarray:
    """Numbers that stand for as much of a column each."""
    coding: Any = model.table.coding(column)
    if coding.decimals is not None:
        return np.arange(coding.smallest, coding.largest + 1)
    # Middles of small parts of each bin, and never an edge.
    edges = np.linspace(coding.smallest, coding.largest, 20_001)
    return (edges[1:] + edges[:-1]) / 2


def _weights(model: einet.TableModel, column: str, given: dict[str, Any]) -> np.ndarray:
    """p(x, e) of these numbers, by one question each that holds the column at it."""
    places, known = _places(model, column), dict(given)
    inside = np.ones(len(places), dtype=bool)
    if column in known:
        value = known.pop(column)
        if isinstance(value, tuple) and not isinstance(value[0], Interval):
            low, high = value
            low, high = -np.inf if low is None else low, np.inf if high is None else high
            pieces = union([Interval(low, high)])
        elif isinstance(value, tuple):
            pieces = union(value)
        else:
            cells = value if isinstance(value, list) else [value]
            pieces = union([Interval.at(cell) for cell in cells])
        inside = np.any([_inside(piece, places) for piece in pieces], axis=0)
    # The density is the same in a whole bin: one number of each is asked for.
    coding: Any = model.table.coding(column)
    bins = coding.encode(places)[:, 0].astype(int)
    density = np.zeros(len(coding.widths))
    for number in np.unique(bins):
        cell = float(places[bins == number][0])
        is_day = column == "day"
        at = pd.Timestamp("1970-01-01") + pd.Timedelta(days=cell) if is_day else cell
        density[number] = np.exp(model.given({**known, column: at}).log_evidence[0])
    return np.where(inside, density[bins], 0.0)


def _inside(piece: Any, x: np.ndarray) -> np.ndarray:
    above = piece.lower <= x if piece.closed_lower else piece.lower < x
    return above & (x <= piece.upper if piece.closed_upper else x < piece.upper)


def _is_point(given: dict[str, Any]) -> bool:
    return isinstance(given.get("height"), list | float)


@pytest.mark.parametrize("column", ["height", "age", "day"])
def test_densities_add_up_to_one(model: einet.TableModel, column: str):
    coding: Any = model.table.coding(column)
    x = _places(model, column)
    width = 1.0 if coding.decimals is not None else x[1] - x[0]
    total = _weights(model, column, {}).sum() * width
    # Bins end between places of a continuous column.
    assert total == pytest.approx(1.0, abs=1e-6 if coding.decimals is not None else 1e-3)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("column", ["height", "age", "day"])
def test_answers_are_sums_of_the_density(model: einet.TableModel, name: str, column: str):
    given = GIVEN[name]
    if column == "height" and _is_point(given):
        return
    posterior, x = model.given(given), _places(model, column)
    weights = _weights(model, column, given)
    weights /= weights.sum()
    on_grid = model.table.coding(column).decimals is not None  # type: ignore[attr-defined]
    # Of 52 cm cut into 20,000 places, a quarter of one has 96.
    close = 1e-6 if on_grid else 2e-2 if name == "within one bin" else 5e-3
    marginal = posterior.marginal(column)
    assert marginal.mean()[0] == pytest.approx(weights @ x, rel=1e-6 if on_grid else 1e-5)
    for at in np.quantile(x, [0.0, 0.1, 0.35, 0.6, 0.9, 1.0]):
        expected = weights[x <= at + 1e-9].sum()
        assert marginal.cdf(np.array([at]))[0] == pytest.approx(expected, abs=close)
    until = np.cumsum(weights)
    for q in (0.01, 0.2, 0.5, 0.77, 0.99):
        found = marginal.quantile(q)[0]
        expected = x[(until >= q * (1 - 1e-9)).argmax()]
        if on_grid:
            assert found == expected
        else:
            assert marginal.cdf(np.array([found]))[0] == pytest.approx(q, abs=1e-9)
            # As far as numbers of positive density lie apart.
            assert until[np.searchsorted(x, found) - 1] == pytest.approx(q, abs=close)
    edges = np.quantile(x, [0.2, 0.3, 0.8]).round() + 0.5
    masses = Bins(model.table.coding(column), edges.tolist()).masses(marginal)[0]
    place = np.searchsorted(edges, x)
    known = column == "age" and isinstance(given.get("age"), int)
    np.testing.assert_allclose(masses, np.bincount(place, weights, 4), atol=0 if known else close)


@pytest.mark.parametrize("name", GIVEN)
def test_draws_follow_the_distribution(model: einet.TableModel, name: str):
    given = GIVEN[name]
    posterior = model.given(given)
    drawn = posterior.sample(3000, seed=1)
    for column in ("height", "age"):
        cells = drawn[column].to_numpy(dtype=np.float64)
        value = given.get(column)
        if isinstance(value, list | float | int):
            assert set(cells.tolist()) <= set(value if isinstance(value, list) else [value])
        if isinstance(value, tuple) and isinstance(value[0], Interval):
            assert all(covers(value, cell) for cell in cells.tolist())
        marginal = posterior.marginal(column)
        for q in (0.1, 0.5, 0.8):
            at = marginal.quantile(q)
            assert np.mean(cells <= at + 1e-9) == pytest.approx(marginal.cdf(at)[0], abs=0.04)
        assert cells.mean() == pytest.approx(marginal.mean()[0], abs=0.1 * cells.std() + 1e-9)
    assert drawn.dtypes.equals(make_frame().dtypes)


def test_points_have_densities(model: einet.TableModel):
    posterior = model.given({"height": [155.25, 166.5]})
    alone = [model.given({"height": x}).log_evidence[0] for x in (155.25, 166.5)]
    assert posterior.log_evidence[0] == pytest.approx(np.logaddexp(*alone))
    share = np.exp(alone[0] - np.logaddexp(*alone))
    assert posterior.cdf("height", 160.0)[0] == pytest.approx(share)
    assert posterior.mean("height")[0] == pytest.approx(155.25 * share + 166.5 * (1 - share))
    assert posterior.quantile("height", [0.0, 1.0])[:, 0].tolist() == [155.25, 166.5]
    # Next to an interval one number is nothing.
    mixed = model.given({"height": union([Interval(160, 161), Interval.at(170)])})
    assert mixed.log_evidence[0] == pytest.approx(
        model.given({"height": (160, 161)}).log_evidence[0]
    )


def test_questions(model: einet.TableModel):
    def ask(text: str) -> Any:
        return model.query(text).value

    for column, cut in (("height", 163.3), ("age", 24), ("day", "'2020-05-17'")):
        for given in ("", " | sex=f", " | gain>10, height>165"):
            below, above = ask(f"P({column}<{cut}{given})"), ask(f"P({column}>={cut}{given})")
            assert below + above == pytest.approx(1.0, abs=1e-9)
    posterior = model.given({"sex": "f"})
    assert ask("E(age | sex=f)") == pytest.approx(posterior.mean("age")[0])
    assert ask("median(height | sex=f)") == pytest.approx(posterior.median("height")[0])
    assert ask("P(30<=age<40 | sex=f)") == pytest.approx(
        (posterior.cdf("age", 39) - posterior.cdf("age", 29))[0]
    )
    # By boxes, as there are too many pieces for a shorter way.
    pieces = ", ".join(f"{170 + n / 4}" for n in range(12))
    assert 170 <= ask(f"E(height | height in {{{pieces}}})") <= 173
    nine = [Interval(20 * n, 20 * n + 10) for n in range(9)]
    many = " or ".join(f"{piece.lower}<=gain<={piece.upper}" for piece in nine)
    same = model.given({"gain": tuple(nine)})
    assert ask(f"median(height | {many})") == pytest.approx(same.median("height")[0], rel=1e-5)
    assert ask("mode(height)") == model.given().marginal("height").mode()[0]  # type: ignore
    assert ask("P(sex=f | height=166.5)") == pytest.approx(
        model.given({"height": 166.5}).probabilities("sex")["f"][0]
    )


def test_the_mode_is_the_middle_of_the_densest_bin(model: einet.TableModel):
    for column in ("height", "age"):
        coding: Any = model.table.coding(column)
        chances = model.given().state_probabilities(column)[0] / coding.widths
        low, high = coding.edges[chances.argmax()], coding.edges[chances.argmax() + 1]
        empty = pd.DataFrame({"sex": [None], "height": [np.nan], "age": [np.nan]})
        found = float(model.impute(empty, "mode")[column][0])
        assert found == pytest.approx((low + high) / 2, abs=coding.step / 2 + 1e-9)


def test_known_cells_keep_their_values(model: einet.TableModel):
    frame = make_frame().head(20).copy()
    frame.loc[::2, "height"] = np.nan
    frame.loc[::3, "age"] = pd.NA
    frame.loc[::4, "day"] = pd.NaT
    for rows in (frame, frame.head(3)):
        posterior = model.given(rows)
        for method in ("mean", "median", "mode", "sample"):
            full = posterior.impute(method)
            assert full.notna().all(axis=None)
            for column in ("height", "age", "day"):
                known = rows[column].notna().to_numpy()
                assert full[column][known].tolist() == rows[column][known].tolist()
            assert full.dtypes.equals(frame.dtypes)
        drawn = posterior.sample(2, seed=0)
        known = rows["height"].notna().to_numpy().repeat(2)
        assert drawn["height"][known].tolist() == rows["height"].dropna().repeat(2).tolist()
        np.testing.assert_allclose(posterior.cdf("height", 1e9), 1.0)
        assert (posterior.median("height")[1::2] == rows["height"].to_numpy()[1::2]).all()


def test_surprise_is_what_a_cell_adds(model: einet.TableModel):
    frame = make_frame().head(6)
    found, whole = cell_surprise(model, frame), model.log_prob(frame)
    for name in ("height", "age", "day"):
        expected = model.log_prob(frame.drop(columns=name)) - whole
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-9)
    far = frame.head(1).assign(height=[999.0])
    with pytest.warns(TableWarning, match="beyond its bounds"):
        assert model.log_prob(far)[0] == -np.inf


def test_units_change_densities_as_they_should(model: einet.TableModel):
    frame = make_frame()
    options: dict[str, Any] = {"num_sums": 4, "epochs": 3, "device": "cpu"}
    in_mm = frame.assign(height=frame["height"] * 1024)
    other = einet.TableModel.fit(in_mm, columns=COLUMNS, **options)
    np.testing.assert_allclose(
        other.log_prob(in_mm), model.log_prob(frame) - np.log(1024), rtol=1e-5
    )


def test_a_file_answers_the_same(model: einet.TableModel, tmp_path: Path):
    model.save(tmp_path / "model.einet")
    again = einet.TableModel.load(tmp_path / "model.einet", device="cpu")
    assert repr(again.table) == repr(model.table)
    np.testing.assert_array_equal(again.log_prob(make_frame()), model.log_prob(make_frame()))
    given = GIVEN["both"]
    assert again.given(given).sample(5, seed=3).equals(model.given(given).sample(5, seed=3))


def test_the_same_without_the_short_way(model: einet.TableModel):
    """Few rows are answered in numpy; the model's own posteriors say the same."""
    for given in GIVEN.values():
        few = model.given(given)
        with backend("torch"):
            own = model.given(given)
            assert own.log_evidence[0] == pytest.approx(few.log_evidence[0], rel=1e-4, abs=1e-4)
            assert own.mean("height")[0] == pytest.approx(few.mean("height")[0], rel=1e-4)


def test_draws_of_an_event_in_words(model: einet.TableModel):
    source = TableSource(model.model, model.table)
    pieces = (Interval(150, 158, closed_upper=False), Interval(170.5, 171))
    frame = source.sample_frame(400, [{"height": pieces}], seed=2)
    assert all(covers(pieces, cell) for cell in frame["height"].tolist())
    assert frame["height"].nunique() == 400
    assert frame.dtypes.equals(make_frame().dtypes)
    points = source.sample_frame(50, [{"height": (Interval.at(160.25), Interval.at(181.5))}])
    assert set(points["height"]) == {160.25, 181.5}


@pytest.mark.parametrize("name", ["nothing", "an interval", "two sides", "points", "both"])
def test_information_is_that_of_joint_probabilities(model: einet.TableModel, name: str):
    edges = {"height": [150.0, 164.0, 172.0, 185.0], "age": [17.5, 26.5, 65.5]}
    bins = {c: Bins(model.table.coding(c), edges.get(c, ())) for c in ("sex", "height", "age")}
    posterior = model.given(GIVEN[name])
    found = column_information(posterior, bins)
    names = list(bins)
    for one in range(3):
        for two in range(one):
            a, b = names[one], names[two]
            joint = np.array(
                [[_joint(model, GIVEN[name], {a: p, b: q}) for q in bins[b].pieces]
                 for p in bins[a].pieces]
            )  # fmt: skip
            joint /= joint.sum()
            product = joint.sum(1, keepdims=True) * joint.sum(0)
            some = joint > 0
            expected = (joint[some] * np.log(joint[some] / product[some])).sum()
            assert found[one, two] == pytest.approx(expected, abs=1e-6)


def _joint(model: einet.TableModel, given: dict[str, Any], parts: dict[str, Any]) -> float:
    from einet.tables.constraints import intersection
    from einet.tables.evidence import as_pieces

    known = {c: as_pieces(model.table, c, value) for c, value in given.items()}
    for column, pieces in parts.items():
        both = intersection(known[column], pieces) if column in known else pieces
        if not both:
            return 0.0
        known[column] = both
    try:
        posterior = model.given(known)
    except ValueError:
        return 0.0
    is_like = posterior.points[0] == (1 if isinstance(given.get("height"), list) else 0)
    return float(np.exp(posterior.log_evidence[0])) if is_like else 0.0


def test_polars():
    polars = pytest.importorskip("polars")
    pandas = make_frame().astype({"age": "int64"}).drop(columns="sex")
    frame = polars.DataFrame({name: pandas[name].tolist() for name in pandas.columns})
    model = einet.TableModel.fit(frame, columns=COLUMNS, num_sums=3, epochs=1, device="cpu")
    drawn = model.sample(4, given={"age": (20, 25)}, seed=0)
    assert drawn.schema == frame.schema
    assert drawn["age"].is_between(20, 25).all()
    full = model.impute(frame.head(3).with_columns(height=polars.lit(None, polars.Float64)))
    assert full.schema == frame.schema
    assert full["age"].to_list() == frame["age"].head(3).to_list()
