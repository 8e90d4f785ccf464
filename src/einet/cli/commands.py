"""What the ``einet`` command offers: its commands and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from einet.cli import images, studio, tables
from einet.cli.console import MOST, plain_errors

__all__ = ["app"]

app = typer.Typer(
    name="einet",
    help="Einsum Networks: generative models with exact marginals and conditionals.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(images.app)
tables.register(app)
studio.register(app)


@app.callback()
def main() -> None:
    """Einsum Networks: generative models with exact marginals and conditionals."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the pictures and the model.")] = Path(
        "demo"
    ),
    epochs: Annotated[
        int, typer.Option(min=1, max=MOST, help="Passes over the training images.")
    ] = 40,
    num_sums: Annotated[
        int, typer.Option(min=1, max=MOST, help="K, the sums in each region.")
    ] = 16,
    seed: images.Seed = 0,
) -> None:
    """Train on the 8×8 digits of scikit-learn; draw digits and complete covered ones."""
    from einet.cli.demo import run

    with plain_errors():
        run(out, epochs=epochs, num_sums=num_sums, seed=seed)


@app.command()
def info(path: Annotated[Path, typer.Argument(help="A saved model.")]) -> None:
    """Describe a saved model."""
    from einet.storage import load

    with plain_errors():
        if not path.is_file():
            raise FileNotFoundError(f"there is no model {path}")
        model = load(path)
    typer.echo(str(model))
    graph = getattr(model, "graph", None)
    if graph is not None:
        typer.echo(graph.summary())
