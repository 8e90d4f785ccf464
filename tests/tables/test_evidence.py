"""Evidence that is more than cells: intervals and sets of values, and what adds up to 1."""

import numpy as np
import pandas as pd
import pytest

from einet.tables import TableModel
from einet.tables.constraints import Interval, Values
from einet.tables.evidence import as_pieces
from tests.tables.frames import mixed_frame

FRAME = mixed_frame(400)


@pytest.fixture(scope="module")
def model() -> TableModel:
    return TableModel.fit(FRAME, num_sums=4, epochs=3)


def test_pieces_from_tuples_lists_and_sets(model: TableModel):
    table = model.table
    assert as_pieces(table, "age", (30, 40)) == (Interval(30.0, 40.0),)
    assert as_pieces(table, "age", (None, 40)) == (Interval(upper=40.0),)
    assert as_pieces(table, "sex", ["Male"]) == (Values(["Male"]),)
    assert as_pieces(table, "size", ("M", None)) == (Values(["M", "L", "XL"]),)
    days = as_pieces(table, "since", ("2020-01-11", pd.Timestamp("2020-01-21")))
    assert days[0].upper - days[0].lower == 10  # type: ignore[union-attr]
    for column, value, words in (
        ("sex", ("Female", "Male"), "no order"),
        ("sex", ["Other"], "values of the column"),
        ("size", ("XL", "S"), "ascend"),
        ("size", ("XXL", None), "categories for ends"),
        ("age", [], "one value at least"),
    ):
        with pytest.raises(ValueError, match=words):
            as_pieces(table, column, value)
    with pytest.raises(TypeError, match="numbers for ends"):
        as_pieces(table, "age", ("a", 3))


def test_complementary_events_add_up_to_one(model: TableModel):
    for column, parts in (
        ("age", [(None, 39), (40, None)]),
        ("gain", [(None, 100), (100.01, None)]),
        ("height", [(None, 170), (170, None)]),
        ("size", [("S", "M"), ("L", None)]),
        ("children", [(None, 2), (3, None)]),
        ("since", [(None, "2021-01-01"), ("2021-01-02", None)]),
    ):
        given = {"sex": "Male"}
        whole = np.exp(model.given(given).log_evidence)[0]
        pieces = [np.exp(model.given({**given, column: part}).log_evidence)[0] for part in parts]
        assert sum(pieces) == pytest.approx(whole, rel=1e-5), column


def test_intervals_are_kept_by_draws_and_answers(model: TableModel):
    posterior = model.given({"age": (30, 39), "gain": (0, 200), "size": {"M", "L"}})
    drawn = posterior.sample(500, seed=0)
    assert drawn["age"].between(30, 39).all()
    assert drawn["gain"].between(0, 200).all()
    assert set(drawn["size"]) == {"M", "L"}
    mean, error = posterior.mean("age")[0], drawn["age"].std() / np.sqrt(500)
    assert mean == pytest.approx(drawn["age"].mean(), abs=5 * error)
    lower, upper = posterior.interval("age", 0.99)
    assert 30 <= lower[0] < upper[0] <= 39
    assert posterior.cdf("gain", 0.0)[0] == pytest.approx((drawn["gain"] == 0).mean(), abs=0.1)
