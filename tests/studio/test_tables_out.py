"""Tables to take away: synthetic rows and filled holes, under evidence."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.studio.evidence import as_known
from einet.studio.tables_out import filled_csv


def _table(response: Any) -> Any:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/csv")
    assert "attachment" in response.headers["content-disposition"]
    return pd.read_csv(io.StringIO(response.text))


def test_synthetic_rows_satisfy_the_evidence(client: Any):
    evidence = [
        {"column": "age", "op": "between", "lower": 30, "upper": 40, "negated": True},
        {"column": "sex", "op": "is", "value": "f"},
        {"column": "gain", "op": "between", "lower": 10, "upper": None},
    ]
    asked = {"evidence": evidence, "n": 200, "seed": 3}
    drawn = _table(client.post("/api/sample", json=asked))
    assert len(drawn) == 200
    assert "row" not in drawn
    assert (drawn["always"] == "same").all()
    assert (drawn["sex"] == "f").all()
    assert (drawn["gain"] >= 10).all()
    assert not drawn["age"].between(30, 40).any()
    assert drawn.equals(_table(client.post("/api/sample", json=asked)))
    assert not drawn.equals(_table(client.post("/api/sample", json={**asked, "seed": 4})))
    assert "at most" in client.refused(422, "POST", "/api/sample", json={"n": 10**7})
    assert "n must be" in client.refused(422, "POST", "/api/sample", json={"n": 0})


@pytest.mark.parametrize("method", ["mean", "median", "mode", "sample"])
def test_holes_are_filled(client: Any, model: einet.TableModel, frame: Any, method: str):
    filled = _table(client.post("/api/impute", json={"method": method}))
    assert list(filled.columns) == list(frame.columns)
    assert len(filled) == len(frame)
    assert not filled.isna().any().any()
    for column in ("sex", "height", "gain"):
        known = frame[column].notna()
        expected = frame[column][known]
        if column == "sex":
            assert (filled[column][known] == expected).all()
        else:
            assert np.allclose(filled[column][known], expected)
    if method == "mean":
        expected = model.impute(frame)
        assert np.allclose(filled["height"], expected["height"])
        assert (filled["sex"] == expected["sex"]).all()


def test_evidence_is_for_what_is_missing(model: einet.TableModel, frame: Any):
    known = as_known(model.table, [
        {"column": "height", "op": "between", "lower": 150, "upper": 160},
        {"column": "sex", "op": "is", "value": "f"},
    ])  # fmt: skip
    filled: Any = pd.read_csv(io.BytesIO(filled_csv(model, frame, "mean", known)))
    missing = frame["height"].isna()
    assert filled["height"][missing].between(150, 160).all()
    assert np.allclose(filled["height"][~missing], frame["height"][~missing])
    assert (filled["sex"][frame["sex"].isna()] == "f").all()
    row = frame[missing & frame["sex"].notna()].index[0]
    one = frame.loc[[row]].drop(columns=["height"])
    evidence = {name: one[name].iloc[0] for name in one if name in model.table.modelled}
    evidence = {name: value for name, value in evidence.items() if not pd.isna(value)}
    evidence["day"] = evidence["day"].to_pydatetime()
    posterior = model.given({**evidence, "height": (150, 160)})
    assert filled["height"][row] == pytest.approx(posterior.mean("height")[0])


def test_a_table_that_is_sent(client: Any, frame: pd.DataFrame):
    text = frame[["sex", "height", "tall"]].head(20).to_csv(index=False).encode()
    filled = _table(client.post("/api/impute?method=mode&name=my.csv", content=text))
    assert filled.shape == (20, 3)
    assert not filled.isna().any().any()
    assert "method" in client.refused(422, "POST", "/api/impute", json={"method": "best"})
    error = client.refused(422, "POST", "/api/impute?method=mean&name=my.csv", content=b"x\n1\n2\n")
    assert "no column" in error


def test_nothing_to_fill(model: einet.TableModel, frame: pd.DataFrame):
    whole = frame.dropna()
    same = pd.read_csv(io.BytesIO(filled_csv(model, whole, "mean", {})))
    assert np.allclose(same["height"], whole["height"])
