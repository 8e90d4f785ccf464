"""How commands talk."""

import errno
import io

import pytest
import rich.console
import typer

from einet.cli import console
from einet.cli.console import as_device, counting, plain_errors


def test_expected_errors_are_one_line(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit) as caught, plain_errors():
        raise ValueError("delta must be positive")
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == "einet: delta must be positive\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("a\nfile \udcff"), "a file \\udcff"),
        (MemoryError(), "MemoryError"),
        (MemoryError("images take 9 GB"), "images take 9 GB"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory\nat line 3"),
            "there is not enough memory: [enforce fail] DefaultCPUAllocator: can't allocate memory",
        ),
    ],
)
def test_any_error_is_one_line(capsys: pytest.CaptureFixture[str], error: Exception, said: str):
    with pytest.raises(typer.Exit) as caught, plain_errors():
        raise error
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == f"einet: {said}\n"


def test_devices():
    assert as_device("cpu").type == "cpu"
    for name in ("meta", "mps", "abacus", ""):
        with pytest.raises(ValueError, match=f"device must be cpu or cuda, got {name!r}"):
            as_device(name)
    with pytest.raises(ValueError, match="device: there is no cpu:5; devices are numbered"):
        as_device("cpu:5")


def test_mistakes_of_ours_show_where_they_are():
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("surprise")
    with pytest.raises(RuntimeError, match="surprise"), plain_errors():
        raise RuntimeError("surprise")


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


def test_a_reader_who_has_seen_enough(capsys: pytest.CaptureFixture[str]):
    app = typer.Typer()

    @app.command()
    def tell() -> None:
        with plain_errors():
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(SystemExit) as caught:
        app([])
    assert caught.value.code == 1
    written = capsys.readouterr()
    assert not written.out
    assert not written.err
