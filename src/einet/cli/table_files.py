"""The files of commands for tables: looked at before the work, and written after it."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from einet._checks import missing_package
from einet.cli.console import say
from einet.cli.outputs import Output, check_outputs
from einet.data.replace import replacing
from einet.tables.reading import STANDARD, table_format

__all__ = ["check_files", "is_piped", "new_figure", "save_plot", "say_json", "spoken_warnings"]

_PLOTS = (".png", ".svg", ".pdf")


def is_piped(path: Path | None) -> bool:
    """Whether this stands for what is piped in or out."""
    return path is not None and str(path) == STANDARD


def check_files(
    inputs: Mapping[str, Path | None],
    tables: Mapping[str, Path | None] | None = None,
    plot: Path | None = None,
    model: Path | None = None,
    force: bool = False,
    checkpoint: Path | None = None,
) -> None:
    """Raise, before any work is done, if a file cannot or must not be written.

    Args:
        inputs: What is read, by the names of the arguments.
        tables: Tables that will be written, by their options.
        plot: The picture that will be drawn.
        model: The model that will be written.
        force: Whether a model that is there may be replaced.
        checkpoint: The folder of checkpoints that will be written.
    """
    outputs = []
    for option, path in (tables or {}).items():
        if path is not None:
            table_format(path)
            if not is_piped(path):
                outputs.append(Output(option, path, "any"))
    if plot is not None:
        if plot.suffix.lower() not in _PLOTS:
            raise ValueError(f"plot: {plot} must end in {', '.join(_PLOTS)}")
        new_figure()
        outputs.append(Output("plot", plot, "png" if plot.suffix.lower() == ".png" else "any"))
    if model is not None:
        if is_piped(model):
            raise ValueError("output: a model is no text to print; give the name of a file")
        if model.exists() and not model.is_dir() and not force:
            raise FileExistsError(f"output: {model} is there already; --force replaces it")
        outputs.append(Output("output", model, "model"))
    if checkpoint is not None:
        outputs.append(Output("checkpoint", checkpoint, "checkpoint"))
    read = {name: path for name, path in inputs.items() if path is not None and not is_piped(path)}
    check_outputs(outputs, read)


def new_figure() -> Any:
    """A figure of matplotlib that no window shows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("matplotlib", "--plot", "plots") from error
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_plot(figure: Any, path: Path) -> None:
    """Write a picture in the format of its name."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    with replacing(path) as file:
        file.write(content.getvalue())
    say(f"drew {path}", err=True)


def say_json(value: Any) -> None:
    """Print JSON that others can read: numbers that JSON has no word for become null."""
    say(json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Say warnings in one line each, rather than with the place in the code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"einet: {' '.join(text.split())}", err=True)
