"""How a body of `/v1/messages` becomes the body of a chat completion: the same conversation."""

from typing import Any, ClassVar

import pytest
from fastapi.exceptions import RequestValidationError

from tests.server.test_messages import ASK, text, use, user
from yaie.core.errors import InvalidRequestError
from yaie.server.dialects.messages_body import MessagesRequest


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def returned(number: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": number, **more}


def as_chat(**body: Any) -> dict[str, Any]:
    return MessagesRequest.model_validate({**ASK, **body}).chat_fields()


def test_tools_results_and_words_become_a_conversation() -> None:
    turns = [
        user([text("What "), text("now?", cache_control={"type": "ephemeral"})]),
        assistant([{"type": "thinking", "thinking": "hm", "signature": ""},
                   {"type": "redacted_thinking", "data": "x"},
                   text("I look."), use("look", "c1", at="it"), use("wait", "c2")]),
        user([text("And?"), returned("c1", content=[text("bl"), text("ue")]),
              returned("c2", content="no", is_error=True)]),
    ]  # fmt: skip
    call = {"type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
    wait = {"type": "function", "function": {"name": "wait", "arguments": "{}"}}
    assert as_chat(system=[text("Be "), text("brief.")], messages=turns)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What now?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
         "tool_calls": [{"id": "c1", **call}, {"id": "c2", **wait}]},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no"},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip


def test_turns_of_one_role_in_a_row_become_one() -> None:
    turns = [user("a"), user([text("b")]), assistant("c"), assistant([text("d"), use("f", "1")]),
             user([returned("1")]), user("e")]  # fmt: skip
    messages = as_chat(messages=turns)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert [message["content"] for message in messages] == ["a\n\nb", "c\n\nd", "", "e"]
    assert len(messages[1]["tool_calls"]) == 1


def test_system_may_speak_in_between() -> None:
    turns = [user("a"), assistant("b"), {"role": "system", "content": [text("c")]}, user("d")]
    roles = [message["role"] for message in as_chat(messages=turns, system="s")["messages"]]
    assert roles == ["system", "user", "assistant", "system", "user"]


def test_a_last_message_of_the_assistant_is_continued() -> None:
    begun = as_chat(messages=[user("a"), assistant("The answer is")])
    assert (begun["add_generation_prompt"], begun["continue_final_message"]) == (False, True)
    assert "continue_final_message" not in as_chat()
    for content in ("", [], [text("I look."), use("look", "c1")]):
        with pytest.raises(InvalidRequestError, match="last message of the assistant"):
            as_chat(messages=[user("a"), assistant(content)])


@pytest.mark.parametrize(
    ("choice", "told", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "none"}, "none", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, None),
    ],
)
def test_choice_of_tools_in_older_words(choice: Any, told: Any, parallel: bool | None) -> None:
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}
    chat = as_chat(tools=[tool], tool_choice=choice)
    function = {"name": "f", "description": "d", "strict": True, "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert (chat["tool_choice"], chat.get("parallel_tool_calls")) == (told, parallel)


def test_wishes_for_thought_and_form_are_passed_on() -> None:
    assert as_chat(thinking={"type": "disabled"})["chat_template_kwargs"] == {
        "enable_thinking": False
    }
    config = {"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}}
    chat = as_chat(output_config=config, thinking={"type": "adaptive"})
    assert chat["reasoning_effort"] == "max"
    assert chat["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "chat_template_kwargs" not in chat


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "image", "source": {}}], "images"),
        ([use("f", "1")], "text and tool_result"),
        ([], "at least 1"),
        (None, "a string or a list"),
        ([returned("1", content=[{"type": "image"}])], "text"),
    ],
)
def test_what_a_user_cannot_say_is_refused(content: Any, words: str) -> None:
    with pytest.raises(RequestValidationError) as refused:
        as_chat(messages=[user(content)])
    assert words in str(refused.value.errors()[0])


class Piece(str):
    """A text that notes what it is added to: each addition copies all that came before."""

    __slots__ = ()
    added: ClassVar[list[int]] = []

    def __add__(self, other: str) -> "Piece":
        Piece.added.append(len(self) + len(other))
        return Piece("".join([self, other]))

    def __radd__(self, other: str) -> "Piece":
        Piece.added.append(len(self) + len(other))
        return Piece("".join([other, self]))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_conversation_of_turns_of_one_role_is_copied_once(role: str) -> None:
    turns = [{"role": role, "content": str(number)} for number in range(100)]
    body = MessagesRequest.model_validate({**ASK, "messages": [*turns, user("end")]})
    for turn in body.messages:
        turn.content = Piece(turn.content)
    Piece.added.clear()
    content = body.chat_fields()["messages"][0]["content"]
    assert content.startswith("0\n\n1\n\n2\n\n")
    assert sum(Piece.added) <= len(content)
