"""What a server must refuse: by the right status, in OpenAI's shape, naming the parameter."""

import json
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
TEXT = {"prompt": "hello", "max_tokens": 2}


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def called(arguments: str) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


SHARED = [
    ("temperature", "hot"),
    ("temperature", "0.5"),
    ("temperature", -1),
    ("temperature", 1000),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_k", -2),
    ("top_k", 1.5),
    ("min_p", 2),
    ("presence_penalty", 3),
    ("frequency_penalty", -3),
    ("repetition_penalty", 0),
    ("max_tokens", 0),
    ("max_tokens", True),
    ("n", 0),
    ("n", 10**9),
    ("seed", 2**80),
    ("seed", 2**63),
    ("min_tokens", 2**63),
    ("min_tokens", 2**31),
    ("max_tokens", 2**63),
    ("top_k", 2**63),
    ("priority", 2**63),
    ("priority", -(2**53)),
    ("seed", "1"),
    ("stop", 5),
    ("stop", ["a", 5]),
    ("stop", ""),
    ("stop", ["x"] * 100),
    ("stop", "\ud800"),
    ("stop_token_ids", "1"),
    ("stop_token_ids[1]", [1, 1.5]),
    ("stop_token_ids[1]", [1, 2**31]),
    ("stop_token_ids[0]", [-1]),
    ("logprob_token_ids[0]", [2**63]),
    ("truncate_prompt_tokens", 2**63),
    ("ignore_eos", "yes"),
    ("stream", "yes"),
    ("stream_options", {"include_usage": True}),
    ("priority", "high"),
    ("model", 5),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"one": 1}),
    ("logit_bias", {"1": "5"}),
    ("logit_bias", {"1": float("nan")}),
    ("logit_bias", {str(i): 1 for i in range(1025)}),
    ("logit_bias", [1]),
    ("stop_token_ids", list(range(1025))),
    ("truncate_prompt_tokens", 0),
    ("truncate_prompt_tokens", -2),
    ("truncate_prompt_tokens", 1.5),
]
CHAT_ONLY = [
    ("messages", None),
    ("messages", []),
    ("messages", "hello"),
    ("messages[0].content", [{"role": "user"}]),
    ("messages[0].content", [{"role": "user", "content": None}]),
    ("messages[0].content", [{"role": "user", "content": 5}]),
    ("messages[0].content", [{"role": "user", "content": "\ud800"}]),
    ("messages[0].content[0].type", [{"role": "user", "content": [{"type": "image_url"}]}]),
    ("messages[0].role", [{"role": "wizard", "content": "x"}]),
    ("messages[0].content", [{"role": "assistant", "content": None}]),
    ("messages[0].content", [{"role": "assistant", "content": None, "tool_calls": []}]),
    ("messages[0].tool_calls[0].id", [{"role": "assistant", "content": "x", "tool_calls": [{}]}]),
    ("messages[0].tool_calls[0].function.arguments", called("[" * 100_000)),
    ("messages", [{"role": "user", "content": "x"}] * 4097),
    ("messages[1]", [{"role": "user", "content": "x"}, "y"]),
    ("max_completion_tokens", 0),
    ("max_completion_tokens", 3),
    ("max_completion_tokens", True),
    ("max_completion_tokens", 2**63),
    (
        "messages[0].tool_calls[0].index",
        [
            {
                "role": "assistant",
                "content": "x",
                "tool_calls": [
                    {"id": "1", "function": {"name": "f", "arguments": "{}"}, "index": 2**63}
                ],
            }
        ],
    ),
    ("logprobs", 1),
    ("top_logprobs", 3),
    ("top_logprobs", -1),
    ("top_logprobs", 21),
    ("tools[0].function", [{"type": "function"}]),
    ("tools[0].function.name", [tool("no spaces")]),
    ("tools[0].function.name", [tool("")]),
    ("tools[0].function.name", [tool("f" * 129)]),
    ("tools[0].function.parameters", [tool("f", [])]),
    ("tools[0].function.parameters", [tool("f", {"type": "string"})]),
    ("tools[0].function.parameters", [tool("f", {"maximum": float("inf")})]),
    ("tools[0].function.parameters", [tool("f", {"description": "\ud800"})]),
    ("tools[0].function.parameters", [tool("f", nested(100))]),
    ("tools", [tool("f"), tool("f")]),
    ("tools", [tool(f"f{i}") for i in range(129)]),
    ("tools", [tool("f")]),  # a template that does not know of tools
    ("tool_choice", "required"),
    ("tool_choice", "any"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("parallel_tool_calls", "no"),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("response_format", "json"),
    ("response_format.type", {"type": "xml"}),
    ("response_format.json_schema", {"type": "json_schema"}),
    ("response_format.json_schema", {"type": "text", "json_schema": {"name": "x", "schema": {}}}),
    ("response_format.json_schema.schema", {"type": "json_schema", "json_schema": {"name": "x"}}),
    (
        "response_format.json_schema.schema",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": nested(100)}},
    ),
    ("store", "yes"),
    ("web_search_options", {}),
    ("verbosity", "loud"),
    ("reasoning_effort", "some"),
    ("prompt_cache_retention", "1h"),
    ("continue_final_message", True),
    ("chat_template_kwargs", {"chat_template": "{{ 1 }}"}),
    ("chat_template_kwargs", {"tokenize": False}),
    ("chat_template_kwargs", []),
    ("chat_template_kwargs", nested(100)),
]
TEXT_ONLY = [
    ("prompt", None),
    ("prompt", ""),
    ("prompt", []),
    ("prompt", [[]]),
    ("prompt", 5),
    ("prompt", [1, "a"]),
    ("prompt", [10**9]),
    ("prompt", [-1]),
    ("prompt", [2**63]),
    ("best_of", 2**63),
    ("prompt", "\ud800"),
    ("prompt", ["x"] * 257),
    ("prompt", [[1]] * 257),
    ("echo", "yes"),
    ("suffix", "x"),
    ("logprobs", True),
    ("logprobs", -1),
    ("logprobs", 21),
    ("best_of", 3),
]


STRICT = [
    ("max_tokens", 10**6),
    ("no_such_parameter", 1),
    ("client_metadata", {"a": "b"}),
]
STRICT_CHAT = [
    ("messages[0].tool_calls[0].function.arguments", called("[]")),
    ("messages[0].tool_calls[0].function.arguments", called("{")),
    ("messages[0].tool_calls[0].function.arguments", called("")),
    (
        "messages[0].provider_specific_fields",
        [{"role": "user", "content": "x", "provider_specific_fields": {}}],
    ),
    ("tools[0].type", [{"type": "web_search"}]),
]


JSON = {"Content-Type": "application/json"}


def refuses(live: LiveServer, path: str, body: dict[str, Any], param: str, value: Any) -> None:
    field = param.split(".")[0].split("[")[0]
    # As careless clients write it: with NaN, Infinity and halves of surrogate pairs.
    content = json.dumps({**body, field: value})
    response = live.http.post(path, content=content, headers=JSON)
    error = error_of(response, 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) <= 500


@pytest.mark.parametrize(("param", "value"), SHARED + CHAT_ONLY)
def test_chat_refuses(live: LiveServer, param: str, value: Any) -> None:
    refuses(live, "/v1/chat/completions", CHAT, param, value)


@pytest.mark.parametrize(("param", "value"), SHARED + TEXT_ONLY)
def test_completions_refuse(live: LiveServer, param: str, value: Any) -> None:
    refuses(live, "/v1/completions", TEXT, param, value)


@pytest.mark.parametrize(("param", "value"), STRICT + STRICT_CHAT)
def test_chat_refuses_if_strict(strict_live: LiveServer, param: str, value: Any) -> None:
    refuses(strict_live, "/v1/chat/completions", CHAT, param, value)


@pytest.mark.parametrize(("param", "value"), STRICT)
def test_completions_refuse_if_strict(strict_live: LiveServer, param: str, value: Any) -> None:
    refuses(strict_live, "/v1/completions", TEXT, param, value)


def test_more_choices_than_one_request_may_have_are_refused(live: LiveServer) -> None:
    body = {"prompt": ["x"] * 256, "n": 5}
    error = error_of(live.http.post("/v1/completions", json=body), 400)
    assert error["param"] == "n"
    assert "1024" in error["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_unknown_model_is_not_found_and_the_served_one_is_named(
    live: LiveServer, path: str
) -> None:
    body = (CHAT if "chat" in path else TEXT) | {"model": "gpt-4"}
    error = error_of(live.http.post(path, json=body), 404)
    assert error["code"] == "model_not_found"
    assert "'gpt-4'" in error["message"]
    assert "'tiny-llama'" in error["message"]


def test_context_error_names_both_lengths(live: LiveServer) -> None:
    body = {"prompt": [5] * 2000, "max_tokens": 1}
    error = error_of(live.http.post("/v1/completions", json=body), 400)
    assert error["code"] == "context_length_exceeded"
    assert "2000" in error["message"]
    assert "1024" in error["message"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"5", b'"text"', b"\xff\xfe", b"[" * 100_000, b"1" * 10_000]
)
def test_body_that_is_no_json_object_is_refused(live: LiveServer, content: bytes) -> None:
    error_of(live.http.post("/v1/completions", content=content, headers=JSON), 400)


