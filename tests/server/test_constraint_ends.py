"""A grammar that overflows on the way ends its own request, in a way that no client takes for a fault of
the server: it would send the same again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from yaie.engine.input.grammars import compiler
from yaie.engine.llm_engine import LLMEngine

AT_ONCE = {"type": "string", "pattern": "^(?:a?){300}a{300}$"}
LATER = {"type": "string", "pattern": "^" + "ab" * 40 + "(?:(?:.*[a-z].{50})|(?:.*[b-x].{70})){4}$"}
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server that does not try grammars out, so that what overflows is admitted."""
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("models") / "tiny-llama")
    with (
        pytest.MonkeyPatch.context() as patched,
        serving(lambda: LLMEngine(model=str(folder), num_blocks=256, threads=1)) as server,
    ):
        patched.setattr(compiler, "WALK_STEPS", 0)
        patched.setattr(compiler, "MOST_LEXER_STATES", 300)
        yield server


def asked(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": MESSAGES, "max_tokens": 300, "response_format": form, **more}


def post(live: LiveServer, path: str, body: dict[str, Any]) -> httpx.Response:
    return live.http.post(path, json=body)


def test_a_schema_that_overflows_is_refused_at_admission(live: LiveServer) -> None:
    response = post(live, "/v1/chat/completions", asked(AT_ONCE))
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["param"]) == ("invalid_request_error", "response_format")
    # Which of its limits the grammar's lexer meets first depends on what it has read before.
    assert re.search("too many (states|expressions)", error["message"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("schema", [AT_ONCE, LATER], ids=["at once", "later"])
def test_one_that_is_admitted_ends_with_an_error_of_the_request(
    careless: LiveServer, stream: bool, schema: dict[str, Any]
) -> None:
    response = post(careless, "/v1/chat/completions", asked(schema, stream=stream))
    if response.status_code == 200:  # the first token was sent before
        assert stream
        *_, last, done = [line for line in response.text.splitlines() if line]
        assert done == "data: [DONE]"
        error = json.loads(last.removeprefix("data: "))["error"]
    else:
        assert response.status_code == 400
        error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "constraint_failed")
    assert error["param"] == "response_format"
    assert "cannot be kept to its grammar" in error["message"]


def test_the_others_go_on_and_nothing_is_lost(careless: LiveServer) -> None:
    free = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    before = post(careless, "/v1/chat/completions", free).json()["choices"][0]["message"]
    assert post(careless, "/v1/chat/completions", asked(LATER)).status_code == 400
    after = post(careless, "/v1/chat/completions", free).json()["choices"][0]["message"]
    assert after == before
    assert not careless.llm.has_work
    careless.llm.check()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("schema", [AT_ONCE, LATER], ids=["at once", "later"])
def test_the_openai_client_does_not_try_again(
    careless: LiveServer, stream: bool, schema: dict[str, Any]
) -> None:
    sent: list[str] = []
    http: Any = httpx.Client(event_hooks={"request": [lambda request: sent.append(request.method)]})
    client = OpenAI(base_url=f"{careless.url}/v1", api_key="none", max_retries=3, http_client=http)
    body: Any = asked(schema, stream=stream)
    with pytest.raises(openai.APIError) as error:
        list(client.chat.completions.create(model="tiny-llama", **body))
    assert error.value.code == "constraint_failed"
    assert sent == ["POST"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_ends_so_too(careless: LiveServer, stream: bool) -> None:
    form = {"type": "json_schema", "name": "x", "schema": LATER}
    body = {"input": "hello", "max_output_tokens": 300, "text": {"format": form}, "stream": stream}
    response = post(careless, "/v1/responses", body)
    if not stream or response.status_code != 200:
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "constraint_failed"
        return
    events = [
        json.loads(line.removeprefix("data: "))
        for line in response.text.splitlines()
        if line.startswith("data: ")
    ]
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == "constraint_failed"
    assert events[-1]["response"]["error"]["code"] == "invalid_prompt"
