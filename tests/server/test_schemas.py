"""What the schemas say is what is checked, and what clients send back is taken."""

import json
from typing import Any

import pytest

from solutions.api_server import ChatRequest, CompletionRequest
from tests.server.conftest import LiveServer

MESSAGES = [{"role": "user", "content": "x"}]
HARMLESS = {
    "no_stop_trim": False,
    "skip_special_tokens": True,
    "return_hidden_states": False,
    "ignore_eos": False,
    "user": "someone",
    "min_tokens": 0,
    "logprob_token_ids": [],
    "return_token_ids": False,
    "prompt_logprobs": None,
    "metadata": {"run": "1"},
    "logit_bias": {},
    "stop": None,
}
HARMLESS_IN_CHAT = {
    "logprobs": False,
    "top_logprobs": 0,
    "continue_final_message": False,
    "add_generation_prompt": True,
    "add_special_tokens": False,
    "chat_template_kwargs": {},
    "prompt_cache_key": "a",
    "prompt_cache_retention": "24h",
    "web_search_options": None,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "include_reasoning": True,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "functions": [],
    "function_call": "none",
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "store": True,
    "service_tier": "auto",
}


def chat(**options: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": MESSAGES, **options})


def test_what_happens_anyway_may_be_asked_for(live: LiveServer) -> None:
    body = {"prompt": "x", "max_tokens": 1, "echo": False, "best_of": 1, "suffix": None, **HARMLESS}
    assert live.http.post("/v1/completions", json=body).status_code == 200
    asked = {"messages": MESSAGES, "max_tokens": 1, **HARMLESS, **HARMLESS_IN_CHAT}
    response = live.http.post("/v1/chat/completions", json=asked)
    assert response.status_code == 200, response.text


def test_every_parameter_may_be_null(live: LiveServer) -> None:
    for path, kind, body in (
        ("/v1/chat/completions", ChatRequest, {"messages": MESSAGES}),
        ("/v1/completions", CompletionRequest, {"prompt": "x"}),
    ):
        nulls = dict.fromkeys(kind.model_fields.keys() - body.keys())
        response = live.http.post(path, json={**nulls, **body, "max_tokens": 1})
        assert response.status_code == 200, response.text


def test_biases_and_truncation_reach_the_sampling_parameters() -> None:
    params = chat(logit_bias={"5": -100, "007": 1.5}, truncate_prompt_tokens=-1).sampling_params({})
    assert params.logit_bias == ((5, -100.0), (7, 1.5))
    assert params.truncate_prompt_tokens == -1


def test_log_probabilities_are_asked_for_in_two_ways() -> None:
    assert chat().sampling_params({}).logprobs is None
    assert chat(logprobs=True).sampling_params({}).logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).sampling_params({}).logprobs == 4
    text = CompletionRequest.model_validate({"prompt": "x", "logprobs": 3})
    assert text.sampling_params({}).logprobs == 3
    assert text.sampling_params({}).prompt_logprobs is None
    echoed = CompletionRequest.model_validate({"prompt": "x", "logprobs": 3, "echo": True})
    assert echoed.sampling_params({}).prompt_logprobs == 3


@pytest.mark.parametrize("name", ["logit_bias", "stop"])
def test_the_models_own_defaults_hold_for_what_is_null(name: str) -> None:
    assert chat(**{name: None}).sampling_params({"top_k": 7}).top_k == 7


def test_a_conversation_with_calls_reaches_the_template_as_it_expects_it() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    body = chat(
        messages=[
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "content": "5", "tool_call_id": "c1", "name": "f"},
        ]
    )
    assert [message.for_template() for message in body.messages] == [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}
            ],
        },
        {"role": "tool", "content": "5", "tool_call_id": "c1", "name": "f"},
    ]


def test_calls_are_constrained_only_where_something_demands_it() -> None:
    def demand(strict: bool = False, **options: Any) -> Any:
        schema = {"type": "object", "properties": {"a": {}}}
        function = {"name": "f", "parameters": schema, "strict": strict}
        body = chat(tools=[{"type": "function", "function": function}], **options)
        constraint = body.sampling_params({}).constraint
        if constraint is None:
            return None
        found = json.loads(constraint.text)
        is_full = found["functions"]["f"] == schema
        return found["is_required"], found["may_be_several"], is_full

    assert demand() is None
    assert demand(tool_choice="none", strict=True) is None
    assert demand(strict=True) == (False, True, True)
    assert demand(parallel_tool_calls=False) == (False, False, False)
    assert demand(tool_choice="required") == (True, True, True)
    named = {"type": "function", "function": {"name": "f"}}
    assert demand(tool_choice=named) == (True, False, True)
