"""What the input of a response is made of, and how it becomes the messages of a chat completion."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from yaie.core.fields import FAST, MAX_MESSAGES, Fields, Flag, Text
from yaie.server.dialects.arguments import EarlierCalls
from yaie.server.dialects.custom_input import INPUT
from yaie.server.dialects.leniency import (
    OTHER,
    Placed,
    kind_or_other,
    left_out,
    others,
    without_effect,
)
from yaie.server.dialects.responses_tools import Tools, flat_name
from yaie.server.discriminated import choice, kind_of, tag, text_or_list

Json = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]
HAS_NO_EFFECT = "As an earlier answer gave it; has no effect."
Earlier = Annotated[Text | None, Field(description=HAS_NO_EFFECT)]
Caller = Annotated[dict[str, Any] | None, Field(description=HAS_NO_EFFECT)]

# --- parts ---


class TextPart(Fields):
    """A text that a client wrote."""

    type: Literal["input_text"]
    text: Text


class OutputTextPart(Fields):
    """A text that a model wrote, sent back."""

    type: Literal["output_text"]
    text: Text
    annotations: Annotated[list[Any] | None, without_effect("input[].content[].annotations")] = (
        Field(None, description=HAS_NO_EFFECT)
    )
    logprobs: Annotated[list[dict[str, Any]], FAST] | None = Field(None, description=HAS_NO_EFFECT)


class RefusalPart(Fields):
    """A refusal that a model wrote, sent back."""

    type: Literal["refusal"]
    refusal: Text


Part = Annotated[
    Annotated[TextPart, tag("input_text")]
    | Annotated[OutputTextPart, tag("output_text")]
    | Annotated[RefusalPart, tag("refusal")],
    choice(kind_of, "Only parts of the types input_text, output_text and refusal are supported."),
]
Content = Annotated[
    Annotated[Text, tag("text")] | Annotated[list[Part], FAST, tag("list")],
    choice(text_or_list, "It must be a string or a list of text parts."),
]

# --- items ---


class InputMessage(Fields):
    """One turn of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Earlier = None
    status: Earlier = None
    phase: Earlier = None


class CallItem(Fields):
    """What calls have in common."""

    call_id: Text
    name: Text
    namespace: Text | None = Field(None, description="Of the tool, as it was declared.")
    id: Earlier = None
    status: Earlier = None
    caller: Caller = None
    # What the openai client writes when it dumps a call.
    async_: Flag | None = Field(None, description=HAS_NO_EFFECT)


class FunctionCallItem(CallItem):
    """A call of a function that the model made, sent back."""

    type: Literal["function_call"]
    arguments: Annotated[
        Text,
        Field(description="The arguments, as JSON. What is no JSON object is taken for none."),
    ]


class CustomCallItem(CallItem):
    """A call of a custom tool that the model made, sent back."""

    type: Literal["custom_tool_call"]
    input: Text


class CallOutputItem(Fields):
    """What the client's function or custom tool returned."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: Text
    output: Content
    id: Earlier = None
    status: Earlier = None
    caller: Caller = None


class ReasoningPart(Fields):
    """A piece of what a model thought."""

    type: Literal["reasoning_text", "summary_text", "text"]
    text: Text


class ReasoningItem(Fields):
    """What the model thought before the item that follows, sent back."""

    type: Literal["reasoning"]
    id: Earlier = None
    summary: Annotated[list[ReasoningPart], FAST] | None = Field(None, description="Has no effect.")
    content: Annotated[list[ReasoningPart], FAST] | None = None
    encrypted_content: Text | None = Field(
        None, description="Has no effect: only the server that wrote it can read it."
    )
    status: Earlier = None


class MoreToolsItem(Placed):
    """More tools. The model knows them from the beginning of the conversation on."""

    type: Literal["additional_tools"]
    role: Literal["developer"] = "developer"
    tools: Tools
    id: Earlier = None


_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_KNOWN = _OUTPUTS | {
    "message", "function_call", "custom_tool_call", "reasoning", "additional_tools"
}  # fmt: skip
_REFUSED = frozenset({"item_reference", "compaction_trigger"})
"""They ask for something: for an item that was stored, or for a conversation in short."""


def _kind_of_item(item: Any) -> str | None:
    if isinstance(item, dict) and "type" not in item:
        return "message"
    kind = kind_or_other(item, _KNOWN, _REFUSED)
    return "output" if kind in _OUTPUTS else kind


OtherItem = Annotated[Json, others(*_KNOWN, *_REFUSED)]
InputItem = Annotated[
    Annotated[InputMessage, tag("message")]
    | Annotated[FunctionCallItem, tag("function_call")]
    | Annotated[CustomCallItem, tag("custom_tool_call")]
    | Annotated[CallOutputItem, tag("output")]
    | Annotated[ReasoningItem, tag("reasoning")]
    | Annotated[MoreToolsItem, tag("additional_tools")]
    | Annotated[OtherItem, tag(OTHER)],
    choice(
        _kind_of_item,
        "Only items of the types message, function_call, function_call_output, custom_tool_call, "
        "custom_tool_call_output, reasoning and additional_tools are supported. This server keeps no "
        "items to refer to, and shortens no conversation.",
    ),
]
Items = Annotated[
    list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES), FAST, left_out("input[]")
]
Input = Annotated[
    Annotated[Text, tag("text")] | Annotated[Items, tag("list")],
    choice(text_or_list, "It must be a string or a list of items."),
]

# --- the same conversation in older words ---

Parts = str | Sequence[TextPart | OutputTextPart | RefusalPart]


def chat_messages(instructions: str | None, given: Any) -> list[Json]:
    """The messages of the chat completion. given: an Input."""
    messages: list[Json] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
        return messages
    earlier = EarlierCalls("input[].arguments")
    thought: str | None = None  # goes with the turn that follows
    for item in given:
        if isinstance(item, ReasoningItem):
            thought = "".join(part.text for part in item.content or ()) or None
            continue
        if isinstance(item, MoreToolsItem):
            continue
        num_before = len(messages)
        _append(messages, item, earlier)
        if len(messages) > num_before and messages[-1]["role"] == "assistant" and thought:
            messages[-1]["reasoning_content"] = thought
        thought = None
    earlier.tell()
    return messages


def _append(messages: list[Json], item: Any, earlier: EarlierCalls) -> None:
    match item:
        case InputMessage():
            messages.append({"role": item.role, "content": _text(item.content)})
        case CallOutputItem():
            output = {"tool_call_id": item.call_id, "content": _text(item.output)}
            messages.append({"role": "tool", **output})
        case FunctionCallItem():
            _append_call(messages, item, earlier.carried(item.arguments))
        case CustomCallItem():
            _append_call(messages, item, json.dumps({INPUT: item.input}))


def _append_call(messages: list[Json], item: CallItem, arguments: str) -> None:
    """Calls of one turn, and the words before them, are one message there."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    function = {"name": flat_name(item.namespace, item.name), "arguments": arguments}
    call = {"id": item.call_id, "type": "function", "function": function}
    messages[-1].setdefault("tool_calls", []).append(call)


def _text(content: Parts) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in content)
