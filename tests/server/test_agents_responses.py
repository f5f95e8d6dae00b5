"""What Codex sends to `/v1/responses`, rebuilt after public descriptions and the openai package's types.

Tools in namespaces, custom tools, tools that OpenAI runs, and histories with what those left.
"""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.dialects.responses_reply import ResponseReply
from yaie.server.dialects.responses_tools import flat_name
from yaie.server.extras.reply import Told
from yaie.server.lenient.notes import MOST, noting
from yaie.server.tools.events import Arguments, Call, Content, End, Piece, merged
from yaie.server.tools.text_grammars import TEXTS, TextGrammar

Json = dict[str, Any]
SPAWN: Json = {
    "type": "function",
    "name": "spawn_agent",
    "description": "Starts one.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"agent_type": {"enum": ["worker", "explorer"]}},
        "required": ["agent_type"],
        "additionalProperties": False,
    },
}
AGENTS: Json = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Agents that work beside you.",
    "tools": [SPAWN, {"type": "function", "name": "wait_agent"}],
}
GRAMMAR = 'start: "*** Begin Patch" LF line+ "*** End Patch" LF?\nline: /.+/ LF\n%import common.LF'
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
}
USER: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def body(**fields: Any) -> ResponsesRequest:
    return ResponsesRequest.model_validate({"input": "hi", **fields})


def chat(**fields: Any) -> Json:
    return body(**fields).chat_fields()


def functions(**fields: Any) -> dict[str, Json]:
    told = chat(**fields).get("tools", [])
    assert all(tool["type"] == "function" for tool in told)
    return {tool["function"]["name"]: tool["function"] for tool in told}


def ignored(**fields: Any) -> list[str]:
    with noting() as notes:
        chat(**fields)
    return notes.ignored


def refusal(*, strict: bool = False, **fields: Any) -> str:
    with (
        noting(is_strict=strict),
        pytest.raises((RequestValidationError, InvalidRequestError)) as refused,
    ):
        chat(**fields)
    if isinstance(refused.value, RequestValidationError):
        (error,) = refused.value.errors()
        return f"{error['loc']} {error['msg']}"
    return str(refused.value)


# --- tools ---


def test_functions_of_a_namespace_are_offered_with_its_name_in_front() -> None:
    told = functions(tools=[{"type": "function", "name": "exec_command"}, AGENTS])
    assert list(told) == [
        "exec_command",
        "multi_agent_v1__spawn_agent",
        "multi_agent_v1__wait_agent",
    ]
    spawn, wait = list(told.values())[1:]
    assert spawn["description"] == "Agents that work beside you.\n\nStarts one."
    assert spawn["parameters"] == SPAWN["parameters"]
    assert "description" not in wait


@pytest.mark.parametrize(
    ("namespace", "name", "flat"),
    [
        (None, "f", "f"),
        ("multi_agent_v1", "spawn_agent", "multi_agent_v1__spawn_agent"),
        ("mcp__files__", "read", "mcp__files__read"),
    ],
)
def test_names_are_joined_as_codex_writes_them(namespace: str | None, name: str, flat: str) -> None:
    assert flat_name(namespace, name) == flat


@pytest.mark.parametrize(("namespace", "name"), [("n" * 200, "f"), ("näme spaced", "f" * 128)])
def test_a_name_that_fits_nowhere_is_cut_and_stays_unlike_others(namespace: str, name: str) -> None:
    flat = flat_name(namespace, name)
    assert len(flat) <= 128
    assert flat == flat_name(namespace, name) != flat_name(namespace, f"{name[:-1]}g")
    (told,) = functions(tools=[{**AGENTS, "name": namespace, "tools": [{**SPAWN, "name": name}]}])
    assert told == flat


def test_two_tools_that_the_model_could_not_tell_apart_are_refused_by_name() -> None:
    from yaie.parts import load_parts

    twin = {**SPAWN, "name": "multi_agent_v1__spawn_agent"}
    with pytest.raises(InvalidRequestError, match="multi_agent_v1__spawn_agent' twice"):
        body(tools=[AGENTS, twin]).as_chat(load_parts("none")["api_server"])


