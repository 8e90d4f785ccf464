"""The studio as an ASGI application: the page, its questions, and the guard before both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from einet.studio.answers import ApiError, refusal
from einet.studio.endpoints import Endpoints
from einet.studio.guard import Guard
from einet.studio.session import Session

__all__ = ["PAGE", "create_app"]

#: What the browser loads.
PAGE = Path(__file__).parent / "page"


def create_app(session: Session, token: str, hosts: Collection[str] | None) -> ASGIApp:
    """The studio as an ASGI application.

    Args:
        session: What is open.
        token: What every question has to bring.
        hosts: The names that the server has, with port; None for any.
    """
    endpoints = Endpoints(session)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await to_thread.run_sync(session.close)

    api = [
        Route(f"/api{path}", endpoints.endpoint(call), methods=[method])
        for method, path, call in endpoints.routes()
    ]
    app = Starlette(
        routes=[*api, Mount("/", StaticFiles(directory=PAGE, html=True, check_dir=False))],
        exception_handlers={HTTPException: _not_there},
        lifespan=lifespan,
    )
    return Guard(app, token, hosts)


async def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is nothing at this address", 405: "this address is not asked in this way"}
    return refusal(ApiError(error.status_code, what.get(error.status_code, str(error.detail))))
