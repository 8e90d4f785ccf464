"""How commands talk."""

import io

import pytest
import rich.console
import typer

from einet.cli import console
from einet.cli.console import counting, plain_errors


def test_expected_errors_are_one_line(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit) as caught, plain_errors():
        raise ValueError("delta must be positive")
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == "einet: delta must be positive\n"


def test_mistakes_of_ours_show_where_they_are():
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("surprise")


@pytest.mark.parametrize("seen", [True, False])
def test_bars_move_only_before_eyes(monkeypatch: pytest.MonkeyPatch, seen: bool):
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: seen)
    terminal = rich.console.Console(file=written, force_terminal=seen, width=80)
    monkeypatch.setattr(console, "Console", lambda stderr: terminal)
    with counting("reading", 4) as progress:
        for done in range(1, 5):
            progress(done)
    assert ("reading" in written.getvalue()) == seen
