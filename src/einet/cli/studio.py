"""``einet studio``: a table or a model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from einet.cli.console import plain_errors

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to others."""
    app.command()(studio)


def studio(
    path: Annotated[
        Path | None,
        typer.Argument(help="A csv or Parquet file, or a saved model; without, an empty page."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model of the table that PATH is, to ask at once.")
    ] = None,
    test_images: Annotated[
        Path | None,
        typer.Option(
            help="Images to try a model of images with: a folder, a zip, or a public set."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="By default 8765, or the next that is free."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="The address to listen to; others than this machine's are warned of."),
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """See and question a model in the browser: exact answers as you move.

    A table becomes typed columns and a model; a saved model is there at once. Nothing leaves this
    machine. Ctrl-C ends it.
    """
    from einet.cli import studio_command

    with plain_errors():
        studio_command.run(path, model, test_images, port, host, not no_open)
