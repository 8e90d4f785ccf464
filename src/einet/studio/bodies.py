"""What a request brings, read piece by piece and no further than is allowed."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from einet.studio.answers import ApiError

__all__ = ["file_name", "read_body", "read_json"]

# What is too long is read on for so many bytes, and forgotten: a browser that is cut off in the
# middle of sending shows no answer.
_MOST_FORGOTTEN = 4 << 30


async def read_body(request: Request, most: int, what: str = "the file") -> bytes:
    """All bytes of a request, of which there may be at most so many.

    Args:
        request: The request.
        most: How many.
        what: What errors call it.
    """
    declared = request.headers.get("content-length", "")
    parts: list[bytes] = []
    size, is_fine = 0, not (declared.isdecimal() and int(declared) > most)
    try:
        async for part in request.stream():
            size += len(part)
            is_fine = is_fine and size <= most
            if is_fine:
                parts.append(part)
            else:
                parts.clear()
            if size > _MOST_FORGOTTEN:
                break
    except ClientDisconnect:
        raise ApiError(400, f"{what} ended before all of it was sent") from None
    if not is_fine:
        raise ApiError(413, f"{what} has more than {_megabytes(most)}, the most that is taken")
    return b"".join(parts)


async def read_json(request: Request, most: int) -> dict[str, Any]:
    """The question of a request: a JSON object; nothing is an empty one."""
    content = await read_body(request, most, "the question")
    if not content:
        return {}
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise ApiError(400, "the question must be JSON, and is none that can be read") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the question must be a JSON object, such as {}")
    return value


def file_name(request: Request, default: str) -> str:
    """The name of a file, without folders."""
    name = request.query_params.get("name", "").replace("\\", "/").rsplit("/", 1)[-1]
    return name[:200] or default


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB" if size >= 1 << 20 else f"{size:,} bytes"
