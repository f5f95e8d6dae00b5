"""Host and Origin: by which names the server is asked, and that no stranger's page gets anything."""

import asyncio
from typing import Any

import httpx
import pytest

from solutions.api_server import http_error
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import ConfigError
from yaie.server.allowed import Allowed
from yaie.server.listen import is_loopback, name_in
from yaie.server.request_head import MOST_KNOWN, OriginGuard
from yaie.server.settings import ServerSettings

EVIL = "http://evil.example"
LOCAL = ["127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:80", "10.1.2.3:1", "localhost", "localhost:8000",
         "LOCALHOST.", "yaie.localhost:8000"]  # fmt: skip
STRANGE = ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "127.evil.example",
           "localhost.evil", "localhostevil", "[evil]", "[::1", "a b", "evil.example:80x",
           "\u00e9.localhost", ""]  # fmt: skip
CHANGING = ["/reset_prefix_cache", "/flush_cache", "/watch/step", "/watch/pause", "/watch/resume",
            "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings",
            "/tokenize", "/detokenize", "/web/next_token"]  # fmt: skip
TELLING = ["/watch/events", "/v1/models", "/server_info", "/get_load", "/openapi.json", "/"]


def get(server: LiveServer, path: str = "/v1/models", **headers: str) -> httpx.Response:
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    return server.http.get(path, headers=encoded)


@pytest.mark.parametrize("host", LOCAL)
def test_addresses_and_localhost_are_names_of_this_machine(
    fake_live: LiveServer, host: str
) -> None:
    assert get(fake_live, Host=host).status_code == 200


def test_another_name_is_refused_with_a_sentence_that_names_the_flag(fake_live: LiveServer) -> None:
    for host in STRANGE:
        answer = get(fake_live, Host=host)
        assert answer.status_code == 403, host
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("permission_error", None)
        assert "--allowed-host" in error["message"]
    assert "--allowed-host evil.example." in get(fake_live, Host="evil.example:1").text
    told = fake_live.http.post("/v1/messages", headers={"Host": "evil.example"}, json={}).json()
    assert told["error"]["type"] == "permission_error"


def test_a_head_that_was_let_in_lets_in_no_other(fake_live: LiveServer) -> None:
    own = fake_live.url
    host = own.removeprefix("http://")
    for _ in range(2):
        assert get(fake_live, Host=host, Origin=own).status_code == 200
        assert get(fake_live, Host=host, Origin=EVIL).status_code == 403
        assert get(fake_live, Host="localhost", Origin=own).status_code == 403
        assert get(fake_live, Host="evil.example", Origin=own).status_code == 403
        assert get(fake_live, Host=host).status_code == 200


def test_only_so_many_heads_are_remembered() -> None:
    sent: list[int] = []

    async def app(*_: Any) -> None:
        sent.append(len(guard._known))

    guard = OriginGuard(app, http_error, Allowed((), ()), ())
    for number in range(MOST_KNOWN + 5):
        headers = [[b"host", b"%d.localhost" % number], [b"accept", b"*/*"]]
        asyncio.run(guard({"type": "http", "path": "/", "headers": headers}, app, app))
    assert (len(sent), max(sent)) == (MOST_KNOWN + 5, MOST_KNOWN)


def test_probes_and_prometheus_may_use_any_name(fake_live: LiveServer) -> None:
    for path in ("/health", "/ready", "/metrics"):
        assert get(fake_live, path, Host="yaie.internal", Origin=EVIL).status_code == 200


