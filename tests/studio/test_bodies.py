"""What a request brings is read as far as is allowed."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request

from einet.studio.answers import ApiError
from einet.studio.bodies import read_body, read_json

_MEGABYTE = 1 << 20


def _request(parts: list[bytes] | int, length: int | None = None) -> Request:
    """A request of some parts, or of so many megabytes."""

    async def all_parts() -> AsyncIterator[dict[str, Any]]:
        part = bytes(_MEGABYTE)
        for n in range(parts if isinstance(parts, int) else len(parts)):
            yield {"body": part if isinstance(parts, int) else parts[n], "more_body": True}
        yield {"body": b"", "more_body": False}

    source = all_parts()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", **(await anext(source))}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


def test_a_body_is_read_whole(portal: Any):
    assert portal.call(read_body, _request([b"a", b"", b"bc"]), 3) == b"abc"
    assert portal.call(read_json, _request([b'{"a":', b" 1}"]), 100) == {"a": 1}
    assert portal.call(read_json, _request([]), 100) == {}


@pytest.mark.parametrize("length", [None, 1 << 30])
def test_a_gigabyte_is_refused_with_little_memory(portal: Any, length: int | None):
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="people.csv has more than 4 MiB") as caught:
            portal.call(read_body, _request(1024, length), 4 * _MEGABYTE, "people.csv")
        assert caught.value.status == 413
        assert tracemalloc.get_traced_memory()[1] < 12 * _MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"{", b"[1]", b"nothing", b"[" * 100_000, b"\xff\xfe{"])
def test_what_is_no_question_is_refused(portal: Any, content: bytes):
    with pytest.raises(ApiError) as caught:
        portal.call(read_json, _request([content]), 1_000_000)
    assert caught.value.status == 400


def test_a_large_table_is_refused(empty: Any):
    session, client = empty
    object.__setattr__(session.limits, "max_bytes", 1000)
    error = client.refused(413, "POST", "/api/data?name=big.csv", content=b"a\n" + b"1\n" * 1000)
    assert "big.csv has more than 1,000 bytes" in error
    assert client.ok("GET", "/api/state")["has_data"] is False
