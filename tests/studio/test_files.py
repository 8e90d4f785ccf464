"""Files of the user: tables and models within limits, and all that is none of them."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import einet
from einet.studio.limits import Limits
from einet.studio.session import Session


def test_a_table_of_each_format(empty: Any, frame: pd.DataFrame):
    _, client = empty
    text = frame.to_csv(index=False).encode()
    parquet = io.BytesIO()
    frame.to_parquet(parquet)
    for name, content in (("a.csv", text), ("a.csv.gz", gzip.compress(text)),
                          ("a.parquet", parquet.getvalue())):  # fmt: skip
        told = client.ok("POST", f"/api/data?name={name}", content=content)
        assert told["name"] == name
        assert told["rows"] == len(frame)
        assert [column["name"] for column in told["columns"]] == list(frame.columns)
        assert told == client.ok("GET", "/api/schema")
        state = client.ok("GET", "/api/state")
        assert state["kind"] == "empty"
        assert state["data_name"] == name
        assert state["rows"] == 300
    assert any("identifier" in warning for warning in told["warnings"])


def test_kinds_can_be_corrected(empty: Any, frame: pd.DataFrame):
    _, client = empty
    told = client.ok("POST", "/api/data?name=a.csv", content=frame.to_csv(index=False).encode())
    columns = {column["name"]: column for column in told["columns"]}
    assert columns["row"]["kind"] == "identifier"
    assert columns["always"]["kind"] == "constant"
    assert columns["age"]["kind"] == "integer"
    assert columns["gain"]["kind"] == "spiked"
    assert columns["height"]["missing"] == int(frame["height"].isna().to_numpy().sum())
    assert columns["day"]["kind"] == "time"
    assert columns["tall"]["kind"] == "boolean"
    for column in columns.values():
        assert column["kind"] == column["kinds"][0]
        assert "identifier" in column["kinds"]
        assert len(column["examples"]) <= 5
    asked: Any
    for asked, says in (
        ({"columns": {"nobody": "integer"}}, "no column"),
        ({"columns": {"sex": "integer"}}, "one of"),
        ({"columns": {"height": "integer"}}, "one of"),
        ({"epochs": 0}, "epochs"),
        ({"num_sums": "x"}, "num_sums"),
        ({"seconds": -1}, "seconds"),
    ):
        assert says in client.refused(422, "POST", "/api/training", json=asked)
    assert client.ok("GET", "/api/training")["state"] == "idle"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"a,b\n1\n", "line 2"),
        ("a.csv", b"a,a\n1,2\n", "more than once"),
        ("a.csv", b"\x00\x01", "no text"),
        ("a.txt.exe", b"a\n1\n", "ends in .csv"),
        ("a.parquet", b"a,b\n1,2\n", "no Parquet"),
        ("a.parquet", b"PAR1 and nothing else PAR1", "Parquet"),
        ("a.csv.gz", b"\x1f\x8b broken", "damaged"),
    ],
)
def test_what_is_no_table_is_refused(empty: Any, name: str, content: bytes, says: str):
    _, client = empty
    error = client.refused(422, "POST", f"/api/data?name={name}", content=content)
    assert says in error
    assert "/tmp" not in error
    assert client.ok("GET", "/api/state")["has_data"] is False


def test_what_unpacks_to_too_much_is_refused(portal: Any):
    limits = Limits(max_bytes=100_000, max_rows=1000)
    with Session(limits) as session:
        bomb = gzip.compress(b"a\n" + b"1\n" * 1_000_000)
        assert len(bomb) < limits.max_bytes
        with pytest.raises(ValueError, match="once it is unpacked"):
            session.open_data(bomb, "a.csv.gz")
        many = io.BytesIO()
        pd.DataFrame({"a": [1] * 100_000}).to_parquet(many)
        assert len(many.getvalue()) < limits.max_bytes
        with pytest.raises(ValueError, match="100,000 rows"):
            session.open_data(many.getvalue(), "a.parquet")
        with pytest.raises(ValueError, match="2,000 rows"):
            session.open_data(b"a\n" + b"1\n" * 2000, "a.csv")


def test_names_are_names_and_nothing_else(empty: Any):
    _, client = empty
    name = "<img src=x onerror=alert(1)>"
    text = f'"{name}",b\n' + "".join(f"{n % 3},{n % 2}\n" for n in range(60))
    told = client.ok("POST", "/api/data?name=../../etc/x.csv", content=text.encode())
    assert told["name"] == "x.csv"
    assert told["columns"][0]["name"] == name


def test_models_of_all_kinds(empty: Any, files: Path, tmp_path: Path):
    _, client = empty
    saved = (files / "people.einet").read_bytes()
    state = client.ok("POST", "/api/model?name=p.einet", content=saved)
    assert state["kind"] == "table"
    assert state["name"] == "p.einet"
    response = client.get("/api/model/file")
    assert response.content == saved
    assert response.headers["content-disposition"] == 'attachment; filename="p.einet"'
    other = einet.Einet(einet.random_trees(4, 1, 2), einet.Gaussian(), num_sums=2)
    other.save(tmp_path / "other.einet")
    content = (tmp_path / "other.einet").read_bytes()
    assert client.ok("POST", "/api/model?name=o.einet", content=content)["kind"] == "other"
    assert "not one of a table" in client.refused(409, "GET", "/api/columns")
    assert "not one of images" in client.refused(409, "GET", "/api/images")


def test_what_is_no_model_is_refused(empty: Any, files: Path):
    session, client = empty
    saved = bytearray((files / "people.einet").read_bytes())
    for content in (b"", b"PK\x03\x04", b"\x80\x04pickle", bytes(saved[:200]), bytes(saved[:-9])):
        error = client.refused(422, "POST", "/api/model?name=m.einet", content=content)
        assert "m.einet" in error
        assert str(session._folder) not in error
    saved[-5] ^= 1
    client.refused(422, "POST", "/api/model?name=m.einet", content=bytes(saved))
    assert client.ok("GET", "/api/state")["kind"] == "empty"
    assert not list(session._folder.iterdir())


def test_data_and_model_have_to_fit(empty: Any, files: Path):
    _, client = empty
    client.ok("POST", "/api/model?name=p.einet", content=(files / "people.einet").read_bytes())
    text = b"a,b\n" + b"1,2\n3,4\n" * 20
    client.ok("POST", "/api/data?name=other.csv", content=text)
    assert client.ok("GET", "/api/state")["kind"] == "empty"
    client.ok("POST", "/api/model?name=p.einet", content=(files / "people.einet").read_bytes())
    state = client.ok("GET", "/api/state")
    assert state["kind"] == "table"
    assert not state["has_data"]
    assert "no table" in client.refused(409, "GET", "/api/rows")
    told = client.ok("GET", "/api/columns")["columns"]
    assert all(column.get("data") is None for column in told)


def test_nothing_is_open_at_first(empty: Any):
    _, client = empty
    for method, path in (("GET", "/api/schema"), ("GET", "/api/columns"), ("GET", "/api/rows"),
                         ("POST", "/api/marginals"), ("GET", "/api/model"), ("GET", "/api/images"),
                         ("POST", "/api/training"), ("GET", "/api/model/file")):  # fmt: skip
        assert "there is no" in client.refused(409, method, path)
    assert client.ok("DELETE", "/api/training")["state"] == "idle"
