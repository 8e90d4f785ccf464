"""Fixtures for the tests."""

import os
from pathlib import Path

import pytest


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
