"""What Claude Code sends to `/v1/messages`, rebuilt after the API's documentation and the anthropic
package's types: tools that come in the middle, tools that Anthropic runs, and what those left."""

import logging
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from tests.server.test_messages import ASK, text, use, user
from tests.server.test_messages_chat import assistant, returned
from yaie.core.errors import InvalidRequestError
from yaie.server.dialects.messages_body import MessagesRequest
from yaie.server.lenient.notes import noting

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {}}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "description": "d", "input_schema": SCHEMA, **more}


def system(*blocks: Json) -> Json:
    return {"role": "system", "content": list(blocks)}


def added(given: Json) -> Json:
    return {"type": "tool_addition", "tool": given}


def by_name(name: str) -> Json:
    return {"type": "tool_reference", "name": name}


def by_value(given: Json) -> Json:
    return {"type": "tool_definition", "definition": given}


def chat(**fields: Any) -> Json:
    return MessagesRequest.model_validate({**ASK, **fields}).chat_fields()


def offered(**fields: Any) -> list[str]:
    return [given["function"]["name"] for given in chat(**fields).get("tools", [])]


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


@pytest.mark.parametrize(
    "kind",
    ["web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_20251124",
     "code_execution_20250825", "memory_20250818", "tool_search_tool_regex_20251119", "mcp_toolset",
     "new"],
)  # fmt: skip
def test_a_tool_that_anthropic_runs_is_left_out_and_named(kind: str) -> None:
    tools = [{"type": kind, "name": "it", "max_uses": 5, "configs": {"a": [1e999]}}, tool("f")]
    assert offered(tools=tools) == ["f"]
    assert ignored(tools=tools) == [f"tools[].{kind}"]
    assert "custom" in refusal(strict=True, tools=tools)


def test_what_is_said_of_a_tool_without_an_effect_is_taken_and_named() -> None:
    told = tool("f", defer_loading=True, input_examples=[{"a": 1}])
    assert offered(tools=[told]) == ["f"]
    assert ignored(tools=[told]) == ["tools[].defer_loading", "tools[].input_examples"]
    assert ignored(tools=[tool("f", defer_loading=False, input_examples=[])]) == []
    assert "leave it out" in refusal(strict=True, tools=[told])


def test_a_choice_of_a_tool_that_was_left_out_is_refused_by_name() -> None:
    from yaie.parts import load_parts

    tools = [{"type": "web_search_20250305", "name": "web_search"}, tool("f")]
    choice = {"type": "tool", "name": "web_search"}
    body = MessagesRequest.model_validate({**ASK, "tools": tools, "tool_choice": choice})
    with pytest.raises(InvalidRequestError, match="'web_search', which is not among") as refused:
        body.as_chat(load_parts("none")["api_server"])
    assert refused.value.param == "tool_choice"


# --- tools that come later ---


@pytest.mark.parametrize(
    "block",
    [
        added(by_value(tool("g"))),
        added(tool("g")),
        {"type": "tool_addition", "tools": [tool("g")]},
        {"type": "tool_addition", "tools": [by_value(tool("g", type="custom"))]},
    ],
)
@pytest.mark.parametrize("role", ["user", "system"])
def test_a_tool_that_is_added_in_between_is_offered(block: Json, role: str) -> None:
    messages = [user("a"), assistant("b"), {"role": role, "content": [block]}, user("c")]
    told = chat(messages=messages, tools=[tool("f")])
    assert [given["function"]["name"] for given in told["tools"]] == ["f", "g"]
    assert [message["role"] for message in told["messages"]] == ["user", "assistant", "user"]
    assert offered(messages=messages) == ["g"]


def test_later_definitions_take_the_place_of_earlier_ones() -> None:
    block = added(by_value(tool("f", description="newer")))
    (told,) = chat(messages=[user("a"), system(block)], tools=[tool("f")])["tools"]
    assert told["function"]["description"] == "newer"


def test_a_tool_that_was_removed_is_not_offered_until_it_is_added_again() -> None:
    gone = {"type": "tool_removal", "tool": by_name("f")}
    tools = [tool("f", defer_loading=True), tool("g")]
    assert offered(messages=[user("a"), system(gone)], tools=tools) == ["g"]
    back = [user("a"), system(gone, text("now"), added(by_name("f")))]
    assert sorted(offered(messages=back, tools=tools)) == ["f", "g"]
    assert chat(messages=back)["messages"][-1] == {"role": "system", "content": "now"}


def test_what_cannot_be_added_is_named() -> None:
    server = {"type": "mcp_toolset_reference", "server_name": "s"}
    search = by_value({"type": "web_search_20250305", "name": "web_search"})
    messages = [user("a"), system(added(server), added(search), added(by_name("nobody")))]
    assert ignored(messages=messages) == [
        "messages[].content[].tool_addition.mcp_toolset_reference",
        "messages[].content[].tool_addition.web_search_20250305",
        "messages[].content[].tool_addition",
    ]
    assert "tool_reference" in refusal(strict=True, messages=[user("a"), system(added(server))])


def test_schemas_of_tools_that_come_later_count_like_others() -> None:
    large = {"type": "object", "description": "x" * (1 << 19), "enum": [1]}
    some = [added(tool(f"f{number}", input_schema=large)) for number in range(3)]
    with pytest.raises(InvalidRequestError, match="characters at most"):
        chat(messages=[user("a"), system(*some)])


