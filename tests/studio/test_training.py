"""Training in a process of its own: progress, stopping, failing, and nothing left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import einet
from einet.studio.learner import learn
from einet.studio.session import Session


def _is_there(pid: int) -> bool:
    """Whether a process runs; one that ended and was not asked for its status does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False


class _Pipe:
    """The studio's end of a pipe, in the same process."""

    def __init__(self, asks_after: int | None = None) -> None:
        self.told: list[Any] = []
        self._asks_after = asks_after

    def send(self, message: Any) -> None:
        self.told.append(message)

    def poll(self, seconds: float | None = None) -> bool:
        while self._asks_after is None or len(self.told) <= self._asks_after:
            time.sleep(0.01)
        self._asks_after = None
        return True

    def recv(self) -> str:
        return "stop"


@pytest.fixture
def here(monkeypatch: Any) -> None:
    """The process of the tests is not to be moved, nor made slower."""
    monkeypatch.setattr("os.setpgid", lambda *a: None)
    monkeypatch.setattr("os.nice", lambda n: 0)
    monkeypatch.setattr("torch.set_num_threads", lambda n: None)
    monkeypatch.setattr("signal.signal", lambda *a: None)
    monkeypatch.setattr("einet.studio.learner.interrupt_main", lambda: None)


@pytest.mark.usefixtures("here")
def test_what_the_process_tells(tmp_path: Path, frame: pd.DataFrame):
    file, pipe = tmp_path / "m.einet", _Pipe()
    learn(pipe, file, frame, {"age": "states"}, {"num_sums": 2, "epochs": 2}, 60.0)
    words = [word for word, _ in pipe.told]
    assert words == ["begun", "epoch", "epoch", "done"]
    assert pipe.told[0][1] == {"epochs": 2}
    model = einet.TableModel.load(file)
    assert "numbers:" in model.table.coding("age").describe()
    train = einet.load_metadata(file)["history"]["train"]
    assert train == [content[0] for word, content in pipe.told if word == "epoch"]


@pytest.mark.usefixtures("here")
def test_the_best_so_far_is_kept(tmp_path: Path, frame: pd.DataFrame):
    file, pipe = tmp_path / "m.einet", _Pipe(asks_after=2)
    learn(pipe, file, frame, {}, {"num_sums": 2, "epochs": 1000}, 600.0)
    assert pipe.told[-1] == ("stopped", {"out_of_time": False})
    assert len(pipe.told) < 1000
    assert einet.TableModel.load(file)


@pytest.mark.usefixtures("here")
def test_why_it_failed_is_told(tmp_path: Path):
    pipe = _Pipe()
    learn(pipe, tmp_path / "m.einet", pd.DataFrame({"a": ["x"] * 30}), {}, {}, 60.0)
    word, why = pipe.told[-1]
    assert word == "failed"
    assert "something to learn from" in why


def test_a_spawned_training(empty: Any, frame: pd.DataFrame):
    """One after the other: learnt while the model before it is asked, stopped, and closed."""
    session, client = empty
    content = frame.to_csv(index=False).encode()
    client.ok("POST", "/api/data?name=people.csv", content=content)
    asked = {"columns": {"age": "states", "sex": "categories"}, "num_sums": 2, "epochs": 3}
    assert client.ok("POST", "/api/training", 202, json=asked)["state"] == "running"
    pid = session._training.pid
    assert "already" in client.refused(409, "POST", "/api/training", json=asked)
    assert "being learnt" in client.refused(409, "POST", "/api/data", content=content)
    assert "being learnt" in client.refused(409, "POST", "/api/model", content=b"x")
    told = session.wait_for_training(120)
    assert told["state"] == "done", told
    assert told["epoch"] == told["epochs"] == len(told["train"]) == len(told["valid"]) == 3
    state = client.ok("GET", "/api/state")
    assert state["kind"] == "table"
    assert state["name"] == "people.einet"
    assert state["has_data"]
    assert client.ok("GET", "/api/model")["history"]["train"] == told["train"]
    assert "numbers:" in session.opened.table_model.table.coding("age").describe()
    for _ in range(100):
        if not _is_there(pid):
            break
        time.sleep(0.02)
    assert not _is_there(pid)
    # Far too long, and stopped as soon as there is something to keep.
    client.ok("POST", "/api/training", 202, json={"num_sums": 2, "epochs": 100_000})
    before = session.opened.number
    while session.training()["epoch"] < 1 and session.training()["state"] == "running":
        client.ok("POST", "/api/marginals", json={})
        time.sleep(0.02)
    client.ok("DELETE", "/api/training")
    told = session.wait_for_training(60)
    assert told["state"] == "stopped"
    assert "kept" in told["message"]
    assert session.opened.number > before
    # Another one, which the end of the studio ends.
    client.ok("POST", "/api/training", 202, json={"num_sums": 2, "epochs": 100_000})
    pid = session._training.pid
    assert _is_there(pid)
    session.close()
    assert not _is_there(pid)
    assert not session._folder.exists()
    assert "closing" in client.refused(409, "POST", "/api/training", json={})


def test_a_session_leaves_no_files(frame: pd.DataFrame, files: Path):
    with Session() as session:
        session.open_model((files / "people.einet").read_bytes(), "m.einet")
        session.open_model((files / "people.einet").read_bytes(), "m.einet")
        assert len(list(session._folder.iterdir())) == 1
        folder = session._folder
    assert not folder.exists()
