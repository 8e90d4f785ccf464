"""Starting the studio: a socket, an address with a token, and a server until Ctrl-C."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from urllib.parse import quote

from einet._checks import missing_package
from einet.studio.session import Session

__all__ = ["DEFAULT_PORT", "Server", "is_local"]

#: The port where none is asked for; the next ones where it is taken.
DEFAULT_PORT = 8765
_TRIED = 20
# Requests that are under way at the end have so many seconds.
_GRACE = 2


class Server:
    """A studio that listens; :meth:`run` answers until it is told to stop.

    Args:
        session: What is open; it is closed at the end.
        host: The address to listen to.
        port: The port; None takes a free one.

    Example:
        >>> with Session() as session:
        ...     server = Server(session, port=0)
        ...     server.url.startswith("http://127.0.0.1:")
        ...     server.close()
        True
    """

    def __init__(self, session: Session, host: str = "127.0.0.1", port: int | None = None) -> None:
        for package in ("starlette", "uvicorn"):
            if find_spec(package) is None:
                raise missing_package(package, "the studio", "studio")
        import uvicorn

        from einet.studio.app import create_app

        self.session, self.host = session, host
        self.token = secrets.token_urlsafe(24)
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        app = create_app(session, self.token, self._names())
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30,
            lifespan="on",
            ws="none",
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Where the page is, with the token."""
        host = self.host
        if host in ("0.0.0.0", "::"):
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"
        return f"http://{_bracketed(host)}:{self.port}/?token={quote(self.token)}"

    def run(self, opened: Callable[[], None] | None = None) -> None:
        """Answer until Ctrl-C, SIGTERM or :meth:`stop`.

        Args:
            opened: Called in a thread once the server answers.
        """
        if opened is not None:
            threading.Thread(target=self._tell, args=(opened,), daemon=True).start()
        try:
            # It ends by the signal that it was sent, once all is closed.
            with contextlib.suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def stop(self) -> None:
        """End :meth:`run`; from any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Give the port back, and close the session."""
        self._socket.close()
        self.session.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """The server in a thread, for as long as the block takes."""
        begun = threading.Event()
        thread = threading.Thread(target=self.run, args=(begun.set,), daemon=True)
        thread.start()
        begun.wait(30)
        try:
            yield self
        finally:
            self.stop()
            thread.join(30)

    def _tell(self, opened: Callable[[], None]) -> None:
        waiting = threading.Event()
        while not self._server.started and not self._server.should_exit:
            waiting.wait(0.02)
        if self._server.started:
            opened()

    def _names(self) -> list[str] | None:
        """The names that requests may use; None where that is any."""
        if self.host in ("0.0.0.0", "::"):
            return None
        names = {self.host}
        if is_local(self.host):
            names |= {"127.0.0.1", "localhost", "::1"}
        return [f"{_bracketed(name)}:{self.port}" for name in names]


def is_local(host: str) -> bool:
    """Whether nobody but this machine can reach an address.

    >>> is_local("127.0.0.1"), is_local("0.0.0.0"), is_local("localhost")
    (True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_browser(url: str) -> None:
    """Show a page, where there is a browser to do so."""
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket that listens; where no port is asked for, the usual one or one of the next."""
    wanted = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + _TRIED), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for each in wanted:
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A port that was used a moment ago is free; one that is in use is not taken over.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, each))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            last = error
    raise OSError(
        f"host and port: {host}:{port if port is not None else DEFAULT_PORT} cannot be listened to "
        f"({last.strerror if last else 'no port'})"
    )
