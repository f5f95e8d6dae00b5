"""The turns of a conversation in Anthropic's words, and how they become those of a chat completion."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from yaie.core.fields import FAST, Fields, Flag, JsonObject, Text
from yaie.server.dialects.arguments import EarlierCalls
from yaie.server.dialects.leniency import OTHER, kind_or_other, left_out, others, without_effect
from yaie.server.dialects.messages_tools import (
    HAS_NO_EFFECT,
    Block,
    Change,
    ToolAdditionBlock,
    ToolRemovalBlock,
)
from yaie.server.discriminated import choice, tag, text_or_list
from yaie.server.lenient.notes import refuses

Json = dict[str, Any]

# --- blocks ---


class TextBlock(Block):
    """A text."""

    type: Literal["text"]
    text: Text
    citations: Annotated[list[Any] | None, without_effect("messages[].content[].citations")] = (
        Field(None, description=HAS_NO_EFFECT)
    )


def _object_or_none(value: Any) -> Any:
    """What is no object is None: an answer may have been cut there."""
    return value if isinstance(value, dict) or refuses() else None


class ToolUseBlock(Block):
    """A call that the model made, sent back."""

    type: Literal["tool_use"]
    id: Text
    name: Text
    input: Annotated[
        JsonObject | None,
        BeforeValidator(_object_or_none),
        Field(description="What is no JSON object is taken for an empty one."),
    ] = None
    caller: dict[str, Any] | None = Field(None, description=HAS_NO_EFFECT)
    toolset_name: Text | None = Field(None, description=HAS_NO_EFFECT)


class ToolReferenceBlock(Block):
    """A tool that a search of tools found. The model reads its name."""

    type: Literal["tool_reference"]
    tool_name: Text

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"[tool {self.tool_name}]"


MEDIA = frozenset({"image", "document", "search_result", "container_upload"})
"""They change the answer, so they are not left out."""
OtherResult = Annotated[Json, others("text", "tool_reference", *MEDIA)]
ResultBlock = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolReferenceBlock, tag("tool_reference")]
    | Annotated[OtherResult, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, frozenset({"text", "tool_reference"}), MEDIA),
        "A result's blocks may be of the types text and tool_reference; images, documents and search "
        "results are not supported.",
    ),
]
Result = Annotated[
    Annotated[Text, tag("text")]
    | Annotated[list[ResultBlock], FAST, left_out("messages[].content[].content[]"), tag("list")],
    choice(text_or_list, "It must be a string or a list of text blocks."),
]


class ToolResultBlock(Block):
    """What the client's tool returned."""

    type: Literal["tool_result"]
    tool_use_id: Text
    content: Result | None = None
    is_error: Flag | None = Field(None, description='Puts "Error: " in front of the content.')
    toolset_name: Text | None = Field(None, description=HAS_NO_EFFECT)


class ThinkingBlock(Fields):
    """What the model thought, sent back. The signature is not looked at."""

    type: Literal["thinking"]
    thinking: Text
    signature: Text = Field("", description=HAS_NO_EFFECT)


class RedactedThinkingBlock(Fields):
    """A thought that cannot be read; it is left out of the prompt."""

    type: Literal["redacted_thinking"]
    data: Text = Field(description=HAS_NO_EFFECT)


class CompactionBlock(Block):
    """What a conversation said so far, in short. The model reads it as its own text."""

    type: Literal["compaction"]
    content: Text | None = None

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.content or ""


Texts = Annotated[
    Annotated[Text, tag("text")] | Annotated[list[TextBlock], FAST, tag("list")],
    choice(text_or_list, "It must be a string or a list of text blocks."),
]

# --- turns ---

BLOCKS = "It must be a string or a list of blocks."
_CHANGES = frozenset({"tool_addition", "tool_removal"})
_OF_USER = _CHANGES | {"text", "tool_result"}
_OF_ASSISTANT = frozenset({"text", "tool_use", "thinking", "redacted_thinking", "compaction"})
_OF_SYSTEM = _CHANGES | {"text"}
_KNOWN = MEDIA | _OF_USER | _OF_ASSISTANT
"""Of any role. In a turn of another role they are a mistake, and not left out."""
LEFT_OUT = left_out("messages[].content[]")
OtherBlock = Annotated[Json, others(*_KNOWN)]

UserBlock = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolResultBlock, tag("tool_result")]
    | Annotated[ToolAdditionBlock, tag("tool_addition")]
    | Annotated[ToolRemovalBlock, tag("tool_removal")]
    | Annotated[OtherBlock, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, _OF_USER, _KNOWN),
        "A user's blocks may be of the types text and tool_result; images, documents and search "
        "results are not supported.",
    ),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolUseBlock, tag("tool_use")]
    | Annotated[ThinkingBlock, tag("thinking")]
    | Annotated[RedactedThinkingBlock, tag("redacted_thinking")]
    | Annotated[CompactionBlock, tag("compaction")]
    | Annotated[OtherBlock, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, _OF_ASSISTANT, _KNOWN),
        "An assistant's blocks may be of the types text, tool_use, thinking, redacted_thinking and "
        "compaction; tools that a server runs are not supported.",
    ),
]
SystemBlock = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolAdditionBlock, tag("tool_addition")]
    | Annotated[ToolRemovalBlock, tag("tool_removal")]
    | Annotated[OtherBlock, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, _OF_SYSTEM, _KNOWN),
        "A system message's blocks may be of the types text, tool_addition and tool_removal.",
    ),
]