def test_functions_in_namespaces_count_as_tools() -> None:
    many = [{**SPAWN, "name": f"f{number}"} for number in range(128)]
    assert len(functions(tools=[{**AGENTS, "tools": many}])) == 128
    told = refusal(tools=[{**AGENTS, "tools": many}, SPAWN])
    assert "128" in told
    assert "129" in told


def test_a_custom_tool_is_offered_as_a_function_of_one_text() -> None:
    told = functions(tools=[PATCH, {"type": "custom", "name": "note", "format": {"type": "text"}}])
    assert told["apply_patch"]["parameters"]["properties"] == {"input": {"type": "string"}}
    assert told["apply_patch"]["description"].startswith("Edits files.\n\n")
    assert told["apply_patch"]["description"].endswith(f"this Lark grammar:\n{GRAMMAR}")
    assert "grammar" not in told["note"]["description"]
    assert [told[name].get("strict") for name in told] == [True, None]
    assert ignored(tools=[PATCH, {"type": "custom", "name": "note"}]) == []


def test_a_custom_tool_may_be_in_a_namespace() -> None:
    told = functions(tools=[{**AGENTS, "tools": [PATCH]}])
    assert list(told) == ["multi_agent_v1__apply_patch"]


@pytest.mark.parametrize(
    "kind",
    ["web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation",
     "computer_use_preview", "mcp", "local_shell", "shell", "apply_patch", "tool_search", "new"],
)  # fmt: skip
def test_a_tool_that_openai_runs_is_left_out_and_named(kind: str) -> None:
    tools = [{"type": kind, "filters": {"a": [None, 1e999]}}, SPAWN]
    assert list(functions(tools=tools)) == ["spawn_agent"]
    assert ignored(tools=tools) == [f"tools[].{kind}"]
    assert [tool.type for tool in body(tools=tools).tools or ()] == ["function"]
    assert chat(tools=tools[:1], parallel_tool_calls=False).keys() == {"messages"}
    assert "function, custom and namespace" in refusal(strict=True, tools=tools)


def test_a_grammar_goes_beside_the_request_by_the_name_that_the_model_knows() -> None:
    with noting(is_strict=True) as notes:
        chat(tools=[SPAWN, PATCH, {**AGENTS, "tools": [SPAWN, PATCH]}])
    texts = notes.beside[TEXTS]
    assert {name: text.field for name, text in texts.items()} == {
        "apply_patch": "tools[1].format.definition",
        "multi_agent_v1__apply_patch": "tools[2].tools[1].format.definition",
    }
    assert texts["apply_patch"] == TextGrammar(
        "input", "lark", GRAMMAR, "tools[1].format.definition"
    )


def test_more_tools_come_in_the_input() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [AGENTS, {"type": "x"}]}
    told = functions(input=[USER, more], tools=[PATCH])
    assert list(told)[1:] == ["multi_agent_v1__spawn_agent", "multi_agent_v1__wait_agent"]
    asked = body(input=[USER, more])
    asked._forget()
    assert asked.callees["multi_agent_v1__wait_agent"].namespace == "multi_agent_v1"
    assert asked.input == asked._items_with_tools


def test_schemas_of_more_tools_count_like_others() -> None:
    large = {"type": "object", "description": "x" * (1 << 19)}
    many = [{**SPAWN, "name": f"f{number}", "parameters": large} for number in range(3)]
    with pytest.raises(InvalidRequestError, match="characters at most"):
        chat(input=[USER, {"type": "additional_tools", "tools": many}])


# --- the choice of one ---


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "spawn_agent"}, "multi_agent_v1__spawn_agent"),
        (
            {"type": "function", "name": "multi_agent_v1__spawn_agent"},
            "multi_agent_v1__spawn_agent",
        ),
        (
            {"type": "function", "name": "spawn_agent", "namespace": "multi_agent_v1"},
            "multi_agent_v1__spawn_agent",
        ),
    ],
)
def test_a_choice_names_the_tool_as_it_was_declared(wanted: Json, name: str) -> None:
    told = {"type": "function", "function": {"name": name}}
    assert chat(tools=[AGENTS, PATCH], tool_choice=wanted)["tool_choice"] == told
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [wanted]}
    choice = chat(tools=[AGENTS, PATCH], tool_choice=allowed)["tool_choice"]
    assert choice["allowed_tools"]["tools"] == [told]


