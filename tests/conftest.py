"""Fixtures for the tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As in a job that a shell runs in the background; tests send themselves a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """What a process has written outlives it; only a machine that stops takes more than that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real data; tests that ask for it are skipped where there is none."""
    named = os.environ.get("EINET_DATA")
    if named:
        folder = Path(named)
        reason = f"EINET_DATA names {folder}, which is no folder"
    else:
        folder = Path(__file__).resolve().parents[2] / "shared" / "data"
        reason = "no real data here: set EINET_DATA to a folder that holds it"
    if not folder.is_dir():
        pytest.skip(reason)
    return folder
