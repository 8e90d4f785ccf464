"""Copy as Python: the code runs, and prints the numbers of the screen."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.studio.test_panels import _EVIDENCE


def _run(code: str) -> tuple[dict[str, Any], str]:
    """What a program leaves behind, and what it prints."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<copied>", "exec"), names)
    return names, printed.getvalue()


@pytest.mark.parametrize("name", _EVIDENCE)
def test_panels(client: Any, name: str):
    evidence, _ = _EVIDENCE[name]
    answer = client.ok("POST", "/api/marginals", json={"evidence": evidence})
    code = client.ok("POST", "/api/code", json={"view": "table", "evidence": evidence})["python"]
    names, printed = _run(code)
    posterior = names["posterior"]
    if evidence:
        assert names["probability"] == pytest.approx(answer["probability"])
        assert f"{names['probability']:.6g}" in printed
    for column, told in answer["columns"].items():
        if told["values"] is not None:
            assert posterior.state_probabilities(column)[0] == pytest.approx(told["values"])
        if column in ("height", "gain", "age"):
            assert posterior.median(column)[0] == pytest.approx(told["median"])
    if name != "one integer":
        assert names["posterior"].mean("age")[0] == pytest.approx(answer["columns"]["age"]["mean"])


def test_one_and_several_numbers(client: Any):
    for given in ({"op": "is", "value": 170.25}, {"op": "among", "values": [150.5, 171.25]}):
        evidence = [{"column": "height", **given}]
        answer = client.ok("POST", "/api/marginals", json={"evidence": evidence})
        asked = {"view": "table", "evidence": evidence, "columns": ["height", "sex"]}
        names, _ = _run(client.ok("POST", "/api/code", json=asked)["python"])
        assert names["density"] == pytest.approx(answer["density"])
        shares = names["posterior"].state_probabilities("sex")[0]
        assert shares == pytest.approx(answer["columns"]["sex"]["values"])


@pytest.mark.parametrize(
    "row",
    [{"index": 3}, {"cells": {"sex": "f", "height": 190.5, "day": "2020-05-01", "age": None}}],
)
def test_rows(client: Any, row: dict):
    told = client.ok("POST", "/api/row", json=row)
    _, printed = _run(client.ok("POST", "/api/code", json={"view": "row", **row})["python"])
    lines = printed.splitlines()
    assert float(lines[0]) == pytest.approx(told["log_prob"])
    for cell in told["cells"]:
        shown = next(line for line in lines if line.startswith(f"{cell['column']} "))
        surprise = float(shown.split()[-1])
        if cell["surprise"] is None:
            assert np.isnan(surprise)
        else:
            assert surprise == pytest.approx(cell["surprise"], abs=1e-9)


def test_information(client: Any):
    evidence = _EVIDENCE["not spiked"][0]
    told = client.ok("POST", "/api/information", json={"evidence": evidence})
    code = client.ok("POST", "/api/code", json={"view": "columns", "evidence": evidence})["python"]
    _, printed = _run(code)
    numbers = [float(x) for x in re.findall(r"nan|-?\d+\.?\d*(?:e-?\d+)?", printed)]
    expected = np.array(told["nats"], dtype=float).ravel()
    assert numbers == pytest.approx(expected.tolist(), abs=1e-6, nan_ok=True)


def test_training_and_model(client: Any, session: Any, tmp_path: Path, monkeypatch: Any):
    code = client.ok("POST", "/api/code", json={"view": "training"})["python"]
    assert repr(session.data.path) in code
    assert "TableModel.fit(table)" in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("einet.TableModel.fit", lambda table: session.opened.table_model)
    _run(code)
    assert (tmp_path / "model.einet").is_file()
    _, printed = _run(client.ok("POST", "/api/code", json={"view": "model"})["python"])
    assert f"{session.opened.model.num_parameters}" in printed
    assert "view must be" in client.refused(422, "POST", "/api/code", json={"view": "x"})
