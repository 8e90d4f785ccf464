"""Rows: surprises, holes and what would have been likelier, against the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.tables import cell_surprise


def test_rows_are_those_of_the_table(client: Any, frame: pd.DataFrame):
    told = client.ok("GET", "/api/rows?start=7&count=5")
    assert told["total"] == len(frame)
    assert told["columns"] == list(frame.columns)
    for n, row in enumerate(told["rows"]):
        for column, cell in zip(told["columns"], row, strict=True):
            expected = frame[column].iloc[7 + n]
            if pd.isna(expected):
                assert cell is None
            elif column == "day":
                assert cell == expected.date().isoformat()
            else:
                assert cell == expected
    assert len(client.ok("GET", "/api/rows")["rows"]) == 50
    assert client.ok("GET", "/api/rows?start=100000")["rows"] == []
    for query in ("start=-1", "start=x", "count=1e3"):
        assert "whole number" in client.refused(400, "GET", f"/api/rows?{query}")


@pytest.mark.parametrize("index", [0, 3, 11])
def test_cells_given_all_others(
    client: Any, model: einet.TableModel, frame: pd.DataFrame, index: int
):
    told = client.ok("POST", "/api/row", json={"index": index})
    row = frame.iloc[[index]].reset_index(drop=True)
    assert told["log_prob"] == pytest.approx(model.log_prob(row)[0])
    surprise = cell_surprise(model, row)
    assert [cell["column"] for cell in told["cells"]] == list(surprise)
    for cell in told["cells"]:
        column = cell["column"]
        assert cell["is_missing"] == bool(row[column].isna()[0])
        others = row.assign(**{column: None}) if column != "size" else row.drop(columns="size")
        posterior = model.given(others)
        if cell["is_missing"]:
            assert cell["surprise"] is None
            assert len(cell["fill"]["draws"]) == 20
        else:
            assert cell["surprise"] == pytest.approx(surprise[column][0], abs=1e-9), column
        if column in ("height", "age", "gain"):
            assert cell["fill"]["mean"] == pytest.approx(posterior.mean(column)[0])
            low, high = posterior.interval(column)
            assert cell["fill"]["interval"] == pytest.approx([low[0], high[0]])
        if column in ("sex", "size", "tall") and not cell["is_missing"]:
            shares = posterior.probabilities(column).iloc[0]
            here = shares[row[column][0]]
            assert cell["likelier"]["value"] == shares.idxmax()
            assert cell["likelier"]["probability"] == pytest.approx(shares.max())
            assert cell["likelier"]["factor"] == pytest.approx(shares.max() / here)
            assert cell["tail"] == pytest.approx(shares[shares <= here].sum())
        if column == "height" and not cell["is_missing"]:
            below = posterior.cdf(column, row[column][0])[0]
            assert cell["tail"] == pytest.approx(2 * min(below, 1 - below), rel=1e-6)
            assert cell["likelier"]["factor"] > 0.98


def test_rows_that_are_typed_in(client: Any, model: einet.TableModel):
    cells = {"sex": "f", "height": 190, "day": "2020-05-01", "gain": None, "tall": True}
    told = client.ok("POST", "/api/row", json={"cells": cells})
    row = pd.DataFrame({"sex": ["f"], "height": [190.0], "day": [pd.Timestamp("2020-05-01")],
                        "tall": [True]})  # fmt: skip
    assert told["log_prob"] == pytest.approx(model.log_prob(row)[0])
    by_name = {cell["column"]: cell for cell in told["cells"]}
    assert by_name["gain"]["is_missing"]
    assert by_name["age"]["is_missing"]
    assert by_name["day"]["value"] == "2020-05-01"
    draws = by_name["age"]["fill"]["draws"]
    assert len(draws) == 20
    assert all(isinstance(draw, int) for draw in draws)
    assert all(len(draw) == 10 for draw in by_name["day"]["fill"]["draws"] or [])
    # What was never seen counts as missing, and is said to be.
    strange = client.ok("POST", "/api/row", json={"cells": {"sex": "x", "height": 190}})
    cell = next(cell for cell in strange["cells"] if cell["column"] == "sex")
    assert cell["is_missing"]
    assert cell["is_unknown"]


def test_a_number_beyond_its_bounds_is_impossible(client: Any):
    told = client.ok("POST", "/api/row", json={"cells": {"gain": -5.0, "sex": "f"}})
    assert told["log_prob"] is None
    gain = next(cell for cell in told["cells"] if cell["column"] == "gain")
    assert gain["surprise"] is None or gain["surprise"] > 0


@pytest.mark.parametrize(
    ("asked", "status"),
    [({}, 400), ({"cells": []}, 400), ({"cells": {"agee": 1}}, 422), ({"cells": {"age": "x"}}, 422),
     ({"index": 10**9}, 422), ({"index": "x"}, 422), ({"cells": {"age": True}}, 422)],
)  # fmt: skip
def test_what_is_no_row_is_refused(client: Any, asked: dict, status: int):
    client.refused(status, "POST", "/api/row", json=asked)


def test_draws_go_together(client: Any, model: einet.TableModel):
    told = client.ok("POST", "/api/row", json={"cells": {"sex": "f"}})
    expected = model.given({"sex": "f"}).sample(20, seed=0)
    by_name = {cell["column"]: cell["fill"]["draws"] for cell in told["cells"]}
    assert by_name["tall"] == expected["tall"].tolist()
    assert np.allclose(by_name["height"], expected["height"])
