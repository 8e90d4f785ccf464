"""How much the studio takes on: bytes, rows, seconds, and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """The most that a request may bring or ask for.

    Attributes:
        max_bytes: Of a file, as it comes and as it is once unpacked.
        max_rows: Of a table.
        max_cells: The same times its columns.
        max_seconds: How long a model may be learnt.
        max_draws: Rows of a synthetic table.
        max_images: Images that are drawn at once.
        max_json: Bytes of a question.
        max_pixels: Of a picture.
        workers: How many questions are answered at the same time; others wait.

    Example:
        >>> Limits(max_rows=10).shown()["max_rows"]
        10
    """

    max_bytes: int = 256 << 20
    max_rows: int = 1_000_000
    max_cells: int = 50_000_000
    max_seconds: float = 600.0
    max_draws: int = 200_000
    max_images: int = 64
    max_json: int = 8 << 20
    max_pixels: int = 1 << 24
    workers: int = 4

    def shown(self) -> dict[str, Any]:
        """What the page is told, so that it can say so before it sends anything."""
        names = ("max_bytes", "max_rows", "max_seconds", "max_draws", "max_images")
        return {name: getattr(self, name) for name in names}
