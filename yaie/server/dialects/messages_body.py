"""What `POST /v1/messages` and `/v1/messages/count_tokens` take, and how a chat completion is asked so.

As with chat completions, what is accepted is honoured, and what is not supported is refused by name.
Lengths are checked by the engine.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_MESSAGES,
    MAX_TOOLS,
    Fields,
    Flag,
    InRange,
    Integer,
    JsonObject,
    Never,
    Nothing,
    Number,
    StopList,
    Text,
    bounded,
    or_say,
    ranged,
)
from yaie.core.ranges import RANGES
from yaie.server.discriminated import Conversation, choice, kind_of, tag, text_or_list

Json = dict[str, Any]

# --- what was said ---


class CacheControl(Fields):
    """A hint. Every prefix is cached, and for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Block(Fields):
    """What every block may carry."""

    cache_control: CacheControl | None = Field(None, description="Has no effect.")


class TextBlock(Block):
    """A text."""

    type: Literal["text"]
    text: Text
    citations: Nothing | None = None


class DirectCaller(Fields):
    """The model itself."""

    type: Literal["direct"]


class ToolUseBlock(Block):
    """A call that the model made, sent back."""

    type: Literal["tool_use"]
    id: Text
    name: Text
    input: JsonObject
    caller: DirectCaller | None = None
    toolset_name: None = None


Texts = Annotated[
    Annotated[Text, tag("text")] | Annotated[list[TextBlock], FAST, tag("list")],
    choice(text_or_list, "It must be a string or a list of text blocks."),
]


class ToolResultBlock(Block):
    """What the client's tool returned."""

    type: Literal["tool_result"]
    tool_use_id: Text
    content: Texts | None = None
    is_error: Flag | None = Field(None, description='Puts "Error: " in front of the content.')
    toolset_name: None = None


class ThinkingBlock(Fields):
    """What the model thought, sent back. The signature is not looked at."""

    type: Literal["thinking"]
    thinking: Text
    signature: Text = ""


class RedactedThinkingBlock(Fields):
    """A thought that cannot be read; it is left out of the prompt."""

    type: Literal["redacted_thinking"]
    data: Text


UserBlock = Annotated[
    Annotated[TextBlock, tag("text")] | Annotated[ToolResultBlock, tag("tool_result")],
    choice(
        kind_of,
        "A user's blocks may be of the types text and tool_result; images, documents and search "
        "results are not supported.",
    ),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, tag("text")]
    | Annotated[ToolUseBlock, tag("tool_use")]
    | Annotated[ThinkingBlock, tag("thinking")]
    | Annotated[RedactedThinkingBlock, tag("redacted_thinking")],
    choice(
        kind_of,
        "An assistant's blocks may be of the types text, tool_use, thinking and redacted_thinking; "
        "tools that a server runs are not supported.",
    ),
]
BLOCKS = "It must be a string or a list of blocks."


class UserTurn(Fields):
    """What the user said, and what tools returned."""

    role: Literal["user"]
    content: Annotated[
        Annotated[Text, tag("text")]
        | Annotated[list[UserBlock], Field(min_length=1), FAST, tag("list")],
        choice(text_or_list, BLOCKS),
    ]


class AssistantTurn(Fields):
    """What the model said."""

    role: Literal["assistant"]
    content: Annotated[
        Annotated[Text, tag("text")] | Annotated[list[AssistantBlock], FAST, tag("list")],
        choice(text_or_list, BLOCKS),
    ]


class SystemTurn(Fields):
    """An instruction in the middle of the conversation."""

    role: Literal["system"]
    content: Texts


def _role_of(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return role if isinstance(role, str) else None


InputMessage = Annotated[
    Annotated[UserTurn, tag("user")]
    | Annotated[AssistantTurn, tag("assistant")]
    | Annotated[SystemTurn, tag("system")],
    choice(_role_of, 'It must be an object whose role is "user", "assistant" or "system".'),
]

# --- what may be called ---


class ClientTool(Block):
    """A tool that the model may ask the client to use."""

    type: Literal["custom"] | None = None
    name: Annotated[Text, Field(pattern="^[a-zA-Z0-9_.:/-]+$", max_length=128)]
    description: Text | None = None
    input_schema: Annotated[JsonObject, Field(description="A JSON schema of an object.")]
    strict: Flag | None = Field(None, description="The input follows the schema in any case.")
    eager_input_streaming: Flag | None = Field(
        None, description="Has no effect: the input is streamed as it is made."
    )
    # Only what happens anyway.
    allowed_callers: Annotated[list[Literal["direct"]], FAST] | None = None
    defer_loading: Never | None = None
    input_examples: Nothing | None = None


class AnyChoice(Fields):
    """Whether the model must use a tool, may, or may not."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: Flag | None = None


class NamedChoice(Fields):
    """The model must use this tool."""

    type: Literal["tool"]
    name: Text
    disable_parallel_tool_use: Flag | None = None


MessageToolChoice = Annotated[
    Annotated[AnyChoice, tag("any")] | Annotated[NamedChoice, tag("tool")],
    choice(
        lambda value: "tool" if kind_of(value) == "tool" else kind_of(value) and "any",
        "It must be an object whose type is auto, any, tool or none.",
    ),
]

# --- how it is to be answered ---


class Thinking(Fields):
    """Whether a model that can think before it answers does so."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Integer | None = bounded(
        "budget_tokens", "Has no effect: `max_tokens` alone limits a thought."
    )
    display: Literal["summarized", "omitted"] | None = Field(
        None, description="omitted: the thought is not shown. A summary is the thought itself."
    )


