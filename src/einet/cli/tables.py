"""The commands for tables: ``einet fit``, ``describe``, ``score``, ``sample`` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from einet.cli.console import MOST, plain_errors
from einet.cli.images import Device, Seed, Workers

__all__ = ["register"]

Table = Annotated[Path, typer.Argument(help="A csv or Parquet file; - reads csv that is piped in.")]
Model = Annotated[Path, typer.Argument(help="A model that 'einet fit' wrote.")]
Missing = Annotated[
    list[str] | None,
    typer.Option("--missing", help="A word for empty cells, such as ?. May be given repeatedly."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Written = Annotated[
    Path,
    typer.Option("--output", "-o", help="A .csv, .csv.gz or .parquet file; - prints csv."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw a picture too: a .png, .svg or .pdf file.")
]
Given = Annotated[
    str | None, typer.Option("--given", help='What is known: "sex=Female, 30<=age<40".')
]
Force = Annotated[bool, typer.Option("--force", help="Replace the model if it exists.")]


def register(app: typer.Typer) -> None:
    """Add the commands to another's."""
    for command in (fit, describe, score, sample, impute, outliers, query):
        app.command(rich_help_panel="Tables")(command)


def fit(
    data: Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file for the model.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="What a column is, where it cannot be seen: 'zip=categories'. May be given "
            "repeatedly.",
        ),
    ] = None,
    num_sums: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="K; by default by the number of rows.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, max=MOST, help="At most so many passes over the rows.")
    ] = None,
    missing: Missing = None,
    force: Force = False,
    plot: Plot = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="The folder for checkpoints, by default OUTPUT.checkpoint; gone once the model is "
            "there."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    workers: Workers = 1,
) -> None:
    """Learn a model of a table; --plot draws the training curve."""
    from einet.cli import table_fitting

    with plain_errors():
        table_fitting.fit(
            data, output, column or [], num_sums, epochs, missing or [], force, plot, seed, device,
            as_json, checkpoint, resume, workers,
        )  # fmt: skip


def describe(model: Model, as_json: Json = False) -> None:
    """Say what a model knows: its columns, their kinds and its size."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.describe(model, as_json)


def score(
    model: Model,
    data: Table,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the score of each row goes; - prints csv."),
    ] = None,
    missing: Missing = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say how likely the rows of a table are: their mean log-likelihood, in nats."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.score(model, data, output, missing or [], device, as_json)


def sample(
    model: Model,
    output: Written = Path("-"),
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=MOST, help="Rows.")] = 1000,
    given: Given = None,
    plot: Plot = None,
    data: Annotated[
        Path | None, typer.Option(help="A table to draw the samples beside, with --plot.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Draw new rows; --plot draws them, two columns at a time, beside those of --data."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.sample(model, output, number, given, plot, data, seed, device)


def impute(
    model: Model,
    data: Table,
    output: Written = Path("-"),
    method: Annotated[
        str,
        typer.Option(
            help="mean, median or mode: the best guess at each cell by itself, the likeliest "
            "value of columns without numbers; sample: a draw of all empty cells of a row together."
        ),
    ] = "mean",
    missing: Missing = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Fill the empty cells of a table."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.impute(model, data, output, method, missing or [], seed, device)


def outliers(
    model: Model,
    data: Table,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, max=MOST, help="Show so many rows.")
    ] = 10,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the surprise of every cell goes; - prints csv."),
    ] = None,
    plot: Plot = None,
    missing: Missing = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Find the least likely rows, and the cells that make them so; --plot draws the first."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.outliers(model, data, number, output, plot, missing or [], device, as_json)


def query(
    model: Model,
    question: Annotated[
        str,
        typer.Argument(
            help='"P(income=\'>50K\' | 30<=age<40)", "E(age | sex=Female)", "median(hours)", '
            '"quantile(0.9, hours)", "interval(0.9, hours)", "mode(job)", '
            '"distribution(job)".'
        ),
    ],
    plot: Plot = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Answer a question, exactly; --plot draws the columns before and after what is known."""
    from einet.cli import table_commands

    with plain_errors():
        table_commands.query(model, question, plot, device, as_json)
