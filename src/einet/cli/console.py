"""How commands talk: what went wrong, and how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from einet.distributed.team import ProcessesError

__all__ = ["MOST", "as_device", "counting", "plain_errors", "say"]

#: No count that is given to a command may be larger: nobody lives to see its end.
MOST = 10**9

# What a wrong argument or file raises; anything else is a mistake of ours, and shows where.
_EXPECTED = (
    OSError, ValueError, TypeError, ImportError, FloatingPointError, MemoryError, ProcessesError
)  # fmt: skip
# torch's own words where there is no memory, which is a plain RuntimeError on a CPU.
_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Say in one line what is wrong with files and arguments, and exit with status 2."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has seen enough: typer ends without a word.
        raise
    except _EXPECTED as error:
        _fail(str(error) or type(error).__name__, error)
    except RuntimeError as error:
        if not any(words in str(error) for words in _NO_MEMORY):
            raise
        _fail(f"there is not enough memory: {str(error).splitlines()[0]}", error)


def _fail(message: str, error: Exception) -> NoReturn:
    # Names of files may hold line ends.
    say(f"einet: {' '.join(message.split())}", err=True)
    raise typer.Exit(2) from error


def say(text: str, err: bool = False) -> None:
    """Print a line, whatever is in it: names of files may hold what no terminal can show."""
    typer.echo(text.encode("utf-8", "backslashreplace").decode(), err=err)


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
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: there is no CUDA device here")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.index is not None and not 0 <= device.index < count:
        raise ValueError(f"device: there is no {name}; devices are numbered from 0 to {count - 1}")
    return device
