"""Columns in bins, as the page shows them: against the query language and the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.studio.app import create_app
from einet.studio.schema import kind_of, kinds_for
from einet.studio.session import Session
from einet.tables import cell_surprise
from tests.studio.conftest import HOST, TOKEN, Client

COLUMNS = ["sex", "height", "age", "day", "gain"]
EVIDENCE = {
    "nothing": ([], ""),
    "a state": ([{"column": "sex", "op": "is", "value": "f"}], " | sex=f"),
    "an interval": ([{"column": "height", "op": "between", "lower": 160.5, "upper": 171}],
                    " | 160.5<=height<=171"),
    "on a grid": ([{"column": "age", "op": "between", "lower": 30, "upper": 40, "negated": True}],
                  " | not 30<=age<=40"),
}  # fmt: skip


@pytest.fixture(scope="module")
def binned(frame: pd.DataFrame) -> einet.TableModel:
    options: dict[str, Any] = {"num_sums": 4, "epochs": 2, "device": "cpu"}
    columns = dict.fromkeys(("height", "age", "day"), "bins")
    return einet.TableModel.fit(frame[COLUMNS], columns=columns, **options)


@pytest.fixture(scope="module")
def page(
    binned: einet.TableModel, frame: pd.DataFrame, portal: Any, tmp_path_factory: Any
) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("binned")
    binned.save(folder / "people.einet")
    frame[COLUMNS].to_parquet(folder / "people.parquet")
    with Session() as session:
        session.open_model(None, str(folder / "people.einet"))
        session.open_data(None, str(folder / "people.parquet"))
        yield Client(create_app(session, TOKEN, [HOST]), portal)


@pytest.mark.parametrize("name", EVIDENCE)
def test_marginals(page: Client, binned: einet.TableModel, name: str):
    evidence, known = EVIDENCE[name]
    answer = page.ok("POST", "/api/marginals", json={"evidence": evidence, "mass": 0.8})
    told = {c["name"]: c for c in page.ok("GET", "/api/columns")["columns"]}
    assert [told[name]["kind"] for name in COLUMNS] == [
        "states", "number", "integer", "date", "number"
    ]  # fmt: skip
    for column in ("height", "age", "day"):
        of_column, edges = answer["columns"][column], told[column]["edges"]
        whole = [*of_column["bins"], of_column["below"], of_column["above"]]
        assert sum(whole) == pytest.approx(1, abs=1e-9)
        assert np.sum([*told[column]["data"]["bins"]]) > 0.99
        if column == "day":
            continue
        for n in (0, len(edges) // 2, len(edges) - 2):
            asked = f"P({edges[n]} < {column} <= {edges[n + 1]}{known})"
            assert of_column["bins"][n] == pytest.approx(binned.query(asked).value, abs=1e-9)
        for what in ("median", "mode"):
            assert of_column[what] == pytest.approx(binned.query(f"{what}({column}{known})").value)
        assert of_column["mean"] == pytest.approx(binned.query(f"E({column}{known})").value)


def test_rows(page: Client, binned: einet.TableModel, frame: pd.DataFrame):
    told = page.ok("POST", "/api/row", json={"index": 1})
    row = frame[COLUMNS].iloc[[1]].reset_index(drop=True)
    assert told["log_prob"] == pytest.approx(binned.log_prob(row)[0])
    surprise = cell_surprise(binned, row)
    cells = {cell["column"]: cell for cell in told["cells"]}
    for column in ("height", "age", "day"):
        assert cells[column]["surprise"] == pytest.approx(surprise[column][0], abs=1e-9)
        assert cells[column]["likelier"]["factor"] >= 1 - 1e-9
    posterior = binned.given(row.drop(columns="height"))
    below = posterior.cdf("height", row["height"][0])[0]
    assert cells["height"]["tail"] == pytest.approx(2 * min(below, 1 - below), rel=1e-6)


def test_information_and_code(page: Client):
    evidence = EVIDENCE["an interval"][0]
    told = page.ok("POST", "/api/information", json={"evidence": evidence})
    nats = np.array(told["nats"], dtype=float)
    assert (nats[~np.eye(len(nats), dtype=bool)] >= 0).all()
    asked = {"view": "table", "evidence": [{"column": "height", "op": "is", "value": 170.25}]}
    assert "[170.25]" in page.ok("POST", "/api/code", json=asked)["python"]


def test_parameters(page: Client, binned: einet.TableModel):
    coding: Any = binned.table.coding("age")
    graph: Any = binned.model.graph  # type: ignore[attr-defined]
    told = [page.ok("GET", f"/api/model/parameters?region=0:{leaf}") for leaf in graph.leaves]
    (age,) = (part for leaf in told for part in leaf["variables"] if part["name"] == "age")
    assert len(age["states"]) == age["num_states"] == len(coding.widths)
    assert f"{coding.smallest:.0f} to {coding.edges[1] - 0.5:.0f}" in age["states"]


def test_kinds(binned: einet.TableModel, frame: pd.DataFrame):
    for column in ("height", "age", "day"):
        coding, kind = binned.table.coding(column), binned.table.types[column]
        assert kind_of(coding, kind) == "bins"
        assert kinds_for(coding, kind)[0] == "bins"
        usual = einet.Table.of(frame[[column]])
        assert "bins" in kinds_for(usual.coding(column), kind)
    assert "integer" not in kinds_for(binned.table.coding("height"), binned.table.types["height"])
