"""A session of Codex on a live server, rebuilt after public descriptions of what it sends.

The model is tiny and random, so calls are demanded where they are needed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.test_agents_responses import AGENTS, PATCH
from tests.server.test_responses import events_of
from tests.server.tool_models import tool_model
from yaie.engine.llm_engine import LLMEngine

Json = dict[str, Any]
PATH = "/v1/responses"
EXEC: Json = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "workdir": {"type": "string"}},
        "required": ["cmd"],
        "additionalProperties": False,
    },
}
INPUT: list[Json] = [
    {"type": "message", "role": "developer",
     "content": [{"type": "input_text", "text": "<permissions>Ask first.</permissions>"}]},
    {"type": "message", "role": "user",
     "content": [{"type": "input_text", "text": "<environment_context>/tmp</environment_context>"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
]  # fmt: skip
ASKED: Json = {
    "instructions": "You are a coding agent.",
    "input": INPUT,
    "tools": [EXEC, PATCH, AGENTS, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-session",
    "text": {"verbosity": "low"},
}
SHORT: Json = {"max_output_tokens": 60, "temperature": 0}


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tool_model("hermes", tmp_path_factory.mktemp("codex") / "coder")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = 8192
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=2048, threads=1)) as server:
        yield server


def streamed(server: LiveServer, **fields: Any) -> Json:
    """The last response of the stream. The whole answer is the same."""
    answer = server.http.post(PATH, json={**ASKED, **SHORT, **fields})
    assert answer.status_code == 200, answer.text
    events = events_of(answer)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] in ("response.completed", "response.incomplete")
    last: Json = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == last["output"]
    whole = server.http.post(PATH, json={**ASKED, **SHORT, **fields, "stream": False}).json()
    assert [_told(item) for item in whole["output"]] == [_told(item) for item in last["output"]]
    assert whole["status"] == last["status"]
    return last


def _told(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


def test_a_first_turn_is_answered(codex: LiveServer) -> None:
    response = streamed(codex)
    assert [tool["type"] for tool in response["tools"]] == ["function", "custom", "namespace"]
    assert response["prompt_cache_key"] == "0199-session"


def test_a_session_goes_on_with_calls_their_results_and_what_was_cut(codex: LiveServer) -> None:
    spawn = {"type": "function", "name": "spawn_agent", "namespace": "multi_agent_v1"}
    first = streamed(codex, tool_choice=spawn, max_output_tokens=200)
    (call,) = first["output"]
    assert (call["type"], call["status"]) == ("function_call", "completed")
    assert (call["namespace"], call["name"]) == ("multi_agent_v1", "spawn_agent")
    assert json.loads(call["arguments"])["agent_type"] in ("worker", "explorer")

    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "agent 1"}
    turns = [*INPUT, call, result]
    named = {"type": "custom", "name": "apply_patch"}
    second = streamed(codex, input=turns, tool_choice=named, max_output_tokens=200)
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    (patch,) = second["output"]
    assert (patch["type"], patch["name"]) == ("custom_tool_call", "apply_patch")
    assert patch["input"].startswith("*** Begin Patch\n")

    thought = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA", "content": []}
    cut = {"type": "function_call", "call_id": "cut", "name": "exec_command", "arguments": '{"cmd'}
    turns += [
        thought, patch,
        {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "Done."},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        cut, {"type": "function_call_output", "call_id": "cut", "output": "aborted"},
        {"role": "user", "content": "Go on."},
    ]  # fmt: skip
    third = streamed(codex, input=turns)
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]


def test_what_has_no_effect_is_told(codex: LiveServer) -> None:
    labels = {"x-codex-installation-id": "1", "x-codex-turn-metadata": "{}"}
    answer = codex.http.post(PATH, json={**ASKED, **SHORT, "client_metadata": labels})
    assert answer.status_code == 200
    told = set(answer.headers["x-yaie-ignored"].split(", "))
    assert told == {"client_metadata", "tools[].web_search"}


def test_the_openai_client_knows_the_answer_as_its_own(codex: LiveServer) -> None:
    """It checks every object against OpenAI's schema."""
    asked: Json = {**ASKED, **SHORT, "max_output_tokens": 200, "model": "coder"}
    asked["tool_choice"] = {"type": "custom", "name": "apply_patch"}
    client = codex.openai()
    whole = client.responses.create(**{**asked, "stream": False})
    assert [tool.type for tool in whole.tools] == ["function", "custom", "namespace"]
    (call,) = whole.output
    assert call.type == "custom_tool_call"
    *_, last = client.responses.create(**asked)
    assert last.response.output[0].input == call.input
    sent_back = [*INPUT, call.model_dump(), {"role": "user", "content": "Go on."}]
    assert client.responses.create(**{**asked, "input": sent_back, "stream": False}).output


def test_a_large_request_is_read_elsewhere_and_its_calls_are_named_back(codex: LiveServer) -> None:
    """Another process makes the chat of it; what the answer needs comes back with that."""
    hosted = {"type": "web_search", "filters": ["x" * 1000] * 900}
    more = {"type": "additional_tools", "role": "developer", "tools": [AGENTS]}
    spawn = {"type": "function", "name": "spawn_agent"}
    fields: Json = {"tools": [EXEC, hosted], "input": [*INPUT, more], "tool_choice": spawn}
    (call,) = streamed(codex, **fields, max_output_tokens=200)["output"]
    assert (call["namespace"], call["name"]) == ("multi_agent_v1", "spawn_agent")