@pytest.mark.parametrize("kind", ["web_search", "mcp", "apply_patch"])
def test_a_choice_of_what_this_server_does_not_run_is_refused_by_name(kind: str) -> None:
    told = refusal(tools=[{"type": kind}, SPAWN], tool_choice={"type": kind})
    assert "tool_choice" in told
    assert kind in told


# --- the history ---


def test_calls_of_both_kinds_and_their_results_go_back_in() -> None:
    items = [
        USER,
        {"type": "function_call", "call_id": "c1", "namespace": "multi_agent_v1",
         "name": "spawn_agent", "arguments": '{"agent_type": "worker"}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": 'say "é"\n',
         "status": "completed", "id": "ctc_1"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "custom_tool_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "o"}, {"type": "input_text", "text": "k"}]},
    ]  # fmt: skip
    _, said, first, second = chat(input=items, tools=[AGENTS, PATCH])["messages"]
    calls = [call["function"] for call in said["tool_calls"]]
    assert [call["name"] for call in calls] == ["multi_agent_v1__spawn_agent", "apply_patch"]
    assert json.loads(calls[1]["arguments"]) == {"input": 'say "é"\n'}
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "done"}
    assert second == {"role": "tool", "tool_call_id": "c2", "content": "ok"}


@pytest.mark.parametrize(
    "kind",
    ["web_search_call", "local_shell_call", "local_shell_call_output", "file_search_call",
     "image_generation_call", "mcp_call", "tool_search_output", "compaction", "new"],
)  # fmt: skip
def test_an_item_of_a_tool_that_openai_runs_is_left_out_and_named(kind: str) -> None:
    items = [USER, {"type": kind, "action": {"a": [1e999]}}]
    assert chat(input=items)["messages"] == [{"role": "user", "content": "hi"}]
    assert ignored(input=items) == [f"input[].{kind}"]
    assert "message, function_call" in refusal(strict=True, input=items)


@pytest.mark.parametrize("kind", ["item_reference", "compaction_trigger"])
def test_an_item_that_asks_for_something_is_refused(kind: str) -> None:
    assert "This server keeps no items" in refusal(input=[USER, {"type": kind, "id": "x"}])


def test_a_history_of_nothing_else_is_refused() -> None:
    assert "Nothing is left" in refusal(input=[{"type": "web_search_call"}])


def test_thousands_of_unknown_types_are_not_all_told() -> None:
    items = [USER, *({"type": f"kind_{number}"} for number in range(4000))]
    assert len(ignored(input=items)) == MOST + 1


