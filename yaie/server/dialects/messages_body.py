"""What `POST /v1/messages` and `/v1/messages/count_tokens` take, and how a chat completion is asked so.

As with chat completions, what changes the answer is honoured or refused by name; declarations and a
history are taken as they are (`messages_tools.py`, `messages_turns.py`). Lengths are checked by the
engine.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_MESSAGES,
    Fields,
    Flag,
    InRange,
    Integer,
    JsonObject,
    Number,
    StopList,
    Text,
    bounded,
    or_say,
    ranged,
    wrong,
)
from yaie.core.ranges import RANGES
from yaie.server.dialects.leniency import without_effect
from yaie.server.dialects.messages_tools import (
    CacheControl,
    MessageToolChoice,
    Tools,
    chat_tool,
    chat_tool_choice,
    offered,
)
from yaie.server.dialects.messages_turns import (
    AssistantTurn,
    Texts,
    Turn,
    changes_in,
    chat_messages,
)
from yaie.server.discriminated import Conversation, kind_of
from yaie.server.lenient.beside import SOFT_BUDGET
from yaie.server.lenient.notes import ignored, put_beside, refuses
from yaie.server.work import check_work

Json = dict[str, Any]

# --- how it is to be answered ---


class Thinking(Fields):
    """Whether a model that can think before it answers does so."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Integer | None = bounded(
        "budget_tokens", "Of a thought, at most, if the model thinks."
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


CLEARS_THINKING = "clear_thinking_20251015"
"""What chat templates do anyway."""
MAX_EDITS = 64


def _told(edits: list[Json]) -> list[Json]:
    for kind in dict.fromkeys(map(kind_of, edits)):
        if kind != CLEARS_THINKING:
            if refuses():
                raise wrong(f"Only the type {CLEARS_THINKING} is supported.")
            ignored("context_management.edits[]" + (f".{kind}" if kind else ""))
    return edits


class ContextManagement(Fields):
    """What to leave out of a long conversation."""

    edits: (
        Annotated[list[Json], Field(max_length=MAX_EDITS), FAST, AfterValidator(_told)] | None
    ) = Field(
        None, description="Has no effect: earlier thoughts are left out anyway, and all else stays."
    )


class TokenCountRequest(Conversation):
    """The body of `POST /v1/messages/count_tokens`."""

    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES), FAST]
    model: Text | None = Field(None, description="The served model; may be left out.")
    system: Texts | None = None
    tools: Tools | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = Field(None, description="Has no effect.")
    context_management: ContextManagement | None = Field(None, description="Has no effect.")
    # Only what happens anyway.
    speed: Literal["standard"] | None = None

    def chat_fields(self) -> Json:
        """See Conversation."""
        messages = chat_messages(self.system, self.messages)
        if not messages:
            raise InvalidRequestError(
                "messages: Nothing is left without blocks of types that are not supported.",
                param="messages",
            )
        chat: Json = {"messages": messages, "response_format": _response_format(self)}
        chat |= _reasoning(self)
        if isinstance(self.messages[-1], AssistantTurn):
            chat |= _prefill(messages[-1])
        changes = list(changes_in(self.messages))
        tools = offered(self.tools or [], changes)
        if tools:
            chat["tools"] = [chat_tool(tool) for tool in tools]
        if changes:
            check_work({"tools": chat.get("tools")})  # which has seen only those at the top so far
        if self.tool_choice is not None:
            chat["tool_choice"] = chat_tool_choice(self.tool_choice)
            if tools and self.tool_choice.disable_parallel_tool_use:
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
    container: Annotated[
        Text | Json | None,
        or_say("It must be a string or an object."),
        without_effect("container"),
    ] = Field(None, description="Has no effect: this server runs no code.")
    mcp_servers: Annotated[list[Any] | None, without_effect("mcp_servers")] = Field(
        None, description="Has no effect: this server calls no others."
    )
    # Only what happens anyway.
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


def _response_format(body: TokenCountRequest) -> Json | None:
    wanted = body.output_config and body.output_config.format
    if not wanted:
        return None
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": wanted.schema_}}


def _reasoning(body: TokenCountRequest) -> Json:
    fields: Json = {}
    if body.thinking and body.thinking.type in ("enabled", "disabled"):
        fields["chat_template_kwargs"] = {"enable_thinking": body.thinking.type == "enabled"}
    if body.thinking and body.thinking.type == "enabled" and body.thinking.budget_tokens:
        put_beside(SOFT_BUDGET, body.thinking.budget_tokens)
    if body.output_config:
        fields["reasoning_effort"] = body.output_config.effort
    return fields


def _prefill(last: Json) -> Json:
    """A last turn of the assistant is the beginning of the answer, which goes on from there."""
    if "tool_calls" in last or not last["content"]:
        raise InvalidRequestError(
            "messages: A last message of the assistant must be a text, which the answer continues; the "
            "results of tools belong into a user's message behind it.",
            param="messages",
        )
    return {"add_generation_prompt": False, "continue_final_message": True}
