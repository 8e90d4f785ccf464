"""The progress bar, and signals."""

import io
import re
import signal

import pytest
import torch

from einet import Einet, Gaussian, fit, random_trees
from einet.learning.console import Bar, Interrupt


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def model() -> Einet:
    return Einet(random_trees(3, 1, 1), Gaussian(), 2)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("progress", [True, False])
def test_no_terminal_no_output(
    model: Einet,
    x: torch.Tensor,
    progress: bool,
    capfd: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    fit(model, x, x, epochs=2, progress=progress)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_shows_what_happens(
    model: Einet, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    history = fit(model, x, x, epochs=3, batch_size=10)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = [line for line in re.split(r"[\r\n]", plain) if line][-1]
    assert "epoch 3/3" in last
    assert f"train {history.train[-1]:.6g}" in last
    assert f"valid {history.valid[-1]:.6g}" in last
    assert "left" in last


def test_a_notebook_without_widgets_stays_quiet(
    model: Einet, x: torch.Tensor, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich would warn of them in every training."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("einet.learning.console._HAS_WIDGETS", False)
    fit(model, x, epochs=2, progress=True)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_where_none_is_wanted(
    model: Einet, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    fit(model, x, epochs=2, progress=False)
    assert terminal.getvalue() == ""


def test_long_epochs_show_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), [0.0]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("rich.console.monotonic", lambda: clock[0])
    with Bar(25, 25, asked_for=True) as bar:
        for _ in range(3):
            clock[0] += 60
            bar.advance()
    # 22 of 25 epochs of a minute each.
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "left 0:22:00" in plain


def test_whoever_asks_twice_is_not_kept_waiting() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        with Interrupt(by_term=True) as interrupt:
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.requested
            assert told == []
            signal.raise_signal(signal.SIGTERM)
            assert told == [signal.SIGTERM]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        with Interrupt() as interrupt:
            # Without a checkpoint it is nobody's business.
            signal.raise_signal(signal.SIGTERM)
            assert not interrupt.requested
        assert told == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)
