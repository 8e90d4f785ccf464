"""A server that listens: many requests at once, the end of it, and a start after it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from einet.studio.server import Server, is_local
from einet.studio.session import Session
from tests.studio.test_training import _is_there

_SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def server(files: Path) -> Any:
    session = Session()
    session.open_model(None, str(files / "people.einet"))
    session.open_data(None, str(files / "people.parquet"))
    with Server(session, port=0).running() as server:
        yield server


def _ask(server: Server, path: str, **options: Any) -> httpx.Response:
    url = f"http://127.0.0.1:{server.port}{path}"
    headers = {"x-einet-token": server.token}
    method = "POST" if options else "GET"
    return httpx.request(method, url, headers=headers, timeout=60, trust_env=False, **options)


def test_fifty_requests_at_once(server: Server):
    evidence = [{"column": "age", "op": "between", "lower": 30, "upper": 40, "negated": True}]
    first = _ask(server, "/api/marginals", json={"evidence": evidence}).json()["columns"]

    def ask(number: int) -> tuple[int, Any]:
        if number % 5 == 0:
            return 200, _ask(server, "/api/information", json={}).json()["columns"]
        if number % 5 == 1:
            return 422, _ask(
                server, "/api/marginals", json={"evidence": [{"op": "is"}]}
            ).status_code
        response = _ask(server, "/api/marginals", json={"evidence": evidence})
        return response.status_code, response.json()["columns"]

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(50)))
    for number, (status, content) in enumerate(answers):
        if number % 5 > 1:
            assert status == 200
            assert content == first
    assert all(content == 422 for n, (_, content) in enumerate(answers) if n % 5 == 1)


def test_a_body_that_is_too_long(server: Server):
    object.__setattr__(server.session.limits, "max_bytes", 1 << 20)

    def parts() -> Any:
        for _ in range(16):
            yield bytes(1 << 20)

    for content in (parts(), bytes(4 << 20)):
        response = _ask(server, "/api/data?name=large.csv", content=content)
        assert response.status_code == 413
        assert "large.csv has more than 1 MiB" in response.json()["error"]
    assert _ask(server, "/api/state").json()["has_data"]


def test_ports(files: Path):
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    with Session() as session:
        with pytest.raises(OSError, match="cannot be listened to"):
            Server(session, port=taken.getsockname()[1])
        first, second = Server(session), Server(session)
        assert first.port != second.port
        assert first.token != second.token
        first.close()
        second.close()
    taken.close()
    assert is_local("::1")
    assert not is_local("192.168.1.1")
    assert not is_local("example.org")


def _started(arguments: list[str], folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The command in a process of its own, and the address that it prints."""
    code = "from einet.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "studio", "--no-open", "--port", "0", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_SOURCE), "TMPDIR": str(folder)},
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://127.0.0.1:" in line, line + (process.stderr.read() if process.stderr else "")
    return process, line.split()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_behind(files: Path, tmp_path: Path, number: int, frame: Any):
    frame.to_csv(tmp_path / "people.csv", index=False)
    process, address = _started(["people.csv"], tmp_path)
    base, _, token = address.partition("?token=")

    def ask(path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(
            base + path, method=method, data=b"{}" if method == "POST" else None
        )
        request.add_header("x-einet-token", token)
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            assert b'"has_data":true' in ask("api/state")
            break
        except OSError:
            time.sleep(0.05)
    ask("api/training", "POST")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = [int(word) for path in children.parent.parent.glob("*/children")
            for word in path.read_text().split()]  # fmt: skip
    assert pids
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode in (0, 1, -number, 128 + number)
    end = time.monotonic() + 20
    while any(_is_there(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_is_there(pid) for pid in pids)
    assert not list(tmp_path.glob("einet-studio-*"))


def test_a_thread_can_stop_it():
    server = Server(Session(), port=0)
    told = threading.Event()
    thread = threading.Thread(target=server.run, args=(told.set,))
    thread.start()
    assert told.wait(30)
    assert _ask(server, "/api/state").json()["kind"] == "empty"
    server.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert not server.session._folder.exists()
