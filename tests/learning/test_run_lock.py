"""One run to a folder, for as long as it lives."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from einet.learning import run_lock
from einet.learning.run_lock import LOCK, RunLock


def test_the_second_is_refused_while_the_first_lives(tmp_path: Path):
    with RunLock(tmp_path):
        message = rf"another run, process {os.getpid()}, writes to this folder"
        with pytest.raises(BlockingIOError, match=message), RunLock(tmp_path):
            pass
    with RunLock(tmp_path):
        pass
    assert (tmp_path / LOCK).read_bytes() == b""


def test_a_lock_of_a_killed_process_is_taken_over(tmp_path: Path):
    """Without torch, which takes long to load."""
    script = (
        "import fcntl, os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); "
        "fcntl.flock(f, fcntl.LOCK_EX); os.write(f, b'{\"process\": 7}'); print(1, flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-S", "-c", script, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(BlockingIOError, match="process 7, writes"), RunLock(tmp_path):
            pass
        holder.kill()
    with RunLock(tmp_path):
        pass


FORKS = """
import importlib.util, os, signal, sys, time
spec = importlib.util.spec_from_file_location("run_lock", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.RunLock(sys.argv[2]):
    if not os.fork():
        # Told by the child itself: what it inherits is given up when fork has returned here.
        print(os.getpid(), flush=True)
        os.close(1)
        time.sleep(60)
        os._exit(0)
    sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_workers_that_outlive_a_killed_process_do_not_hold_its_lock(tmp_path: Path):
    command = [sys.executable, "-S", "-c", FORKS, str(run_lock.__file__), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            message = f"process {holder.pid}, writes"
            with pytest.raises(BlockingIOError, match=message), RunLock(tmp_path):
                pass
            holder.kill()
            holder.wait()
            os.kill(child, 0)
            with RunLock(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("content", "free"),
    [
        ("", True),
        ("no JSON", True),
        ("[1]", True),
        ({"process": True}, True),
        ({"process": -1}, True),
        ({"process": 10**30}, True),
        ("dead", True),
        ("living", False),
        ({"process": 1, "machine": "elsewhere"}, False),
    ],
)
def test_where_there_are_no_locks_the_file_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content, free: bool
):
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(descriptor: int, how: int) -> None:
            raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(run_lock, "fcntl", NoLocks)
    if content in ("dead", "living"):
        child = subprocess.Popen([sys.executable, "-S", "-c", ""])
        child.wait()
        process = child.pid if content == "dead" else os.getpid()
        content = {"process": process, "machine": socket.gethostname()}
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / LOCK).write_text(text)
    if free:
        with RunLock(tmp_path):
            assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    else:
        with pytest.raises(BlockingIOError, match="another run"), RunLock(tmp_path):
            pass
        assert (tmp_path / LOCK).read_text() == text


def test_folders_that_nothing_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    message = r"nothing can be written to this folder \(Permission denied\)"
    with pytest.raises(PermissionError, match=message), RunLock(tmp_path):
        pass