def test_thoughts_that_others_encrypted_are_taken() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA",
               "summary": [{"type": "summary_text", "text": "s"}], "content": []}  # fmt: skip
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    _, said = chat(input=[USER, thought, call])["messages"]
    assert "reasoning_content" not in said
    readable = {**thought, "content": [{"type": "reasoning_text", "text": "hm"}]}
    _, said = chat(input=[USER, readable, {"type": "web_search_call"}, call])["messages"]
    assert said["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    "broken",
    ["", '{"a": "b', "[1]", "5", "null", '{"a": 1e999}', '{"a": "\\ud800"}', "[" * 5000,
     '{"a": ' + "9" * 5000 + "}"],
)  # fmt: skip
def test_a_call_that_max_tokens_cut_goes_on_without_arguments(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": broken}
    with caplog.at_level(logging.INFO), noting() as notes:
        _, said = chat(input=[USER, call, {**call, "call_id": "d"}])["messages"]
    assert [told["function"]["arguments"] for told in said["tool_calls"]] == ["{}", "{}"]
    assert notes.ignored == ["input[].arguments"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("2 call(s)")
    with noting(is_strict=True):
        _, said = chat(input=[USER, call])["messages"]
    assert said["tool_calls"][0]["function"]["arguments"] == broken  # which a chat refuses


def test_an_unknown_wish_to_include_something_is_ignored_and_named() -> None:
    wanted = ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert ignored(include=wanted) == ["include[].web_search_call.action.sources"]
    assert "include" in refusal(strict=True, include=wanted)
    assert not body(include=wanted).wants_logprobs


# --- the answer ---


class Scripted:
    """A chat completion's reply with these pieces."""

    id = "chatcmpl-1"
    requests = (SimpleNamespace(params=SamplingParams()),)

    def __init__(self, pieces: list[Piece], reason: str) -> None:
        self.pieces, self.end = pieces, End(reason, None)

    def told(self, output: Any) -> list[Told]:
        return [Told(piece) for piece in (*self.pieces, self.end)]

    def whole(self) -> list[Told]:
        return [Told(piece) for piece in (*merged(self.pieces), self.end)]

    def usage(self) -> Json:
        cached = {"cached_tokens": 0}
        return {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2,
                "prompt_tokens_details": cached}  # fmt: skip


def answered(pieces: list[Piece], reason: str = "tool_calls") -> tuple[list[Json], list[Json]]:
    """The output of the whole answer, and the events of the streamed one."""
    asked = body(tools=[AGENTS, PATCH], tool_choice="auto")
    whole: Any = Scripted(pieces, reason)
    output: Any = None
    events = list(ResponseReply(whole, asked, "m").chunks(output))
    result = ResponseReply(whole, asked, "m").result()
    assert _alike(events[-1]["response"]["output"]) == _alike(result["output"])
    return result["output"], events


def _alike(items: list[Json]) -> list[Json]:
    return [{name: value for name, value in item.items() if name != "id"} for item in items]


def called(name: str, arguments: str, size: int = 3) -> list[Piece]:
    pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    return [Call(0, name, "call_1"), *(Arguments(0, piece) for piece in pieces)]


def test_a_call_of_a_namespace_is_named_back() -> None:
    (item,), events = answered(called("multi_agent_v1__spawn_agent", '{"agent_type": "worker"}'))
    assert (item["type"], item["name"]) == ("function_call", "spawn_agent")
    assert item["namespace"] == "multi_agent_v1"
    assert item["arguments"] == '{"agent_type": "worker"}'
    begun, done = [event["item"] for event in events if "item" in event]
    assert (begun["namespace"], begun["name"]) == (done["namespace"], done["name"])
    (told,) = [event for event in events if event["type"].endswith("arguments.done")]
    assert told["name"] == "spawn_agent"


def test_a_call_of_a_custom_tool_has_its_text() -> None:
    patch = '*** Begin Patch\n+say "é" \\ 🙂\n*** End Patch'
    (item,), events = answered(called("apply_patch", json.dumps({"input": patch})))
    assert item == {
        "id": item["id"], "type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch",
        "input": patch, "status": "completed",
    }  # fmt: skip
    assert item["id"].startswith("ctc_")
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2] == "output_item.added"
    assert set(kinds[3:-3]) == {"custom_tool_call_input.delta"}
    assert kinds[-3:] == ["custom_tool_call_input.done", "output_item.done", "completed"]
    assert len(kinds) > 12  # streamed as it comes
    assert "".join(event["delta"] for event in events[3:-3]) == patch == events[-3]["input"]
    assert {event["item_id"] for event in events[3:-2]} == {events[2]["item"]["id"]}
    assert events[2]["item"]["input"] == ""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input": "cut', "cut"), ('{"patch": "x"}', '{"patch": "x"}'), ("{", "{"), ("", "")],
)
def test_a_custom_call_of_another_form_is_its_own_input(arguments: str, text: str) -> None:
    (item,), events = answered(called("apply_patch", arguments), "length")
    assert (item["input"], item["status"]) == (text, "incomplete")
    deltas = [event["delta"] for event in events if event["type"].endswith("input.delta")]
    assert "".join(deltas) == text


def test_words_and_calls_of_both_kinds_follow_one_another() -> None:
    pieces = [Content("So."), Call(0, "multi_agent_v1__wait_agent", "c1"), Arguments(0, "{}"),
              Call(1, "apply_patch", "c2"), Arguments(1, '{"input": "x"}')]  # fmt: skip
    items, _ = answered(pieces)
    assert [item["type"] for item in items] == ["message", "function_call", "custom_tool_call"]


def test_the_tools_that_are_repeated_are_those_that_count() -> None:
    chat_reply: Any = Scripted([], "stop")
    asked = body(tools=[AGENTS, PATCH, {"type": "web_search"}])
    told = ResponseReply(chat_reply, asked, "m")._response("completed")["tools"]
    assert [tool["type"] for tool in told] == ["namespace", "custom"]
    assert told[0]["tools"][0]["name"] == "spawn_agent"
