"""``einet studio``: what it opens, what it refuses, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import einet
from einet.cli.commands import app
from einet.studio.server import Server

runner = CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The servers that were started, none of which answers."""
    servers: list[Any] = []

    def run(self: Server, opened: Any = None) -> None:
        servers.append((self, opened, self.session.state()))
        self.close()

    monkeypatch.setattr(Server, "run", run)
    return servers


@pytest.fixture
def table(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"a": ["x", "y"] * 30, "b": [n % 7 + n / 100 for n in range(60)]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    einet.TableModel.fit(frame, num_sums=2, epochs=1).save(tmp_path / "t.einet")
    return tmp_path


def test_what_is_opened(seen: list, table: Path):
    for arguments, kind, has_data in (
        ([], "empty", False),
        ([str(table / "t.csv")], "empty", True),
        ([str(table / "t.einet")], "table", False),
        ([str(table / "t.csv"), "--model", str(table / "t.einet")], "table", True),
    ):
        result = runner.invoke(app, ["studio", "--no-open", "--port", "0", *arguments])
        assert result.exit_code == 0, result.output
        server, opened, state = seen.pop()
        assert state["kind"] == kind
        assert state["has_data"] is has_data
        assert opened is None
        assert server.url in result.output
        assert not server.session._folder.exists()


def test_a_browser_is_opened(seen: list, monkeypatch: pytest.MonkeyPatch):
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    assert runner.invoke(app, ["studio", "--port", "0"]).exit_code == 0
    server, opened, _ = seen.pop()
    opened()
    assert shown == [server.url]


def test_other_machines_are_warned_of(seen: list):
    result = runner.invoke(app, ["studio", "--no-open", "--port", "0", "--host", "0.0.0.0"])
    assert result.exit_code == 0
    assert "other machines" in result.output
    assert "other machines" not in runner.invoke(app, ["studio", "--no-open", "--port", "0"]).output


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.csv", None, "there is no table"),
        ("none.einet", None, "there is no model"),
        ("a.csv", b"a,b\n1\n", "line 2"),
        ("a.einet", b"nothing", "no model that can be loaded"),
        ("a.jpg", b"nothing", "ends in .csv"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, content: bytes | None, says: str):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = runner.invoke(app, ["studio", "--no-open", str(path)])
    assert result.exit_code == 2
    assert says in " ".join(result.output.split()), result.output
    assert "Traceback" not in result.output


def test_without_its_packages(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("einet.cli.studio_command.find_spec", lambda name: None)
    result = runner.invoke(app, ["studio"])
    assert result.exit_code == 2
    assert "einet[studio]" in result.output
