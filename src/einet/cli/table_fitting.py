"""What ``einet fit`` does, once its arguments are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import typer

from einet.cli.console import as_device, say
from einet.cli.table_files import check_files, new_figure, save_plot, say_json, spoken_warnings
from einet.distributed.launching import check_workers, is_first, run_workers
from einet.learning.checkpoint_file import remove_checkpoints
from einet.tables import TableModel
from einet.tables.plots import plot_training
from einet.tables.reading import read_table

__all__ = ["as_columns", "fit"]


def as_columns(texts: Sequence[str]) -> dict[str, str]:
    """What some columns are, from texts such as ``zip=categories``.

    >>> as_columns(["zip=categories"])
    {'zip': 'categories'}
    """
    columns: dict[str, str] = {}
    for text in texts:
        # The name may hold the sign, the kind does not.
        name, sign, kind = text.rpartition("=")
        if not sign or not name or not kind:
            raise ValueError(f"column must be NAME=KIND, such as zip=categories, got {text!r}")
        if name in columns:
            raise ValueError(f"column: {name!r} was given a kind twice")
        columns[name] = kind.strip()
    return columns


def fit(
    data: Path,
    output: Path,
    columns: Sequence[str],
    num_sums: int | None,
    epochs: int | None,
    missing: Sequence[str],
    force: bool,
    plot: Path | None,
    seed: int,
    device: str | None,
    as_json: bool,
    checkpoint: Path | None = None,
    resume: bool = False,
    workers: int = 1,
) -> None:
    """Learn a model of a table, and write it."""
    folder = checkpoint or output.with_name(f"{output.name}.checkpoint")
    check_files({"data": data}, plot=plot, model=output, force=force, checkpoint=folder)
    kinds, where = as_columns(columns), as_device(device)
    if workers > 1:
        if str(data) == "-":
            raise ValueError("workers: several of them cannot read what is piped in; give a file")
        check_workers(workers, where)
        given = (data, output, columns, num_sums, epochs, missing, force, plot, seed, device)
        run_workers(workers, where, fit, *given, as_json, checkpoint, resume)
        return
    if folder.exists() and not resume and is_first():
        say(f"{folder} of an earlier training is replaced; --resume would go on", err=True)
    frame = read_table(data, missing)
    start = perf_counter()
    with spoken_warnings():
        model = TableModel.fit(
            frame,
            kinds,
            num_sums=num_sums,
            epochs=epochs,
            seed=seed,
            device=where,
            progress=True,
            checkpoint=folder,
            resume=resume,
        )
    seconds = perf_counter() - start
    if not is_first():
        return
    history = model.history
    assert history is not None
    if history.stopped == "interrupted":
        say(f"stopped; the same command with --resume goes on from {folder}", err=True)
        raise typer.Exit(130)
    model.save(output)
    remove_checkpoints(folder)
    if plot is not None:
        figure = new_figure()
        plot_training(history, figure.subplots())
        save_plot(figure, plot)
    with spoken_warnings():
        logs = model.log_prob(frame)
    is_valid = np.zeros(len(frame), dtype=bool)
    is_valid[np.asarray(model.validation_rows)] = True
    parts = {"training": logs[~is_valid], "validation": logs[is_valid]}
    means = {name: float(part.mean()) for name, part in parts.items() if len(part)}
    if as_json:
        say_json(
            {
                "rows": len(frame),
                "columns": frame.shape[1],
                "epochs": len(history),
                "seconds": round(seconds, 3),
                **{f"{name}_rows": len(part) for name, part in parts.items()},
                **{f"{name}_mean_log_prob": mean for name, mean in means.items()},
                "model": str(output),
            }
        )
        return
    rows, columns_there = frame.shape
    say(f"{rows:,} rows of {columns_there} columns, {len(history)} epochs in {seconds:.1f} s")
    for name, mean in means.items():
        say(f"mean log-likelihood of {len(parts[name]):,} {name} rows {mean:.4f} nats")
    say(f"wrote {output}")
