"""The tables and sentences about measurements in README.md and docs/, from the stored results.

    python benchmarks/pages.py

Each page has places for them, `<!-- NAME -->` … `<!-- /NAME -->`. A test holds the pages equal to
what is written here, so that no number in them can differ from the measured ones.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu_text
import front_text
import gpu_text
import memory_text
import process_text
import studio_text
import table_text
import tree_text
from cpu_rows import load

__all__ = ["BLOCKS", "PAGES", "renew", "renewed"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "checkpoints.md",
    ROOT / "docs" / "distributed.md",
    ROOT / "docs" / "large_data.md",
    ROOT / "docs" / "studio.md",
    ROOT / "docs" / "tables.md",
)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_on_hyphens=False)


def _stored(name: str) -> list[dict]:
    return load(RESULTS / f"{name}.json")


def _quality() -> str:
    """The README's table of quality, which tells of the experiments too."""
    if str(ROOT) not in sys.path:
        # A script finds its own folder only.
        sys.path.append(str(ROOT))
    from experiments.table1.report import standing

    folder = ROOT / "experiments"
    entries = _read(folder / "table1" / "results.json")
    found, single = standing(entries, "learned"), standing(entries, "einsum")
    images = {
        name: _read(folder / "images" / "results" / f"{name}.json")
        for name in front_text.PUBLISHED_BITS
    }
    above = (found.entries, found.above, found.best, found.best_verified)
    table = front_text.quality(_stored("tables"), images, above)
    told = (
        f"Binary data: learnt trees, {found.what}; the paper's EiNets are single models, and ours "
        f"of that kind are at or above them on {single.above} of the {single.entries} sets "
        "measured so far. Bits per dimension: 8-bit images, less is better. Published numbers are "
        "quoted; how the others were measured, and how often, is behind the links. The score of "
        "outliers was chosen with "
        "labels of the set it is told of."
    )
    return f"{table}\n\n{_wrapped(told)}"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


BLOCKS: dict[str, Callable[[], str]] = {
    "gpu-summary": lambda: _wrapped(gpu_text.summary(_stored("efficiency-cuda"))),
    "gpu-precision": lambda: _wrapped(
        gpu_text.peer_precision(_stored("efficiency-cuda"), _stored("goals-cuda"))
    ),
    "front-speed": lambda: gpu_text.short_table(_stored("goals-cuda")),
    "front-seconds": lambda: _wrapped(front_text.in_seconds(_stored("tables"))),
    "front-quality": _quality,
    "gpu-table": lambda: gpu_text.table(_stored("goals-cuda")),
    "gpu-others": lambda: _wrapped(gpu_text.faster_than_pyjuice(_stored("goals-cuda"))),
    "trees-table": lambda: tree_text.table(_stored("trees-cuda")),
    "trees-queries": lambda: tree_text.queries(_stored("trees-cuda")),
    "sources-table": lambda: process_text.from_files(_stored("scale")),
    "checkpoints-table": lambda: process_text.of_checkpoints(_stored("scale")),
    "processes-table": lambda: process_text.measured(_stored("scale")),
    "processes-gpu": lambda: process_text.on_one_gpu(_stored("scale")),
    "processes-paper": lambda: process_text.on_paper(_stored("scale")),
    "memory-said": lambda: memory_text.said(_stored("scale")),
    "memory-halved": lambda: memory_text.halved(_stored("scale")),
    "studio-waiting": lambda: studio_text.waiting(_stored("studio")),
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
