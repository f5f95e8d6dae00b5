"""API keys: who is let in, who is not, and that a key is seen by nobody else."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from tests.server.test_bad_input import error_of
from yaie.core.errors import ConfigError
from yaie.server.settings import ServerSettings

KEYS = ("sk-first-secret", "sk-second")
BODY = {"prompt": "abc"}


@pytest.fixture
def guarded(fake: FakeEngine) -> Iterator[LiveServer]:
    with serving(lambda: fake, api_key=KEYS) as server:
        yield server


def ask(server: LiveServer, **headers: str) -> httpx.Response:
    return server.http.post("/v1/completions", json=BODY, headers=headers)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_every_key_opens(guarded: LiveServer, key: str, scheme: str) -> None:
    assert ask(guarded, Authorization=f"{scheme} {key}").status_code == 200


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens_in_the_header_of_anthropics_clients(guarded: LiveServer, key: str) -> None:
    assert ask(guarded, **{"x-api-key": key}).status_code == 200
    both = {"x-api-key": "another", "Authorization": f"Bearer {key}"}
    assert ask(guarded, **both).status_code == 200
    assert (
        ask(guarded, **{**both, "x-api-key": key, "Authorization": "Bearer x"}).status_code == 200
    )


@pytest.mark.parametrize("shown", ["", "sk-third", "Bearer sk-second", "sk-first-secret sk-second"])
def test_anything_else_in_it_is_a_401(guarded: LiveServer, shown: str) -> None:
    error_of(ask(guarded, **{"x-api-key": shown}), 401)
    twice = [("x-api-key", KEYS[0]), ("x-api-key", KEYS[0])]
    error_of(guarded.http.post("/v1/completions", json=BODY, headers=twice), 401)


@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Bearer",
        "Bearer sk-third",
        "Bearer sk-first-secre",
        "Bearer sk-first-secret2",
        "Bearer sk-first-secret sk-second",
        "Basic sk-first-secret",
        "sk-first-secret",
        "Bearer \u00e9".encode("latin-1"),
    ],
)
def test_anything_else_is_a_401(guarded: LiveServer, shown: str | bytes) -> None:
    headers = {"Authorization": shown} if shown else {}
    response = guarded.http.post("/v1/completions", json=BODY, headers=headers)  # type: ignore[arg-type]
    error = error_of(response, 401)
    assert error["type"] == "authentication_error"
    assert response.headers["www-authenticate"] == "Bearer"
    assert "secret" not in response.text


def test_two_keys_in_one_request_are_none(guarded: LiveServer) -> None:
    headers = [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {KEYS[0]}")]
    error_of(guarded.http.post("/v1/completions", json=BODY, headers=headers), 401)


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_those_who_watch_need_no_key(guarded: LiveServer, path: str) -> None:
    assert guarded.http.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/models", "/openapi.json", "/nothing", "/health/", "/v1/models/"]
)
def test_everything_else_does(guarded: LiveServer, path: str) -> None:
    error_of(guarded.http.get(path), 401)


def test_body_of_a_stranger_is_not_read(fake: FakeEngine) -> None:
    with serving(lambda: fake, api_key=KEYS, max_body_bytes=100) as server:
        error_of(server.http.post("/v1/completions", content=b"x" * 1000), 401)


def test_openai_client_shows_its_key(guarded: LiveServer) -> None:
    client = guarded.openai().with_options(api_key=KEYS[1])
    assert client.completions.create(model="fake", prompt="abc").choices[0].text == "cba"


def test_key_is_in_no_answer_and_no_log_line(
    guarded: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    said = [guarded.http.get(path).text for path in ("/health", "/ready", "/metrics")]
    said += [
        guarded.http.get(path, headers=headers).text for path in ("/openapi.json", "/v1/models")
    ]
    ask(guarded, Authorization=f"Bearer {KEYS[0]}x")
    ask(guarded, **headers)
    names = ("yaie", "solutions", "uvicorn", "fastapi")
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(names)]
    assert ours
    for text in [*said, *ours]:
        assert "secret" not in text


def test_settings_do_not_show_keys() -> None:
    settings = ServerSettings(api_key=KEYS)
    assert "secret" not in repr(settings)
    assert "api_key" not in settings.non_default()


def test_keys_come_from_flag_environment_and_file(tmp_path: object) -> None:
    file = tmp_path / "keys"  # type: ignore[operator]
    file.write_text("sk-c\n\n  sk-d \n")
    environ = {"YAIE_API_KEY": "sk-a, sk-b", "YAIE_API_KEY_FILE": str(file)}
    assert ServerSettings.load(environ=environ).api_key == ("sk-a", "sk-b", "sk-c", "sk-d")
    given = {"api_key": ("sk-x",), "api_key_file": None}
    assert ServerSettings.load(given, environ={"YAIE_API_KEY": "sk-a"}).api_key == ("sk-x",)


@pytest.mark.parametrize("key", ["", " ", "a b ", "\u00e9", "a\nb"])
def test_key_that_no_client_could_show_is_refused_without_quoting_it(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerSettings(api_key=(key,))
    assert refused.value.param == "api_key"
    assert "got" not in refused.value.message


def test_file_without_keys_is_no_open_door(tmp_path: object) -> None:
    file = tmp_path / "keys"  # type: ignore[operator]
    for content in ("", "\n\n"):
        file.write_text(content)
        with pytest.raises(ConfigError) as refused:
            ServerSettings.load({"api_key_file": str(file)}, environ={})
        assert refused.value.param == "api_key_file"
    with pytest.raises(ConfigError):
        ServerSettings.load({"api_key_file": str(file) + "-missing"}, environ={})


@pytest.mark.parametrize(
    ("settings", "param", "why"),
    [
        ({}, "tenant_keys", "no effect without keys"),
        ({"api_key": KEYS, "xray": True}, "xray", "shows every key all requests"),
        (
            {"api_key": KEYS, "role": "prefill", "handover": "/tmp/a"},
            "tenant_keys",
            "role 'prefill'",
        ),
    ],
)
def test_tenants_need_keys_and_nothing_that_shows_others(
    settings: dict[str, Any], param: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        ServerSettings(tenant_keys=True, **settings)
    assert error.value.param == param
