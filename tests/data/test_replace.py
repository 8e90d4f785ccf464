"""One step: the old file or the new one, with its rights, and nothing beside it."""

import errno
import inspect
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from einet.data.replace import replacing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and signals as POSIX has them")

# Run by itself: torch, which it has no need of, would take seconds to import.
SOURCE = str(Path(inspect.getfile(inspect.unwrap(replacing))))

# Writes half of a file, says so, and waits to be killed.
HALF = """
import runpy, sys, time
replacing = runpy.run_path(sys.argv[1])["replacing"]
with replacing(sys.argv[2]) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(600)
"""


def put(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def writer(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, SOURCE, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o666, 0o400, 0o751])
def test_the_mode_of_the_old_file_is_kept(mode: int, tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    put(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_bytes() == b"new"


def test_the_umask_decides_on_new_files(tmp_path: Path):
    old = os.umask(0o027)
    try:
        put(tmp_path / "file")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_nobody_else_reads_along(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


def test_owner_and_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o664)
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchown", lambda _, *ids: asked.append(ids))
        put(path)
    assert asked == [(-1, path.stat().st_gid), (path.stat().st_uid, -1)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o664

    def refuse(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    # A group that cannot be kept does not hand its rights to another.
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchown", refuse)
        put(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_is_no_plain_file_stays(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="must be a plain file"):
        put(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(IsADirectoryError):
        put(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        put(tmp_path / "nowhere" / "file")
    assert names(tmp_path / "pipe") == ["pipe"]


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path: Path):
    path = tmp_path / "file"
    put(path, b"old")
    process = writer(path)
    assert len(names(path)) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # The file is whole, whatever lies beside it, and writing another one removes nothing.
    assert path.read_bytes() == b"old"
    put(tmp_path / "other")
    assert len(names(path)) == 3
    put(path)
    assert names(path) == ["file", "other"]
    assert path.read_bytes() == b"new"


def test_what_another_process_writes_is_left_alone(tmp_path: Path):
    path = tmp_path / "file"
    process = writer(path)
    unfinished = names(path)
    try:
        put(path)
        assert names(path) == sorted([*unfinished, "file"])
    finally:
        process.kill()
        process.communicate()
    # What belongs to nobody known, such as an earlier release, is not ours to remove.
    (tmp_path / ".einet-0123456789abcdef.tmp").write_text("whose?")
    put(path)
    assert names(path) == [".einet-0123456789abcdef.tmp", "file"]


def test_a_file_that_was_taken_for_abandoned_before_it_was_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import fcntl

    taken = []

    def flock(descriptor, operation):
        if not taken:
            (unfinished,) = tmp_path.iterdir()
            unfinished.unlink()
            taken.append(unfinished)

    monkeypatch.setattr(fcntl, "flock", flock)
    put(tmp_path / "file")
    assert names(tmp_path / "file") == ["file"]
    assert taken


LIMITED = """
import errno, resource, runpy, sys
replacing = runpy.run_path(sys.argv[1])["replacing"]
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with replacing(sys.argv[2]) as file:
        for _ in range(100):
            file.write(bytes(10_000))
except OSError as error:
    assert error.errno == errno.EFBIG, error
    assert error.filename == sys.argv[2], error.filename
    print("refused")
"""


def test_a_limit_of_the_system(tmp_path: Path):
    path = tmp_path / "file"
    put(path, b"old")
    program = [sys.executable, "-c", LIMITED, SOURCE, str(path)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr
    assert names(path) == ["file"]
    assert path.read_bytes() == b"old"
