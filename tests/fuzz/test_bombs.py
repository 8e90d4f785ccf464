"""Small files that ask for much: refused with little memory, and soon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.bombs import PARTS, TEXTS

ROOT = Path(__file__).parents[2]
MOST_MEGABYTES = 200
# On an idle machine none takes a second; one that goes off would take minutes.
MOST_SECONDS = 60


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and limits of memory")
def test_bombs(tmp_path: Path):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
    }
    program = [sys.executable, "-m", "tests.fuzz.bombs", str(tmp_path)]
    done = subprocess.run(
        program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {name for *_, name in lines} == {*PARTS, *TEXTS, "a long header"}
    for answer, megabytes, seconds, name in lines:
        assert answer == "refused", name
        assert int(megabytes) < MOST_MEGABYTES, name
        assert float(seconds) < MOST_SECONDS, name
