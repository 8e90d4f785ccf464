"""Who may ask: requests of the page itself, that bring the token of this start.

Any page in the same browser can send requests to a port of this machine. So the host that a request
names must be the server's own (no other name may be made to point here), its origin too where it
says one, and every question needs a token that is only in the address that was printed.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from einet.studio.answers import ApiError, refusal

__all__ = ["HEADERS", "TOKEN_HEADER", "Guard"]

#: The header that has the token.
TOKEN_HEADER = "x-einet-token"

#: What every answer says to the browser: nothing of others is loaded, and nobody frames it.
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Lets requests through that are the page's own.

    Args:
        app: What answers them.
        token: What questions have to bring.
        hosts: The names, with port, that the server has; None where it has any, as one that listens
            to all of a network does.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str] | None) -> None:
        self._app, self._token = app, token
        self._hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        error = self._wrong(scope)
        answers = self._app if error is None else refusal(error)
        await answers(scope, receive, guarded)

    def _wrong(self, scope: Scope) -> ApiError | None:
        """Why a request is refused; None where it is not."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self._hosts is not None and host not in self._hosts:
            return ApiError(403, "this server is asked by another name than its own")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return ApiError(403, "this server answers its own page only, not that of another")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            is_visit = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
            if not is_visit or _is_question(scope):
                return ApiError(403, "this server answers its own page only, not that of another")
        if _is_question(scope):
            given = headers.get(TOKEN_HEADER, "")
            if not secrets.compare_digest(given.encode(), self._token.encode()):
                return ApiError(
                    403,
                    "the token is not that of this server, which may have been started again; open "
                    "the address that it printed",
                )
        return None


def _is_question(scope: Scope) -> bool:
    return scope["path"].startswith("/api/")
