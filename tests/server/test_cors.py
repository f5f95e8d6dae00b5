"""Web pages of other origins: shut out, unless their origin is named."""

import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import ConfigError
from yaie.server.settings import ServerSettings

PAGE = "https://page.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


def preflight(server: LiveServer, origin: str = PAGE) -> tuple[int, str | None]:
    response = server.http.request(
        "OPTIONS", "/v1/completions", headers={**PREFLIGHT, "Origin": origin}
    )
    return response.status_code, response.headers.get("access-control-allow-origin")


def test_closed_by_default(fake_live: LiveServer) -> None:
    status, allowed = preflight(fake_live)
    assert (status, allowed) == (403, None)
    response = fake_live.http.post(
        "/v1/completions", json={"prompt": "abc"}, headers={"Origin": PAGE}
    )
    assert "access-control-allow-origin" not in response.headers


def test_named_origin_is_let_in_and_no_other(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_origins=(PAGE,)) as server:
        assert preflight(server) == (200, PAGE)
        assert preflight(server, "https://evil.example")[1] is None
        response = server.http.post(
            "/v1/completions", json={"prompt": "abc"}, headers={"Origin": PAGE}
        )
        assert response.headers["access-control-allow-origin"] == PAGE


def test_preflight_needs_no_key_and_a_401_can_be_read_by_the_page(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_origins=(PAGE,), api_key=("sk-x",)) as server:
        assert preflight(server) == (200, PAGE)
        refused = server.http.post("/v1/completions", json={}, headers={"Origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == PAGE


def test_any_origin_may_be_asked_for(fake: FakeEngine) -> None:
    with serving(lambda: fake, allowed_origins=("*",)) as server:
        assert preflight(server)[1] == "*"


@pytest.mark.parametrize("origin", ["page.example", "https://page.example/", ""])
def test_what_is_no_origin_is_refused_at_start(origin: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerSettings(allowed_origins=(origin,))
    assert refused.value.param == "allowed_origins"
