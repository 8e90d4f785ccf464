"""Triton's compiler takes every kernel, on a machine without a GPU too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_the_compiler_refuses_no_kernel(tmp_path: Path) -> None:
    program = Path(__file__).with_name("compile_check.py")
    # A process of its own: in this one kernels are interpreted.
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    *refused, last = run.stdout.splitlines()
    assert not refused
    number = re.fullmatch(r"(\d+) kernels, 0 refused", last)
    assert number is not None, last
    assert int(number[1]) > 100