def test_two_hosts_and_a_request_in_absolute_form_do_not_get_round_it(
    fake_live: LiveServer,
) -> None:
    import socket

    host, port = fake_live.url.removeprefix("http://").split(":")
    for request in (
        b"GET http://127.0.0.1/v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            assert connection.recv(4096).split()[1] in (b"403", b"400")


def test_a_name_may_be_allowed_and_then_no_other_goes(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_host=("yaie.example", "Other.example:8443")) as server:
        for host in ("yaie.example", "YAIE.example:1", "other.example:8443", "127.0.0.1"):
            assert get(server, Host=host).status_code == 200, host
        for host in ("evil.example", "other.example", "x.yaie.example"):
            assert get(server, Host=host).status_code == 403, host
        assert server.http.post("/tokenize", json={}, headers={
            "Host": "yaie.example", "Origin": "https://yaie.example"}).status_code == 400  # fmt: skip


def test_any_name_goes_where_that_is_said_and_where_others_reach_the_server_or_need_keys() -> None:
    assert ServerSettings().hosts == ()
    assert ServerSettings(host="0.0.0.0").hosts is None
    assert ServerSettings(api_key=("k",)).hosts is None
    assert ServerSettings(host="0.0.0.0", allowed_host=("a.example",)).hosts == ("a.example",)
    for options in ({"api_key": ("k",)}, {"allowed_host": ("*",)}):
        with serving(FakeEngine, **options) as server:
            answer = get(server, Host="evil.example", Authorization="Bearer k")
            assert answer.status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.9.9.9", "localhost"])
def test_what_listens_on_this_machine_alone_is_private(host: str) -> None:
    assert is_loopback(host)
    assert ServerSettings(host=host).is_private


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "127.evil.example"])
def test_what_others_reach_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("origin", [EVIL, "null", "http://localhost:1", "https://127.0.0.1:1", ""])
def test_a_foreign_page_neither_changes_nor_reads_anything(
    fake_live: LiveServer, origin: str
) -> None:
    for path in CHANGING:
        answer = fake_live.http.post(path, headers={"Origin": origin})
        assert answer.status_code == 403, path
        assert "--allowed-origins" in answer.json()["error"]["message"]
        assert "access-control-allow-origin" not in answer.headers
    for path in TELLING:
        assert get(fake_live, path, Origin=origin).status_code == 403, path


def test_a_cache_is_not_reset_by_a_foreign_page(fake: FakeEngine) -> None:
    """A POST without a body needs no preflight: the browser sends it at once."""
    resets: list[int] = []
    fake.reset_prefix_cache = lambda: resets.append(1) or 0  # type: ignore[method-assign,func-returns-value]
    with serving(lambda: fake) as server:
        assert server.http.post("/flush_cache", headers={"Origin": EVIL}).status_code == 403
        assert resets == []
        assert server.http.post("/flush_cache").status_code == 200
        assert server.http.post("/flush_cache", headers={"Origin": server.url}).status_code == 200
        assert resets == [1, 1]


def test_the_servers_own_page_and_named_origins_may_ask(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_origins=("https://page.example",)) as server:
        port = server.url.rpartition(":")[2]
        for host, origin in (
            (f"localhost:{port}", f"http://localhost:{port}"),
            ("localhost", "https://localhost"),  # behind a proxy that speaks TLS
            ("localhost:80", "http://localhost"),
            (f"127.0.0.1:{port}", "https://page.example"),
            (f"127.0.0.1:{port}", "HTTPS://Page.example"),
        ):
            assert get(server, Host=host, Origin=origin).status_code == 200, origin
        assert get(server, Origin="https://page.example.evil").status_code == 403
        assert get(server, Origin="http://page.example").status_code == 403


def test_with_any_origin_allowed_there_is_none_that_is_foreign(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_origins=("*",)) as server:
        for origin in (EVIL, "null"):
            assert get(server, Origin=origin).status_code == 200


@pytest.mark.parametrize("options", [{"api_key": ("k",)}, {"xray": False}, {"host": "0.0.0.0"}])
def test_without_being_told_to_a_server_for_others_has_no_x_ray(options: Any) -> None:
    with serving(FakeEngine, **options) as server:
        for method, path in (("GET", "/watch/events"), ("POST", "/watch/step")):
            answer = server.http.request(method, path, headers={"Authorization": "Bearer k"})
            assert answer.status_code == 403
            assert "yaie serve --xray" in answer.json()["error"]["message"]
        assert server.http.get("/").status_code == 200


def test_with_keys_the_x_ray_needs_one() -> None:
    settings = ServerSettings(api_key=("k",), xray=True, host="0.0.0.0")
    assert settings.shows_xray
    with serving(FakeEngine, api_key=("k",), xray=True) as server:
        assert server.http.post("/watch/step").status_code == 401
        answer = server.http.post("/watch/step", headers={"Authorization": "Bearer k"})
        assert answer.status_code == 400  # it is there: the engine is not in step mode


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"allowed_host": ("",)}, "allowed_host"),
        ({"allowed_host": ("http://a.example",)}, "allowed_host"),
        ({"allowed_host": ("a b",)}, "allowed_host"),
        ({"xray": True, "web": False}, "xray"),
        ({"step": True, "host": "0.0.0.0"}, "step"),
        ({"step": True, "web": False}, "step"),
    ],
)
def test_wrong_settings_are_refused_at_start(options: Any, param: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerSettings(**options)
    assert refused.value.param == param


def test_a_name_is_read_without_its_port() -> None:
    assert name_in("A.Example.:80") == "a.example"
    assert name_in("[::1]:80") == "::1"
    assert name_in("[::1]x") is None
    assert name_in(":80") is None
