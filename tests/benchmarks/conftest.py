"""The benchmarks are scripts in one folder: they import one another by their bare names."""

import sys
from pathlib import Path

_FOLDER = str(Path(__file__).resolve().parents[2] / "benchmarks")
if _FOLDER not in sys.path:
    sys.path.append(_FOLDER)
