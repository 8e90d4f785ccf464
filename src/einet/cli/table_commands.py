"""What the commands for tables do, once their arguments are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from einet._checks import check_choice
from einet._memory import check_room
from einet.cli.console import as_device, say
from einet.cli.table_files import (
    check_files,
    is_piped,
    new_figure,
    save_plot,
    say_json,
    spoken_warnings,
)
from einet.tables import TableModel
from einet.tables.plots import plot_marginals, plot_pairs, plot_surprise
from einet.tables.query import ask, condition_boxes
from einet.tables.query.parser import parse
from einet.tables.query.table_source import TableSource
from einet.tables.reading import read_table, write_table
from einet.tables.surprise import cell_surprise

__all__ = ["describe", "impute", "open_model", "outliers", "query", "sample", "score"]

# So many cells of a row are told of.
_TOLD_CELLS = 3
# A value of a sample on its way into a table: as it is drawn, put in order, decoded and written.
_BYTES_A_VALUE = 64
_METHODS = ("mean", "median", "mode", "sample")


def open_model(path: Path, device: str | None) -> TableModel:
    """A model of a table that was saved, on a device."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no model {path}")
    return TableModel.load(path, as_device(device))


def describe(path: Path, as_json: bool) -> None:
    """Print what a model is of."""
    model = open_model(path, "cpu")
    table = model.table
    size = model.model.num_parameters
    if not as_json:
        say(str(table))
        say(f"{size:,} parameters in {path}")
        return
    columns = {str(name): table.coding(name).describe() for name in table.names}
    say_json({"columns": columns, "variables": table.num_variables, "parameters": size})


def score(
    path: Path,
    data: Path,
    output: Path | None,
    missing: Sequence[str],
    device: str | None,
    as_json: bool,
) -> None:
    """Print the mean log-likelihood of rows, and write that of each."""
    check_files({"model": path, "data": data}, {"output": output})
    model = open_model(path, device)
    frame = read_table(data, missing)
    with spoken_warnings():
        logs = np.asarray(model.log_prob(frame))
    if output is not None:
        import pandas

        write_table(pandas.DataFrame({"log_prob": logs}), output)
    impossible = int(np.isneginf(logs).sum())
    mean = float(logs[~np.isneginf(logs)].mean()) if impossible < len(logs) else -np.inf
    # What was printed already must stay readable as a table.
    to_error = is_piped(output)
    if as_json and not to_error:
        say_json({"rows": len(logs), "mean_log_prob": mean, "impossible": impossible})
        return
    say(f"{len(logs):,} rows, mean log-likelihood {mean:.4f} nats", err=to_error)
    if impossible:
        say(f"{impossible:,} of them are impossible under the model and not counted", err=to_error)


def sample(
    path: Path,
    output: Path,
    number: int,
    given: str | None,
    plot: Path | None,
    data: Path | None,
    seed: int,
    device: str | None,
) -> None:
    """Write new rows."""
    if (plot is None) != (data is None):
        raise ValueError("plot and data go together: samples are drawn beside a table")
    check_files({"model": path, "data": data}, {"output": output}, plot)
    model = open_model(path, device)
    source = TableSource(model.model, model.table)
    event = [{}] if given is None else condition_boxes(source, given)
    check_room(f"number: {number:,} rows", number * model.table.num_variables * _BYTES_A_VALUE)
    frame = source.sample_frame(number, event, seed, backend="pandas")
    write_table(frame, output)
    if plot is not None and data is not None:
        figure = new_figure()
        plot_pairs(read_table(data), frame, figure=figure)
        save_plot(figure, plot)
    if not is_piped(output):
        say(f"wrote {number:,} rows to {output}")


def impute(
    path: Path,
    data: Path,
    output: Path,
    method: str,
    missing: Sequence[str],
    seed: int,
    device: str | None,
) -> None:
    """Write a table without holes."""
    check_choice("method", method, _METHODS)
    check_files({"model": path, "data": data}, {"output": output})
    model = open_model(path, device)
    frame = read_table(data, missing)
    with spoken_warnings():
        filled = model.impute(frame, method, seed if method == "sample" else None)
    before = int(frame.isna().sum().sum())
    for column in frame.columns:
        # Known cells stay as they are, and so do columns that the model does not know.
        known = frame[column].notna()
        if column in filled.columns and not known.to_numpy().all():
            some = known.to_numpy().any()
            whole = frame[column].where(known, filled[column]) if some else filled[column]
            frame[column] = whole.infer_objects()
    after = int(frame.isna().sum().sum())
    write_table(frame, output)
    if after:
        say(f"{after:,} cells of columns that the model does not know stay empty", err=True)
    if not is_piped(output):
        say(f"filled {before - after:,} cells and wrote {len(frame):,} rows to {output}")


def outliers(
    path: Path,
    data: Path,
    number: int,
    output: Path | None,
    plot: Path | None,
    missing: Sequence[str],
    device: str | None,
    as_json: bool,
) -> None:
    """Print the least likely rows, and write how surprising each cell is."""
    import pandas

    check_files({"model": path, "data": data}, {"output": output}, plot)
    model = open_model(path, device)
    frame = read_table(data, missing)
    with spoken_warnings():
        logs = np.asarray(model.log_prob(frame))
        worst = np.argsort(logs, kind="stable")[:number].tolist()
        # That of every cell takes longer, and is for the file only.
        told = frame if output is not None else frame.iloc[worst]
        surprise = pandas.DataFrame(cell_surprise(model, told), index=told.index)
    rows = [_told(frame, surprise, logs, place) for place in worst]
    if output is not None:
        name = "log_prob"
        while name in surprise.columns:
            name += "_"
        write_table(pandas.concat([pandas.Series(logs, name=name), surprise], axis=1), output)
    if plot is not None:
        figure = new_figure()
        ax = plot_surprise(surprise.loc[worst[0]].to_dict(), figure.subplots())
        ax.set_title(f"row {worst[0] + 1}")
        save_plot(figure, plot)
    to_error = is_piped(output)
    if as_json and not to_error:
        say_json(rows)
        return
    for row in rows:
        cells = ", ".join(
            f"{cell['column']}={cell['value']} ({cell['surprise']:.1f})" for cell in row["cells"]
        )
        say(f"row {row['row']}: log-likelihood {row['log_prob']:.2f}; {cells}", err=to_error)


def _told(frame: Any, surprise: Any, logs: np.ndarray, place: int) -> dict[str, Any]:
    """A row, and its most surprising cells; rows are counted from 1, as lines after the header."""
    cells = surprise.loc[place].dropna().sort_values(ascending=False, kind="stable")
    told = [
        {"column": column, "value": _plain(frame[column].iloc[place]), "surprise": float(value)}
        for column, value in cells.head(_TOLD_CELLS).items()
    ]
    return {"row": place + 1, "log_prob": float(logs[place]), "cells": told}


def _plain(cell: Any) -> Any:
    """A cell as JSON can hold it."""
    value = cell.item() if isinstance(cell, np.generic) else cell
    return value if isinstance(value, bool | int | float | str) else str(value)


def query(path: Path, question: str, plot: Path | None, device: str | None, as_json: bool) -> None:
    """Print the answer to a question."""
    check_files({"model": path}, plot=plot)
    # A question that nobody can read needs no model.
    parse(question)
    model = open_model(path, device)
    source = TableSource(model.model, model.table)
    answer = ask(source, question)
    if plot is not None:
        figure = new_figure()
        plot_marginals(source, answer.event, figure=figure)
        save_plot(figure, plot)
    if as_json:
        say_json(answer.to_dict())
    else:
        say(str(answer))
