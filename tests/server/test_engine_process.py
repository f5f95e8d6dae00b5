"""An engine in a process of its own: the server tells the same, and needs nothing of it but messages."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving, within
from yaie.engine.background.engine_process import EngineProcess
from yaie.engine.llm_engine import LLMEngine

PATHS = ("/health", "/server_info", "/model_info", "/tokenizer_info", "/v1/models/tiny-llama")
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    (TEXT, {"prompt": ["hello", "wörld"], "n": 2, "echo": True, "logprobs": 2, "seed": 3}),
    (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 1, "seed": 3}),
    (CHAT, {"messages": HELLO, "seed": 3, "response_format": {"type": "json_object"}}),
    ("/v1/responses", {"input": "hello", "temperature": 0}),
    ("/tokenize", {"messages": HELLO, "return_token_strs": True}),
    (TEXT, {"prompt": "x", "max_tokens": 10**6}),
]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> partial[LLMEngine]:
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("process") / "tiny-llama")
    return partial(LLMEngine, model=str(folder), num_blocks=256, threads=1, mine="none")


@pytest.fixture(scope="module")
def near(load: partial[LLMEngine]) -> Iterator[LiveServer]:
    """On a thread."""
    with serving(load) as server:
        yield server


@pytest.fixture(scope="module")
def far(load: partial[LLMEngine]) -> Iterator[LiveServer]:
    """In another process."""
    with serving(load, make_driver=EngineProcess) as server:
        yield server


def told(server: LiveServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and body, without what is new each time."""
    if body is None:
        response = server.http.get(path)
    else:
        limit = {"max_tokens": 12} if path in (TEXT, CHAT) else {}
        response = server.http.post(path, json={**limit, **body})
    return response.status_code, _lasting(response.json())


def _lasting(value: Any) -> Any:
    new = ("id", "created", "created_at", "completed_at")
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in new}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", PATHS)
def test_the_same_is_told_of_an_engine_that_is_far(
    near: LiveServer, far: LiveServer, path: str
) -> None:
    expected = told(near, path)
    assert expected[0] == 200
    assert told(far, path) == expected


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_the_same_is_answered_by_an_engine_that_is_far(
    near: LiveServer, far: LiveServer, path: str, body: dict[str, Any]
) -> None:
    assert told(far, path, body) == told(near, path, body)


@pytest.mark.nightly
def test_metrics_of_a_far_engine_follow(load: partial[LLMEngine]) -> None:
    # An engine of its own: the figures of another test's requests may still be on their way.
    with serving(load, make_driver=EngineProcess) as server:

        def generated() -> float:
            lines = server.http.get("/metrics").text.splitlines()
            [line] = [line for line in lines if line.startswith("vllm:generation_tokens_total")]
            return float(line.rsplit(" ", 1)[1])

        assert generated() == 0
        body = {"prompt": "hello", "max_tokens": 5, "ignore_eos": True}
        assert server.http.post(TEXT, json=body).status_code == 200
        within(20, lambda: generated() == 5)
