"""What ``einet studio`` does, once its arguments are read."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from einet._checks import missing_package
from einet.cli.console import say

__all__ = ["run"]

_MODEL = ".einet"


def run(
    path: Path | None,
    model: Path | None,
    test_images: Path | None,
    port: int | None,
    host: str,
    is_shown: bool,
) -> None:
    """Open what is named, and answer the page until Ctrl-C."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise missing_package(package, "the studio", "studio")
    from einet.studio.answers import ApiError
    from einet.studio.server import Server, is_local, open_browser
    from einet.studio.session import Session

    # Questions are many and small: they share the cores, one each.
    torch.set_num_threads(1)
    if path is not None and model is None and path.suffix == _MODEL:
        path, model = None, path
    with Session() as session:
        try:
            if model is not None:
                session.open_model(None, str(model))
            if path is not None:
                session.open_data(None, str(path))
            if test_images is not None:
                session.open_images(test_images)
        except ApiError as error:
            raise ValueError(error.message) from error
        server = Server(session, host, port)
        if not is_local(host):
            say(
                f"einet: {host} can be reached by other machines: whoever has the address below "
                "can see the table and the model",
                err=True,
            )
        say(f"einet studio: {server.url}")
        say("Ctrl-C ends it.")
        server.run((lambda: open_browser(server.url)) if is_shown else None)