class OutputFormat(Fields):
    """JSON that a schema describes."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    schema_: Annotated[JsonObject, Field(alias="schema")]


class OutputConfig(Fields):
    """What the answer must look like."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="A variable for the chat template."
    )
    format: OutputFormat | None = None


class Metadata(Fields):
    user_id: Text | None = Field(None, description="A label; has no effect.")


class ContextEdit(Fields):
    """Leave out earlier thoughts, which chat templates do anyway."""

    type: Literal["clear_thinking_20251015"]
    keep: Any = None


class ContextManagement(Fields):
    """What to leave out of a long conversation."""

    edits: Annotated[list[ContextEdit], FAST] | None = None


class TokenCountRequest(Conversation):
    """The body of `POST /v1/messages/count_tokens`."""

    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MAX_MESSAGES), FAST]
    model: Text | None = Field(None, description="The served model; may be left out.")
    system: Texts | None = None
    tools: Annotated[list[ClientTool], Field(max_length=MAX_TOOLS), FAST] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = Field(None, description="Has no effect.")
    context_management: ContextManagement | None = Field(None, description="Has no effect.")
    # Only what happens anyway.
    speed: Literal["standard"] | None = None

    def chat_fields(self) -> Json:
        """See Conversation."""
        chat: Json = {"messages": _messages(self), "response_format": _response_format(self)}
        chat |= {**_reasoning(self), **_prefill(chat["messages"][-1])}
        if self.tools:
            chat["tools"] = [_tool(tool) for tool in self.tools]
        if self.tool_choice is not None:
            chat["tool_choice"] = _tool_choice(self.tool_choice)
            if self.tools and self.tool_choice.disable_parallel_tool_use:
                chat["parallel_tool_calls"] = False
        return {name: value for name, value in chat.items() if value is not None}

    def in_our_words(self, error: InvalidRequestError) -> InvalidRequestError:
        """See Conversation."""
        if isinstance(error, ContextLengthError):
            # Clients that shorten a conversation by themselves look for these words.
            error.message = f"prompt is too long: {error.message}"
            return error
        param = error.param or ""
        if param.startswith(("messages", "prompt")):
            # Not one message is one message: what tools returned are messages of their own there.
            message, (_, dot, field) = (
                error.message.removeprefix(f"{param}: "),
                param.rpartition("."),
            )
            error.message = f"messages: {field}: {message}" if dot else f"messages: {message}"
            return error
        for theirs, ours in RENAMED:
            error.message, param = error.message.replace(theirs, ours), param.replace(theirs, ours)
        if param not in error.message:  # Anthropic's errors have no other place for it
            error.message = f"{param}: {error.message}"
        return error

    def _forget(self) -> None:
        self.messages, self.system = [], None


class MessagesRequest(TokenCountRequest):
    """The body of `POST /v1/messages`."""

    max_tokens: Annotated[
        Integer,
        InRange(RANGES["max_tokens"]),
        Field(description="May be more than the context leaves."),
    ]
    stop_sequences: StopList | None = None
    temperature: Number | None = ranged("temperature")
    top_p: Number | None = ranged("top_p")
    top_k: Integer | None = ranged("top_k", "0 or -1 is off.")
    stream: Flag | None = None
    metadata: Metadata | None = Field(None, description="Labels; have no effect.")
    service_tier: Literal["auto", "standard_only"] | None = Field(
        None, description="Has no effect: there is one."
    )
    min_p: Number | None = ranged("min_p", "Extension.")
    presence_penalty: Number | None = ranged("presence_penalty", "Extension.")
    frequency_penalty: Number | None = ranged("frequency_penalty", "Extension.")
    repetition_penalty: Number | None = ranged("repetition_penalty", "Extension.")
    seed: Integer | None = ranged("seed", "Extension.")
    ignore_eos: Flag | None = Field(None, description="Extension.")
    priority: Integer | None = bounded("priority", "Extension. Smaller goes first.")
    # Only what happens anyway.
    container: Annotated[None, or_say("This server runs no code.")] = None
    mcp_servers: Nothing | None = None
    inference_geo: Annotated[None, or_say("The answer is made here; leave it out.")] = None
    diagnostics: None = None

    def chat_fields(self) -> Json:
        """See Conversation."""
        chat: Json = {name: getattr(self, name) for name in SAME}
        chat |= {"max_completion_tokens": self.max_tokens, "stop": self.stop_sequences}
        own = {name: value for name, value in chat.items() if value is not None}
        return super().chat_fields() | own


