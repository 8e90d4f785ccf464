"""Panels: every number against the query language, which goes another way."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import einet
from einet.studio.panel import NUM_BINS
from einet.tables.constraints import Interval, Values, complement

# Evidence of the page, and the same as a condition.
_EVIDENCE = {
    "nothing": ([], ""),
    "state": ([{"column": "sex", "op": "is", "value": "f"}], "sex=f"),
    "not a state": ([{"column": "sex", "op": "is", "value": "f", "negated": True}], "sex!=f"),
    "interval": ([{"column": "age", "op": "between", "lower": 30, "upper": 40}], "30<=age<=40"),
    "not an interval": (
        [{"column": "age", "op": "between", "lower": 30, "upper": 40, "negated": True}],
        "not 30<=age<=40",
    ),
    "spiked": ([{"column": "gain", "op": "between", "lower": 0, "upper": 80}], "0<=gain<=80"),
    "not spiked": (
        [{"column": "gain", "op": "between", "lower": 20, "upper": 80, "negated": True}],
        "not 20<=gain<=80",
    ),
    "a spike": ([{"column": "gain", "op": "is", "value": 0}], "gain=0"),
    "one integer": ([{"column": "age", "op": "is", "value": 41}], "age=41"),
    "several": (
        [
            {"column": "size", "op": "among", "values": ["S", "L"]},
            {"column": "height", "op": "between", "lower": None, "upper": 175.5},
            {"column": "tall", "op": "is", "value": False},
        ],
        "size in {S, L}, height<=175.5, not tall",
    ),
    "ordered": ([{"column": "size", "op": "between", "lower": "M", "upper": None}], "size>=M"),
    "a date": (
        [{"column": "day", "op": "between", "lower": "2020-06-01", "upper": "2021-06-01"}],
        "day>='2020-06-01', day<='2021-06-01'",
    ),
    "twice": (
        [
            {"column": "age", "op": "between", "lower": 30, "upper": None},
            {"column": "age", "op": "between", "lower": 45, "upper": None, "negated": True},
        ],
        "30<=age<45",
    ),
}


@pytest.mark.parametrize("name", _EVIDENCE)
def test_marginals(client: Any, model: einet.TableModel, name: str):
    evidence, condition = _EVIDENCE[name]
    answer = client.ok("POST", "/api/marginals", json={"evidence": evidence, "mass": 0.8})
    known = f" | {condition}" if condition else ""
    if condition:
        assert answer["probability"] == pytest.approx(model.query(f"P({condition})").value)
        assert math.log(answer["probability"]) == pytest.approx(answer["log_evidence"])
    assert set(answer["columns"]) == {"sex", "height", "gain", "age", "day", "size", "tall"}
    described = {c["name"]: c for c in client.ok("GET", "/api/columns")["columns"]}
    for column, told in answer["columns"].items():
        parts = [told["values"]] if told["bins"] is None else [
            told["bins"], told["spikes"], [told["below"], told["above"]]
        ]  # fmt: skip
        assert sum(map(sum, parts)) == pytest.approx(1, abs=1e-9), column
        of_column = described[column]
        if told["values"] is not None:
            for value, share in zip(of_column["values"], told["values"], strict=True):
                expected = model.query(f"P({column}='{value}'{known})").value
                assert share == pytest.approx(expected, abs=1e-9), (column, value)
    # Numbers: by what lies between two edges, spikes apart.
    for column in ("height", "age"):
        told, edges = answer["columns"][column], described[column]["edges"]
        for n in (0, len(edges) // 2, len(edges) - 2):
            asked = f"P({edges[n]} < {column} <= {edges[n + 1]}{known})"
            assert told["bins"][n] == pytest.approx(model.query(asked).value, abs=1e-9), asked
        asked = model.query(f"E({column}{known})").value
        assert told["mean"] == pytest.approx(asked, rel=1e-6)
        assert told["median"] == pytest.approx(model.query(f"median({column}{known})").value)
        ends = model.query(f"interval(0.8, {column}{known})").value
        assert told["interval"] == pytest.approx(list(ends), rel=1e-9)
    spike = model.query(f"P(gain=0{known})").value
    assert answer["columns"]["gain"]["spikes"] == pytest.approx([spike], abs=1e-9)
    assert answer["columns"]["size"]["median"] == model.query(f"median(size{known})").value


def test_dates_are_told_as_dates(client: Any, frame: Any):
    described = next(c for c in client.ok("GET", "/api/columns")["columns"] if c["name"] == "day")
    assert described["kind"] == "date"
    assert described["edge_labels"][0][:7] in ("2019-12", "2020-01")
    moment = pd.Timestamp(described["edges"][3], unit="ms").isoformat()
    by_text, by_number = (
        client.ok(
            "POST",
            "/api/marginals",
            json={"evidence": [{"column": "day", "op": "between", "lower": None, "upper": upper}]},
        )
        for upper in (moment, described["edges"][3])
    )
    assert by_text["probability"] == pytest.approx(by_number["probability"])
    prior = described["prior"]
    expected = prior["below"] + sum(prior["bins"][:3])
    assert by_text["probability"] == pytest.approx(expected)
    median = pd.Timestamp(by_text["columns"]["day"]["median"])
    assert frame["day"].min() <= median <= pd.Timestamp(moment)


def test_one_number_has_a_density(client: Any, model: einet.TableModel):
    evidence = [{"column": "height", "op": "is", "value": 170.25}]
    answer = client.ok("POST", "/api/marginals", json={"evidence": evidence})
    posterior = model.given({"height": 170.25})
    assert answer["probability"] is None
    assert answer["density"] == pytest.approx(math.exp(posterior.log_evidence[0]))
    told = answer["columns"]["height"]
    assert [told[key] for key in ("mean", "median", "mode")] == pytest.approx([170.25] * 3, abs=0.3)
    assert told["mean"] == pytest.approx(170.25)
    assert max(told["bins"]) == 1
    shares = posterior.state_probabilities("sex")[0]
    assert answer["columns"]["sex"]["values"] == pytest.approx(shares.tolist())


def test_several_numbers_count_by_their_densities(client: Any, model: einet.TableModel):
    values = [150.5, 171.25]
    evidence = [{"column": "height", "op": "among", "values": values}]
    answer = client.ok("POST", "/api/marginals", json={"evidence": evidence})
    logs = [model.given({"height": value}).log_evidence[0] for value in values]
    assert answer["log_evidence"] == pytest.approx(np.logaddexp(*logs))
    weights = np.exp(logs - np.logaddexp(*logs))
    mean = answer["columns"]["height"]["mean"]
    assert mean == pytest.approx(float(weights @ values))
    # Next to the spike at 0, another number counts for nothing.
    evidence = [{"column": "gain", "op": "among", "values": [0, 33.25]}]
    answer = client.ok("POST", "/api/marginals", json={"evidence": evidence})
    assert answer["probability"] == pytest.approx(model.query("P(gain=0)").value)
    assert answer["columns"]["gain"]["spikes"] == [1.0]


def test_columns_tell_of_data_and_prior(client: Any, frame: pd.DataFrame):
    told = {column["name"]: column for column in client.ok("GET", "/api/columns")["columns"]}
    assert [c["name"] for c in client.ok("GET", "/api/columns")["columns"]] == list(frame.columns)
    assert told["row"]["kind"] == "left out"
    assert told["always"] == {
        "name": "always", "kind": "constant", "values": ["same"], "description": "always same",
    }  # fmt: skip
    kinds = {name: column["kind"] for name, column in told.items()}
    assert kinds["sex"] == "states"
    assert kinds["size"] == "ordered"
    assert kinds["tall"] == "states"
    assert kinds["height"] == "number"
    assert kinds["age"] == "integer"
    assert kinds["day"] == "date"
    assert told["gain"]["is_spiked"]
    assert told["gain"]["spikes"] == [0]
    assert told["gain"]["lower"] == 0
    assert told["gain"]["upper"] is None
    known = frame["sex"].dropna()
    assert told["sex"]["data"]["values"] == pytest.approx([(known == v).mean() for v in "fm"])
    ages, edges = frame["age"], told["age"]["edges"]
    counts = [((ages > a) & (ages < b)).mean() for a, b in itertools.pairwise(edges)]
    assert told["age"]["data"]["bins"] == pytest.approx(counts)
    assert len(edges) <= NUM_BINS + 1
    gains = frame["gain"].dropna()
    assert told["gain"]["data"]["spikes"] == pytest.approx([(gains == 0).mean()])
    prior = client.ok("POST", "/api/marginals", json={})
    assert prior["columns"]["age"]["bins"] == pytest.approx(told["age"]["prior"]["bins"])
    assert prior["log_evidence"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        ([{"column": "agee", "op": "is", "value": 1}], "no column 'agee'"),
        ([{"column": "row", "op": "is", "value": 1}], "left out"),
        ([{"column": "sex", "op": "is", "value": "x"}], "no value 'x'"),
        ([{"column": "tall", "op": "is", "value": 1}], "no value 1"),
        ([{"column": "sex", "op": "between", "lower": "f"}], "no order"),
        ([{"column": "size", "op": "between", "lower": "L", "upper": "S"}], "after"),
        ([{"column": "age", "op": "between", "lower": 5, "upper": 3}], "above upper"),
        ([{"column": "age", "op": "is", "value": "old"}], "must be a number"),
        ([{"column": "age", "op": "is", "value": True}], "must be a number"),
        ([{"column": "day", "op": "is", "value": "soon"}], "dates such as"),
        ([{"column": "age", "op": "among", "values": []}], "at least one"),
        ([{"column": "age", "op": "between", "negated": True}], "no value of 'age'"),
        ([{"column": "gain", "op": "between", "lower": None, "upper": -5}], "probability 0"),
        ([{"column": "age", "op": "between", "lower": 30.2, "upper": 30.4}], "probability 0"),
    ],
)
def test_what_cannot_be_is_refused(client: Any, evidence: list, says: str):
    error = client.refused(422, "POST", "/api/marginals", json={"evidence": evidence})
    assert says in error


def test_evidence_of_too_many_ways_is_refused(client: Any):
    values = [150 + n / 8 for n in range(300)]
    asked = {"evidence": [{"column": "height", "op": "among", "values": values}]}
    assert "300 ways" in client.refused(422, "POST", "/api/marginals", json=asked)
    asked["evidence"][0]["values"] = values[:40]
    answer = client.ok("POST", "/api/marginals", json=asked)
    assert 150 < answer["columns"]["height"]["mean"] < 155


@pytest.mark.parametrize(
    "asked",
    [{"evidence": 3}, {"evidence": [3]}, {"evidence": [{"op": "is"}] * 2000}, {"columns": "age"},
     {"evidence": [{"column": "age", "op": "near"}]}],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(client: Any, asked: dict):
    client.refused(400, "POST", "/api/marginals", json=asked)
    assert "mass" in client.refused(422, "POST", "/api/marginals", json={"mass": 2})


def test_mode_is_the_likeliest(client: Any, model: einet.TableModel):
    told = client.ok("POST", "/api/marginals", json={})["columns"]
    best = max(model.query(f"P(age={age})").value for age in range(20, 70))
    assert model.query(f"P(age={told['age']['mode']})").value == pytest.approx(best, rel=0.02)
    assert told["gain"]["mode"] == 0
    assert told["sex"]["mode"] in ("f", "m")
    shares = np.array(told["sex"]["values"])
    assert told["sex"]["entropy"] == pytest.approx(float(-(shares * np.log(shares)).sum()))


def test_pieces_of_the_page_are_those_of_the_library():
    # What a negated interval is to a model: both sides of it, without its ends.
    assert complement([Interval(1, 2)])[0] == Interval(upper=1, closed_upper=False)
    assert complement([Values(["a"])], ["a", "b"]) == (Values(["b"]),)
