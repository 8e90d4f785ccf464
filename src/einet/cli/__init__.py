"""The ``einet`` command.

Its arguments are read by typer, which comes with the extra ``einet[cli]``: nothing here imports it
before :func:`main` knows that it is there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from einet._checks import missing_package

__all__ = ["main"]


def main() -> None:
    """Run the command; where typer is missing, say in one line what to install."""
    if find_spec("typer") is None:
        print(f"einet: {missing_package('typer', 'the einet command', 'cli')}", file=sys.stderr)
        raise SystemExit(2)
    from einet.cli.commands import app

    app()