class UserTurn(Fields):
    """What the user said, and what tools returned."""

    role: Literal["user"]
    content: Annotated[
        Annotated[Text, tag("text")]
        | Annotated[list[UserBlock], Field(min_length=1), FAST, LEFT_OUT, tag("list")],
        choice(text_or_list, BLOCKS),
    ]


class AssistantTurn(Fields):
    """What the model said."""

    role: Literal["assistant"]
    content: Annotated[
        Annotated[Text, tag("text")] | Annotated[list[AssistantBlock], FAST, LEFT_OUT, tag("list")],
        choice(text_or_list, BLOCKS),
    ]


class SystemTurn(Fields):
    """An instruction in the middle of the conversation, or other tools from there on."""

    role: Literal["system"]
    content: Annotated[
        Annotated[Text, tag("text")] | Annotated[list[SystemBlock], FAST, LEFT_OUT, tag("list")],
        choice(text_or_list, BLOCKS),
    ]


def _role_of(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return role if isinstance(role, str) else None


Turn = Annotated[
    Annotated[UserTurn, tag("user")]
    | Annotated[AssistantTurn, tag("assistant")]
    | Annotated[SystemTurn, tag("system")],
    choice(_role_of, 'It must be an object whose role is "user", "assistant" or "system".'),
]


def changes_in(turns: list[Any]) -> Iterator[Change]:
    """The changes of tools, in their order."""
    for turn in turns:
        if not isinstance(turn.content, str):
            yield from (it for it in turn.content if isinstance(it, Change))


# --- the same conversation in OpenAI's words ---

BETWEEN_TURNS = "\n\n"
"""Between two messages of one role in a row, which become one."""
JOINED = {"content", "reasoning_content"}
"""Fields of a message that are made of pieces."""


def chat_messages(system: str | list[TextBlock] | None, turns: list[Any]) -> list[Json]:
    """The messages of the chat completion; none if all was left out.

    Texts are lists of their pieces until all are there, and joined once: adding each to what came
    before would copy a conversation of 4,096 turns as often."""
    messages: list[Json] = []
    earlier = EarlierCalls("messages[].content[].input")
    if system is not None:
        messages.append({"role": "system", "content": [_text(system)]})
    for turn in turns:
        match turn:
            case UserTurn():
                _append_user(messages, turn)
            case AssistantTurn():
                _append_assistant(messages, turn, earlier)
            case SystemTurn():
                _append_system(messages, turn)
    earlier.tell()
    for told in messages:
        for field in JOINED & told.keys():
            told[field] = "".join(told[field])
    return messages


def _append_system(messages: list[Json], turn: SystemTurn) -> None:
    """Nothing if it only changes tools."""
    text = _text(turn.content)
    if text or isinstance(turn.content, str):
        messages.append({"role": "system", "content": [text]})


def _append_user(messages: list[Json], turn: UserTurn) -> None:
    """Results first: they answer the calls of the message before."""
    blocks = [] if isinstance(turn.content, str) else turn.content
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            said = ["Error: "] if block.is_error else []
            said.append(_text(block.content or ""))
            messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": said})
    texts = [turn.content] if isinstance(turn.content, str) else _texts(blocks)
    if texts:
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += [BETWEEN_TURNS, *texts]
        else:
            messages.append({"role": "user", "content": texts})


def _append_assistant(messages: list[Json], turn: AssistantTurn, earlier: EarlierCalls) -> None:
    blocks = [] if isinstance(turn.content, str) else turn.content
    texts = [turn.content] if isinstance(turn.content, str) else _texts(blocks)
    texts = [text for text in texts if text]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    if messages and messages[-1]["role"] == "assistant":
        message = messages[-1]
        if message["content"] and texts:
            message["content"].append(BETWEEN_TURNS)
        message["content"] += texts
    else:
        message = {"role": "assistant", "content": texts}
        messages.append(message)
    if any(thoughts):
        message.setdefault("reasoning_content", []).extend(thoughts)
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            given = earlier.none() if block.input is None else json.dumps(block.input)
            function = {"name": block.name, "arguments": given}
            call = {"id": block.id, "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(call)


def _text(content: str | list[Any]) -> str:
    return content if isinstance(content, str) else "".join(_texts(content))


def _texts(blocks: list[Any]) -> list[str]:
    """What the blocks say that are text."""
    told = (TextBlock, ToolReferenceBlock, CompactionBlock)
    return [block.text for block in blocks if isinstance(block, told)]
