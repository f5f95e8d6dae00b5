"""What `POST /v1/messages` answers, whole and in events, as models."""

from typing import Any, Literal

from pydantic import Field

from yaie.server.openapi.completions import Answer


class AnthropicErrorDetail(Answer):
    """What was wrong, and what to do about it."""

    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "timeout_error",
        "api_error",
        "overloaded_error",
    ]
    message: str


class AnthropicError(Answer):
    """What every failure of these paths is answered with; in a stream, the last event."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None


class SaidText(Answer):
    """What the model said."""

    type: Literal["text"]
    text: str


class SaidThinking(Answer):
    """What the model thought."""

    type: Literal["thinking"]
    thinking: str
    signature: Literal[""] = Field(description="Nothing is signed.")


class ToolUse(Answer):
    """A tool that the client is asked to use."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ThinkingTokens(Answer):
    """Of the output."""

    thinking_tokens: int = Field(ge=0)


class MessageUsage(Answer):
    """Token counts of one call. The prompt's are the sum of the first three."""

    input_tokens: int = Field(ge=0, description="Of the prompt, those not found in the cache.")
    cache_creation_input_tokens: Literal[0]
    cache_read_input_tokens: int = Field(ge=0, description="Found in the prefix cache.")
    output_tokens: int = Field(ge=0)
    output_tokens_details: ThinkingTokens | None = Field(
        None, description="Of a model that can think."
    )


StopReason = (
    Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]
    | None
)
ContentBlock = SaidText | SaidThinking | ToolUse


class AnthropicMessage(Answer):
    """A message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason
    stop_sequence: str | None = Field(description="Which of the `stop_sequences` ended it.")
    usage: MessageUsage


class MessageStart(Answer):
    """The message before its first block."""

    type: Literal["message_start"]
    message: AnthropicMessage


class BlockStart(Answer):
    """A block begins, empty."""

    type: Literal["content_block_start"]
    index: int
    content_block: ContentBlock


class MoreText(Answer):
    """More text."""

    type: Literal["text_delta"]
    text: str


class MoreThinking(Answer):
    """More of a thought."""

    type: Literal["thinking_delta"]
    thinking: str


class Signature(Answer):
    """The end of a thought."""

    type: Literal["signature_delta"]
    signature: Literal[""]


class MoreInput(Answer):
    """More of a tool's input, as JSON."""

    type: Literal["input_json_delta"]
    partial_json: str


class BlockDelta(Answer):
    """More of a block."""

    type: Literal["content_block_delta"]
    index: int
    delta: MoreText | MoreThinking | Signature | MoreInput


class BlockStop(Answer):
    """A block has ended."""

    type: Literal["content_block_stop"]
    index: int


class Stop(Answer):
    """Why the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Answer):
    """What is known in the end."""

    type: Literal["message_delta"]
    delta: Stop
    usage: MessageUsage


class MessageStop(Answer):
    """There is no more."""

    type: Literal["message_stop"]


EVENTS: tuple[type[Answer], ...] = (
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    AnthropicError,
)
