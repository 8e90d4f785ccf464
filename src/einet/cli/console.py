"""How commands talk: what went wrong, and how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["as_device", "counting", "plain_errors"]

# What a wrong argument or file raises; anything else is a mistake of ours, and shows where.
_EXPECTED = (OSError, ValueError, TypeError, ImportError, FloatingPointError)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say in one line what is wrong with files and arguments, and exit with status 2."""
    try:
        yield
    except _EXPECTED as error:
        typer.echo(f"einet: {error}", err=True)
        raise typer.Exit(2) from error


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that is told how many are done; nothing where nobody would see it move."""
    console = Console(stderr=True)
    if not console.file.isatty():
        yield lambda done: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def as_device(name: str | None) -> torch.device:
    """The device of that name, or the best there is."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be cpu or cuda, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: there is no CUDA device here")
    return device
