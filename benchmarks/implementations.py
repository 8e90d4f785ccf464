"""The implementations under measurement, and the virtual environments of the peers.

Each peer lives in an environment of its own, made on first use: their requirements exclude each
other's, and ours. `einet` runs under the interpreter that runs the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IMPLEMENTATIONS", "Implementation", "Unavailable", "interpreter", "version"]

WORKERS = Path(__file__).parent / "workers"

REQUIREMENTS = {
    "libspn": ("tensorflow==2.15.1", "tensorflow-probability==0.23.0", "libspn-keras==0.6.0"),
    "spflow": ("torch==2.13.0", "spflow==1.1.0"),
}


@dataclass(frozen=True)
class Implementation:
    """One line of the comparison: a worker script, its mode, and where it runs.

    Attributes:
        name: what the results call it.
        distribution: the package whose version the results state.
        worker: the script, a file of `workers/`.
        mode: the worker's mode.
        environment: a key of `REQUIREMENTS`, or None for the running interpreter.
    """

    name: str
    distribution: str
    worker: str
    mode: str
    environment: str | None = None

    @property
    def script(self) -> Path:
        return WORKERS / self.worker


IMPLEMENTATIONS = {
    implementation.name: implementation
    for implementation in (
        Implementation("einet", "einet", "einet_worker.py", "em"),
        Implementation("libspn", "libspn-keras", "libspn_worker.py", "graph", "libspn"),
        Implementation("libspn-xla", "libspn-keras", "libspn_worker.py", "xla", "libspn"),
        Implementation("spflow-em", "spflow", "spflow_worker.py", "em", "spflow"),
        Implementation("spflow-adam", "spflow", "spflow_worker.py", "adam", "spflow"),
    )
}


class Unavailable(Exception):
    """An implementation cannot be measured here; the message says why."""


def interpreter(implementation: Implementation, environments: Path, python: str) -> Path:
    """The interpreter to run the worker with; makes the peer's environment if it is not there."""
    if implementation.environment is None:
        return Path(sys.executable)
    folder = environments / implementation.environment
    requirements = REQUIREMENTS[implementation.environment]
    # Written last, so that an interrupted installation is taken up again.
    marker = folder / "installed.txt"
    if not marker.exists() or marker.read_text().split() != list(requirements):
        print(f"installing {' '.join(requirements)} into {folder}", file=sys.stderr)
        _run([python, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])
        marker.write_text("\n".join(requirements) + "\n")
    return folder / "bin" / "python"


def version(implementation: Implementation, python: Path) -> str:
    """The installed version of the implementation's package."""
    code = f"import importlib.metadata as m; print(m.version({implementation.distribution!r}))"
    return _run([str(python), "-c", code]).strip()


def _run(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Unavailable(str(error)) from error
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise Unavailable(next((line for line in lines if "ERROR" in line), lines[-1]))
    return result.stdout