# --- the same conversation in OpenAI's words ---

SAME = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "ignore_eos", "priority",
)  # fmt: skip
"""Fields that both bodies call the same."""
RENAMED = (
    ("max_completion_tokens", "max_tokens"),
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    (".function.parameters", ".input_schema"),
    (".function.", "."),
)
"""What the body of a chat completion calls otherwise."""
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
BETWEEN_TURNS = "\n\n"
"""Between two messages of one role in a row, which become one."""
JOINED = {"content", "reasoning_content"}
"""Fields of a message that are made of pieces."""


def _messages(body: TokenCountRequest) -> list[Json]:
    """Texts are lists of their pieces until all are there, and joined once: adding each to what came
    before would copy a conversation of 4,096 turns as often."""
    messages: list[Json] = []
    if body.system is not None:
        messages.append({"role": "system", "content": [_text(body.system)]})
    for message in body.messages:
        match message:
            case UserTurn():
                _append_user(messages, message)
            case AssistantTurn():
                _append_assistant(messages, message)
            case SystemTurn():
                messages.append({"role": "system", "content": [_text(message.content)]})
    for told in messages:
        for field in JOINED & told.keys():
            told[field] = "".join(told[field])
    return messages


def _append_user(messages: list[Json], message: UserTurn) -> None:
    """Results first: they answer the calls of the message before."""
    blocks = [] if isinstance(message.content, str) else message.content
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            said = ["Error: "] if block.is_error else []
            said.append(_text(block.content or ""))
            messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": said})
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if texts or not blocks:
        texts = [message.content] if isinstance(message.content, str) else texts
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += [BETWEEN_TURNS, *texts]
        else:
            messages.append({"role": "user", "content": texts})


def _append_assistant(messages: list[Json], message: AssistantTurn) -> None:
    blocks = [] if isinstance(message.content, str) else message.content
    texts = [message.content] if isinstance(message.content, str) else []
    texts += [block.text for block in blocks if isinstance(block, TextBlock)]
    texts = [text for text in texts if text]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    if messages and messages[-1]["role"] == "assistant":
        turn = messages[-1]
        if turn["content"] and texts:
            turn["content"].append(BETWEEN_TURNS)
        turn["content"] += texts
    else:
        turn = {"role": "assistant", "content": texts}
        messages.append(turn)
    if thoughts:
        turn.setdefault("reasoning_content", []).extend(thoughts)
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            call = {"id": block.id, "type": "function", "function": function}
            turn.setdefault("tool_calls", []).append(call)


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _response_format(body: TokenCountRequest) -> Json | None:
    wanted = body.output_config and body.output_config.format
    if not wanted:
        return None
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": wanted.schema_}}


def _reasoning(body: TokenCountRequest) -> Json:
    fields: Json = {}
    if body.thinking and body.thinking.type in ("enabled", "disabled"):
        fields["chat_template_kwargs"] = {"enable_thinking": body.thinking.type == "enabled"}
    if body.output_config:
        fields["reasoning_effort"] = body.output_config.effort
    return fields


def _prefill(last: Json) -> Json:
    """A last message of the assistant is the beginning of the answer, which goes on from there."""
    if last["role"] != "assistant":
        return {}
    if "tool_calls" in last or not last["content"]:
        raise InvalidRequestError(
            "messages: A last message of the assistant must be a text, which the answer continues; the "
            "results of tools belong into a user's message behind it.",
            param="messages",
        )
    return {"add_generation_prompt": False, "continue_final_message": True}


def _tool(tool: ClientTool) -> Json:
    function = tool.model_dump(include={"name", "description", "strict"}, exclude_none=True)
    return {"type": "function", "function": {**function, "parameters": tool.input_schema}}


def _tool_choice(choice: MessageToolChoice) -> str | Json:
    if isinstance(choice, NamedChoice):
        return {"type": "function", "function": {"name": choice.name}}
    return CHOICES[choice.type]
