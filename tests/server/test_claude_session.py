"""A session of Claude Code on a live server, rebuilt after public descriptions of what it sends.

The model is tiny and random, so calls are demanded where they are needed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.test_responses import events_of
from tests.server.tool_models import tool_model
from yaie.engine.llm_engine import LLMEngine
from yaie.server.lenient.notes import IGNORED, MAX_TOKENS

Json = dict[str, Any]
PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
CACHED: Json = {"cache_control": {"type": "ephemeral"}}


def tool(name: str, **properties: str) -> Json:
    """A tool with properties of these types, all required."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"name": name, "description": f"Uses {name}.", "input_schema": schema}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


FIRST: Json = {
    "role": "user",
    "content": [text("<system-reminder>Be brief.</system-reminder>"), text("Fix it.", **CACHED)],
}
ASKED: Json = {
    "model": "coder",
    "system": [text("You are a coding agent."), text("Today is Monday.", **CACHED)],
    "messages": [FIRST],
    "tools": [
        tool("Glob", pattern="boolean"),
        {**tool("TodoWrite", done="boolean"), "eager_input_streaming": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "max_tokens": 32_000,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "user_1_session_2"},
    "output_config": {"effort": "high"},
    "temperature": 0,
}
ALWAYS = "tools[].web_search_20250305"


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tool_model("hermes", tmp_path_factory.mktemp("claude") / "coder")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=256, threads=1)) as server:
        yield server


def answer(server: LiveServer, **fields: Any) -> tuple[Json, str]:
    """The message, which is the same in a stream, and the header of what was ignored."""
    body = {**ASKED, **fields}
    whole = server.http.post(PATH, json=body, params={"beta": "true"})
    assert whole.status_code == 200, whole.text
    streamed = server.http.post(PATH, json={**body, "stream": True})
    events = events_of(streamed)
    assert events[-1]["type"] == "message_stop"
    pieces: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            piece = delta.get("text") or delta.get("partial_json") or delta.get("thinking") or ""
            pieces[event["index"]] = pieces.get(event["index"], "") + piece
    message: Json = whole.json()
    for index, block in enumerate(message["content"]):
        said = pieces.get(index, "")
        if block["type"] == "tool_use":
            assert json.loads(said or "{}") == block["input"]
        else:
            assert said == block.get("text", block.get("thinking"))
    assert whole.headers.get(IGNORED) == streamed.headers.get(IGNORED)
    return message, whole.headers.get(IGNORED, "")


def use(server: LiveServer, name: str, messages: list[Json]) -> tuple[Json, str]:
    """The turn of a call that was demanded."""
    choice = {"type": "tool", "name": name}
    message, ignored = answer(server, messages=messages, tool_choice=choice)
    assert message["stop_reason"] == "tool_use"
    (call,) = message["content"]
    assert (call["type"], call["name"]) == ("tool_use", name)
    return call, ignored


def test_a_first_turn_may_ask_for_more_than_the_context_holds(claude: LiveServer) -> None:
    whole = claude.http.post(PATH, json={**ASKED, "max_tokens": 32_000, "ignore_eos": True})
    assert whole.headers[IGNORED] == ALWAYS
    usage = whole.json()["usage"]
    said = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert int(whole.headers[MAX_TOKENS]) == 2048 - said == usage["output_tokens"]
    assert whole.json()["stop_reason"] == "model_context_window_exceeded"


def test_a_session_goes_on_with_calls_their_results_and_what_was_cut(claude: LiveServer) -> None:
    call, ignored = use(claude, "Glob", [FIRST])
    assert ignored == ALWAYS
    assert type(call["input"]["pattern"]) is bool

    # Two calls of one turn, one of them interrupted; fields of other providers come along.
    other = {"type": "tool_use", "id": "toolu_2", "name": "TodoWrite", "input": {}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": "a.py\nb.py", **CACHED},
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True,
         "content": [text("[Request interrupted by user for tool use]")]},
        text("[Request interrupted by user]"),
    ]  # fmt: skip
    turns = [
        FIRST,
        {"role": "assistant",
         "content": [thought, text("I look."), {**call, "provider_specific_fields": None}, other]},
        {"role": "user", "content": results},
    ]  # fmt: skip
    second, ignored = use(claude, "TodoWrite", turns)
    assert ignored == ALWAYS

    # A tool that was found comes in the middle, as does an instruction.
    found = {"type": "tool_reference", "tool_name": "Deploy"}
    turns += [
        {"role": "assistant", "content": [{**second, "provider_specific_fields": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": second["id"], "content": [found]}]},
        {"role": "system", "content": [
            {"type": "tool_addition", "tools": [tool("Deploy", now="boolean")]}]},
        {"role": "user", "content": [text("Go on.")]},
    ]  # fmt: skip
    third, ignored = use(claude, "Deploy", turns)
    assert ignored == f"{ALWAYS}, messages[].content[].provider_specific_fields"
    assert type(third["input"]["now"]) is bool


def test_a_conversation_that_was_made_short_goes_on(claude: LiveServer) -> None:
    """Compaction: another request asks for a summary, which begins the next conversation."""
    ask = {"role": "user", "content": [text("Summarize what was said, without tools.")]}
    said = {"role": "assistant", "content": [text("I looked.")]}
    summary, _ = answer(claude, messages=[FIRST, said, ask], tools=None, max_tokens=20)
    words = summary["content"][0]["text"] if summary["content"] else ""
    next_first = {"role": "user", "content": [text(f"Summary: {words}"), text("Continue.")]}
    message, _ = answer(claude, messages=[next_first], max_tokens=5)
    assert message["usage"]["output_tokens"] <= 5


def test_its_tokens_are_counted_as_the_prompt_has_them(claude: LiveServer) -> None:
    names = ("model", "system", "messages", "tools", "thinking")
    body = {name: ASKED[name] for name in names}
    counted = claude.http.post(COUNT, json=body).json()["input_tokens"]
    usage = answer(claude, max_tokens=1)[0]["usage"]
    assert counted == usage["input_tokens"] + usage["cache_read_input_tokens"]
