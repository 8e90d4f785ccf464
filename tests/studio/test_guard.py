"""Who is answered: the page itself, with its token."""

from __future__ import annotations

from typing import Any

import pytest

from tests.studio.conftest import HOST, TOKEN


def test_questions_need_the_token(client: Any):
    assert client.get("/api/state").status_code == 200
    for given in ("", "wrong", TOKEN + "x", "é"):
        headers = {"x-einet-token": given.encode()}
        response = client.get("/api/state", headers=headers)
        assert response.status_code == 403
        assert "token" in response.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{HOST}.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_others_are_refused(client: Any, headers: dict):
    for method, path in (
        ("GET", "/api/state"),
        ("POST", "/api/marginals"),
        ("DELETE", "/api/training"),
    ):
        assert client.request(method, path, headers=headers).status_code == 403
    if "host" in headers or "origin" in headers:
        assert client.get("/", headers=headers).status_code == 403


def test_the_page_itself_is_answered(client: Any):
    headers = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    assert client.post("/api/marginals", json={}, headers=headers).status_code == 200
    # A link of another page may lead here.
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=visit).status_code == 200


def test_answers_forbid_what_others_could_do(client: Any):
    for path in ("/api/state", "/", "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in policy
        assert "access-control-allow-origin" not in headers


def test_only_the_page_is_served(client: Any):
    assert "<html" in client.get("/").text
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/vendor/../../app.py", "/app.py",
                 "//etc/passwd", "/%2fetc/passwd"):  # fmt: skip
        response = client.get(path)
        assert response.status_code in (404, 405), path
        assert "import" not in response.text
    assert client.refused(404, "GET", "/api/nothing")
    assert client.refused(405, "PUT", "/api/state")
