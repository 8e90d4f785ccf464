"""The tables and sentences about measurements in README.md and docs/, from the stored results.

    python benchmarks/pages.py

Each page has places for them, `<!-- NAME -->` … `<!-- /NAME -->`. A test holds the pages equal to
what is written here, so that no number in them can differ from the measured ones.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import cpu_text
import gpu_text
import process_text
import table_text
import tree_text
from cpu_rows import load

__all__ = ["BLOCKS", "PAGES", "renew", "renewed"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "distributed.md",
    ROOT / "docs" / "tables.md",
)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_on_hyphens=False)


def _stored(name: str) -> list[dict]:
    return load(RESULTS / f"{name}.json")


BLOCKS: dict[str, Callable[[], str]] = {
    "gpu-summary": lambda: _wrapped(gpu_text.summary(_stored("efficiency-cuda"))),
    "gpu-precision": lambda: _wrapped(
        gpu_text.peer_precision(_stored("efficiency-cuda"), _stored("goals-cuda"))
    ),
    "gpu-table": lambda: gpu_text.table(_stored("goals-cuda")),
    "gpu-others": lambda: _wrapped(gpu_text.faster_than_pyjuice(_stored("goals-cuda"))),
    "trees-table": lambda: tree_text.table(_stored("trees-cuda")),
    "trees-queries": lambda: tree_text.queries(_stored("trees-cuda")),
    "processes-table": lambda: process_text.measured(_stored("scale")),
    "processes-gpu": lambda: process_text.on_one_gpu(_stored("scale")),
    "processes-paper": lambda: process_text.on_paper(_stored("scale")),
    "cpu-table": lambda: cpu_text.table(_stored("cpu")),
    "cpu-scaling": lambda: _wrapped(cpu_text.scaling_summary(_stored("cpu-scaling"))),
    "tables-results": lambda: table_text.results(_stored("tables")),
    "cpu-agreement": lambda: cpu_text.agreement(_stored("cpu"), _stored("cpu-scaling")),
}


def renewed(page: str) -> str:
    """A page with all of its places filled anew; those of other programs are left alone."""
    for name, text in BLOCKS.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        filled = begin + text() + end
        page = re.sub(pattern, lambda _, filled=filled: filled, page, flags=re.DOTALL)
    return page


def renew() -> None:
    """Write all pages anew."""
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    renew()
