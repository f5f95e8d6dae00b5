"""Random requests over all dialects: no 5xx, and an answer is the same whether streamed or whole."""

import json
import random
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.server.conftest import LiveServer, serving, within
from tests.server.random_requests import CHAT, TEXT, Json, request, said
from tests.server.tool_models import tool_model


@pytest.fixture(scope="module", params=["hermes", "qwen-coder"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """A model that writes calls and thoughts."""
    from yaie import LLMEngine

    folder = tool_model(request.param, tmp_path_factory.mktemp("alike") / "tiny-llama")
    load = lambda: LLMEngine(model=str(folder), num_blocks=1024, threads=1)  # noqa: E731
    with serving(load, reasoning_parser="think") as server:
        yield server
        within(10, lambda: not server.llm.has_work)
        server.llm.check()


def send(server: LiveServer, path: str, body: Json) -> httpx.Response:
    content = json.dumps(body)
    return server.http.post(path, content=content, headers={"Content-Type": "application/json"})


def check(server: LiveServer, path: str, body: Json) -> int:
    """The status of this request, asked both ways."""
    whole = send(server, path, body)
    options = {"stream_options": {"include_usage": True}} if path in (CHAT, TEXT) else {}
    streamed = send(server, path, {**body, "stream": True, **options})
    told = f"{path} {json.dumps(body)}\n{whole.text[-4000:]}\n{streamed.text[-4000:]}"
    assert whole.status_code < 500, told
    assert streamed.status_code == whole.status_code, told
    for name in ("x-yaie-ignored", "x-yaie-max-tokens"):
        assert streamed.headers.get(name) == whole.headers.get(name), told
    if whole.status_code != 200:
        assert streamed.json()["error"]["message"] == whole.json()["error"]["message"], told
    else:
        one, other = (
            said(path, answer, is_streamed=answer is streamed) for answer in (whole, streamed)
        )
        assert _settled(one) == _settled(other), told
    return whole.status_code


def _settled(value: object) -> object:
    """How much of a prompt was cached differs from the first answer to the second."""
    if isinstance(value, dict):
        return {name: _settled(inner) for name, inner in value.items()
                if name not in ("prompt_tokens_details", "input_tokens_details")}  # fmt: skip
    return [_settled(inner) for inner in value] if isinstance(value, list | tuple) else value


def run(server: LiveServer, count: int, seed: int) -> Counter[int]:
    rng = random.Random(seed)
    return Counter(check(server, *request(rng)) for _ in range(count))


def test_random_answers_are_the_same_both_ways(server: LiveServer) -> None:
    statuses = run(server, 30, seed=1)
    assert statuses[200] > 15
    assert statuses[400] > 1


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_thousands_of_random_answers_are_the_same_both_ways(server: LiveServer) -> None:
    statuses = run(server, 2500, seed=2)
    assert statuses[200] > 1500
    assert statuses[400] > 200
