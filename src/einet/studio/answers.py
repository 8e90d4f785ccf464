"""What the studio sends back: JSON that every browser reads, and errors in one plain sentence."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.responses import Response

__all__ = ["ApiError", "answer", "download", "plain", "refusal"]


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: The HTTP status.
        message: Why, in one sentence.
        more: What else the answer holds.
    """

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.more = status, message, more


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(
        json.dumps(plain(value), allow_nan=False, separators=(",", ":")),
        status_code=status,
        media_type="application/json",
    )


def refusal(error: ApiError) -> Response:
    """An error as JSON."""
    # One line: what is wrong with a file may quote it.
    message = " ".join(str(error.message).split())[:1000]
    return answer({"error": message, **error.more}, error.status)


def download(content: bytes, name: str, media_type: str) -> Response:
    """A file to save under a name."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name)
    headers = {"content-disposition": f'attachment; filename="{safe}"'}
    return Response(content, media_type=media_type, headers=headers)


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are none become null, dates text.

    >>> plain({"a": float("nan"), 1: np.arange(2), "d": dt.date(2020, 1, 31)})
    {'a': None, '1': [0, 1], 'd': '2020-01-31'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else _moment(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, np.ndarray):
        return plain(value.tolist()) if value.dtype.kind not in "mM" else [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    if isinstance(value, dt.datetime | dt.date | dt.time):
        # pandas' own nothing is a datetime, too.
        return value.isoformat() if value == value else None
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return str(value)


def _moment(value: np.datetime64 | np.timedelta64) -> Any:
    return plain(value.astype("M8[us]" if value.dtype.kind == "M" else "m8[us]").item())