def test_missing_content_type_is_explained(live: LiveServer) -> None:
    error = error_of(live.http.post("/v1/completions", content=b'{"prompt": "x"}'), 400)
    assert "application/json" in error["message"]


def test_unknown_path_and_method_answer_in_the_same_shape(live: LiveServer) -> None:
    error_of(live.http.get("/v1/nothing"), 404)
    error_of(live.http.get("/v1/models/"), 404)
    error_of(live.http.get("/v1/chat/completions"), 405)
    error_of(live.http.post("/v1/models"), 405)


@pytest.mark.parametrize("announced", [True, False])
def test_body_beyond_the_limit_is_refused(announced: bool) -> None:
    content = b'{"prompt": "' + b"x" * 2000 + b'"}'
    with serving(FakeEngine, max_body_bytes=1000) as server:
        body = content if announced else iter([content[:500], content[500:]])
        response = server.http.post("/v1/completions", content=body, headers=JSON)  # type: ignore[arg-type]
        error_of(response, 413)


def test_unexpected_failure_tells_the_client_nothing(
    fake: FakeEngine, fake_live: LiveServer
) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("/secret/path")

    fake.add_request = broken  # type: ignore[method-assign]
    response = fake_live.http.post("/v1/completions", json=TEXT)
    assert error_of(response, 500)["message"] == "Internal server error."
    assert "secret" not in response.text