def test_a_declaration_that_is_there_twice_is_refused_as_without_changes() -> None:
    messages = [user("a"), system(added(tool("g")))]
    assert offered(messages=messages, tools=[tool("f"), tool("f")]) == ["f", "f"]


def test_a_wrong_schema_is_found_where_it_was_written() -> None:
    wrong = {**tool("g"), "input_schema": {"type": "array"}}
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    assert "('body', 'tools', 1, 'input_schema')" in refusal(tools=[hosted, wrong])


# --- the history ---


@pytest.mark.parametrize(
    "kind",
    ["server_tool_use", "web_search_tool_result", "code_execution_tool_result", "mcp_tool_use",
     "mcp_tool_result", "fallback", "new"],
)  # fmt: skip
def test_a_block_that_a_servers_tool_left_is_left_out_and_named(kind: str) -> None:
    block = {"type": kind, "id": "srvtoolu_1", "input": {"a": [1e999]}}
    messages = [user([text("a"), block]), assistant([text("b"), block, text("c")]), user("d")]
    told = chat(messages=messages)["messages"]
    assert [message["content"] for message in told] == ["a", "bc", "d"]
    assert ignored(messages=messages) == [f"messages[].content[].{kind}"]
    assert "blocks may be of the types" in refusal(strict=True, messages=messages)


@pytest.mark.parametrize("kind", ["image", "document", "search_result", "container_upload"])
def test_what_the_model_should_see_and_cannot_is_refused(kind: str) -> None:
    for content in ([{"type": kind}], [returned("c", content=[{"type": kind}])]):
        assert "images, documents" in refusal(messages=[user([text("a"), *content])])


def test_a_block_in_a_turn_of_the_wrong_role_is_refused() -> None:
    assert "blocks may be" in refusal(messages=[user([use("f", "c")])])
    assert "blocks may be" in refusal(messages=[assistant([returned("c")]), user("a")])
    assert "blocks may be" in refusal(messages=[user("a"), system(use("f", "c"))])


def test_a_turn_of_which_nothing_is_left_says_nothing() -> None:
    unknown = {"type": "fallback"}
    turns = [user("a"), assistant("b"), user([unknown])]
    told = chat(messages=turns)
    assert [message["role"] for message in told["messages"]] == ["user", "assistant"]
    assert "continue_final_message" not in told
    assert "Nothing is left" in refusal(messages=[user([unknown])])


def test_a_tool_that_a_search_found_is_read_as_its_name() -> None:
    found = [{"type": "tool_reference", "tool_name": "TaskStop"}, {"type": "new"}, text(".")]
    messages = [
        user("a"),
        assistant([use("ToolSearch", "c")]),
        user([returned("c", content=found)]),
    ]
    assert chat(messages=messages)["messages"][-1]["content"] == "[tool TaskStop]."
    assert ignored(messages=messages) == ["messages[].content[].content[].new"]


def test_thoughts_without_words_or_signatures_are_taken() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "", "signature": ""},
    ]
    _, said, _ = chat(messages=[user("a"), assistant([*thoughts, text("b")]), user("c")])[
        "messages"
    ]
    assert said["reasoning_content"] == "hm"
    _, said, _ = chat(messages=[user("a"), assistant([thoughts[1], text("b")]), user("c")])[
        "messages"
    ]
    assert "reasoning_content" not in said


def test_what_a_conversation_said_in_short_is_read() -> None:
    short = [{"type": "compaction", "content": "We fixed it."}, {"type": "compaction"}]
    _, said, _ = chat(messages=[user("a"), assistant(short), user("c")])["messages"]
    assert said["content"] == "We fixed it."


@pytest.mark.parametrize("broken", ["", '{"a": "b', [1], 5, "[1]", "[" * 5000])
def test_a_call_that_max_tokens_cut_goes_on_without_input(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cut = {**use("f", "c"), "input": broken}
    messages = [user("a"), assistant([cut]), user([returned("c")])]
    with caplog.at_level(logging.INFO), noting() as notes:
        _, said, _ = chat(messages=messages)["messages"]
    assert said["tool_calls"][0]["function"]["arguments"] == "{}"
    assert notes.ignored == ["messages[].content[].input"]
    assert len(caplog.records) == 1
    assert "input" in refusal(strict=True, messages=messages)


# --- the rest ---


def test_what_has_no_effect_beside_a_conversation_is_taken_and_named() -> None:
    fields: Json = {
        "container": {"id": "c", "skills": []},
        "mcp_servers": [{"type": "url", "url": "https://example.org", "name": "s"}],
        "context_management": {
            "edits": [
                {"type": "clear_thinking_20251015", "keep": "all"},
                {
                    "type": "clear_tool_uses_20250919",
                    "trigger": {"type": "input_tokens", "value": 1},
                },
                {"type": ["odd"]},
            ]
        },
    }
    assert ignored(**fields) == [
        "context_management.edits[].clear_tool_uses_20250919",
        "context_management.edits[]",
        "container",
        "mcp_servers",
    ]
    for name, value in fields.items():
        assert name in refusal(strict=True, **{name: value})
    with noting(is_strict=True) as notes:
        chat(container=None, mcp_servers=[], context_management={"edits": []})
    assert notes.ignored == []


def test_quotations_of_a_search_are_taken_and_named() -> None:
    cited = text("b", citations=[{"type": "web_search_result_location", "url": "u"}])
    messages = [user("a"), assistant([cited]), user("c")]
    assert chat(messages=messages)["messages"][1]["content"] == "b"
    assert ignored(messages=messages) == ["messages[].content[].citations"]
