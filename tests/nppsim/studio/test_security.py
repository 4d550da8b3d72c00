"""Access to the studio: hosts, origins, tokens, paths."""

import pytest

from nppsim.studio import security
from nppsim.studio.security import Access

EVIL = "http://evil.example"


def headers(page, **changed):
    given = {"X-Studio-Token": page.access.token} | {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize("path", ["/", "/studio/static/js/api.js", "/api/state"])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "10.0.0.7:8765",
        "",
        "[",
        "evil.example@127.0.0.1",
        "127.0.0.1/evil.example",
        "127.0.0.1:8765:80",
        "[::1",
    ],
)
def test_foreign_host_is_refused(page, path, host):
    answer = page.client.get(path, headers=headers(page, Host=host))
    assert answer.status_code == 403 and "is not this machine" in answer.json()["error"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8765", "localhost:8765", "LocalHost", "[::1]:8765", "localhost:9000", "localhost"]
)
def test_local_names_and_tunnels_are_accepted(page, host):
    assert page.client.get("/api/state", headers=headers(page, Host=host, Origin=f"http://{host}")).status_code == 200


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "https://127.0.0.1:8765", "http://127.0.0.1:3000", "http://localhost:8765"]
)
def test_foreign_origin_is_refused(page, origin):
    for answer in (
        page.client.get("/api/state", headers=headers(page, Origin=origin)),
        page.client.post("/api/open", content=b"x", headers=headers(page, Origin=origin)),
        page.client.get("/", headers=headers(page, Origin=origin)),
    ):
        assert answer.status_code == 403 and "does not come from a page of" in answer.json()["error"]


@pytest.mark.parametrize("token", [None, "", "wrong", "ü"])
def test_request_without_token_is_refused(page, token):
    token = token and token.encode("latin-1")
    for path in ("state", "levels", "replays", "recordings"):
        assert page.client.get(f"/api/{path}", headers=headers(page, X_Studio_Token=token)).status_code == 401
    assert page.client.post("/api/open", headers=headers(page, X_Studio_Token=token)).status_code == 401
    assert page.client.get("/").status_code == 200  # static files need no token


def test_tokens_are_random_and_hidden():
    first, second = Access(), Access()
    assert first.token != second.token and len(first.token) >= 32
    assert first.token not in repr(first)


@pytest.mark.parametrize(
    "path",
    [
        "/studio/static/../app.py",
        "/studio/static/%2e%2e/app.py",
        "/studio/static/..%2fapp.py",
        "/studio/static//etc/passwd",
        "/studio/static/js/..%5c..%5capp.py",
        "/studio/static/%00",
        "/static",
        "/studio/static/js",
        "/%61pi/levels/%2e%2e",
        "//api/state",
        "/api//state",
        "/api/levels/..%2f..%2f..%2fetc%2fpasswd",
        "/api/levels/%2fetc%2fpasswd/file",
        "/api/replays/..%2f1/run",
        "/api/replays/-1/run",
        "/api/recordings/1e9/file",
    ],
)
def test_path_traversal_is_refused(page, path):
    answer = page.client.get(path, headers=headers(page))
    assert answer.status_code in (400, 404)
    assert b"def " not in answer.content and b"root:" not in answer.content


def test_large_request_is_refused_unread(page):
    assert page.post("open", b"\0" * (security.MAX_BODY + 1), 413)["error"].startswith("more than")

    pieces = (b"\0" * 65536 for _ in range(security.MAX_BODY // 65536 + 1))  # without a declared length
    assert page.post("open", pieces, 413)["error"].startswith("more than")


def test_responses_have_security_headers(page):
    for answer in (page.client.get("/"), page.client.get("/api/state"), page.client.get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy.replace("script-src 'self' 'wasm-unsafe-eval'", "")  # compiles WebAssembly
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_other_machines_need_host_flag():
    def status(access, host):
        return access.refusal("/", {b"host": [host.encode()]})[0]

    assert status(Access(), "192.168.1.7:8765") == 403
    open_house = Access("0.0.0.0")
    assert status(open_house, "192.168.1.7:8765") == 0
    assert status(open_house, "evil.example:8765") == 403  # DNS rebinding needs a name
    assert status(Access("studio.example"), "studio.example:8765") == 0


def test_repeated_host_or_origin_is_refused(page):
    access, host = Access(), b"127.0.0.1:8765"
    assert access.refusal("/", {b"host": [host, host]})[0] == 403
    assert access.refusal("/", {b"host": [host], b"origin": [b"http://" + host] * 2})[0] == 403
    assert access.refusal("/", {})[0] == 403
