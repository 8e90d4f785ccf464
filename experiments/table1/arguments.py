"""What the commands of this experiment have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from einet.data import debd

__all__ = ["default_root", "in_order"]


def in_order(names: str) -> list[str]:
    """Names of data sets, separated by commas, in the order of the table."""
    wanted = {debd.canonical(name.strip()) for name in names.split(",") if name.strip()}
    return [name for name in debd.names() if name in wanted]


def default_root() -> Path:
    """Where the data sets are, unless that is said."""
    named = [os.environ[key] for key in ("EINET_DEBD",) if os.environ.get(key)]
    data = os.environ.get("EINET_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    places: Iterable[Path] = [*map(Path, named), Path(data) / "debd"]
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        "no data sets here: name their folder with --root or in EINET_DEBD (looked in "
        + ", ".join(map(str, places))
        + ")"
    )
