"""What `POST /v1/responses` answers, whole and in events, as models."""

from typing import Any, Literal

from pydantic import Field

from yaie.server.openapi.completions import Answer, TokenLogprob

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(Answer):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] = Field(max_length=0)
    logprobs: list[TokenLogprob]


class OutputMessage(Answer):
    """What the model said."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Status
    content: list[OutputText]


class OutputCall(Answer):
    """A function that the client is asked to call."""

    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = Field(None, description="Of the function, if it was declared in one.")
    arguments: str
    status: Status


class OutputCustomCall(Answer):
    """A custom tool that the client is asked to call."""

    id: str
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = Field(None, description="Of the tool, if it was declared in one.")
    input: str
    status: Status


class ReasoningText(Answer):
    """The text of reasoning."""

    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(Answer):
    """What the model thought before it answered. There is no summary of it."""

    id: str
    type: Literal["reasoning"]
    summary: list[Any] = Field(max_length=0)
    content: list[ReasoningText]
    status: Status


OutputItem = OutputMessage | OutputCall | OutputCustomCall | OutputReasoning


class ResponseError(Answer):
    """Why a response failed after its stream had begun."""

    code: Literal["server_error", "invalid_prompt"]
    message: str


class IncompleteDetails(Answer):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class InputTokensDetails(Answer):
    """Where the input's tokens came from. Nothing is written to a cache on request."""

    cached_tokens: int = Field(ge=0)
    cache_write_tokens: Literal[0]


class OutputTokensDetails(Answer):
    """What the output's tokens were for."""

    reasoning_tokens: int = Field(ge=0)


class ResponseUsage(Answer):
    """Token counts of one call."""

    input_tokens: int = Field(ge=0)
    input_tokens_details: InputTokensDetails
    output_tokens: int = Field(ge=0)
    output_tokens_details: OutputTokensDetails
    total_tokens: int = Field(ge=0)


class Response(Answer):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    temperature: float
    top_p: float
    top_logprobs: int
    max_output_tokens: int | None
    text: dict[str, Any]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    background: Literal[False]
    previous_response_id: None
    reasoning: dict[str, str | None]
    service_tier: Literal["default"]
    store: Literal[False]
    truncation: Literal["disabled"]


class Event(Answer):
    """What every event has. Numbers begin at 0 and leave none out."""

    sequence_number: int = Field(ge=0)


class ResponseEvent(Event):
    """The response as it is now."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response


class ItemEvent(Event):
    """An item begins or has ended."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class PartEvent(Event):
    """The one part of a message or of reasoning begins or has ended."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    part: OutputText | ReasoningText


class TextDelta(Event):
    """More text."""

    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    delta: str
    logprobs: list[TokenLogprob]


class TextDone(Event):
    """All the text."""

    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    text: str
    logprobs: list[TokenLogprob]


class ReasoningDelta(Event):
    """More reasoning."""

    type: Literal["response.reasoning_text.delta"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    delta: str


class ReasoningDone(Event):
    """All the reasoning."""

    type: Literal["response.reasoning_text.done"]
    item_id: str
    output_index: int
    content_index: Literal[0]
    text: str


class ArgumentsDelta(Event):
    """More of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"]
    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Event):
    """All of a call's arguments."""

    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: int
    name: str
    arguments: str


class InputDelta(Event):
    """More of a custom tool's input."""

    type: Literal["response.custom_tool_call_input.delta"]
    item_id: str
    output_index: int
    delta: str


class InputDone(Event):
    """All of a custom tool's input."""

    type: Literal["response.custom_tool_call_input.done"]
    item_id: str
    output_index: int
    input: str


class ErrorEvent(Event):
    """What went wrong."""

    type: Literal["error"]
    message: str
    param: str | None
    code: str | None


EVENTS: tuple[type[Event], ...] = (
    ResponseEvent,
    ItemEvent,
    PartEvent,
    TextDelta,
    TextDone,
    ReasoningDelta,
    ReasoningDone,
    ArgumentsDelta,
    ArgumentsDone,
    InputDelta,
    InputDone,
    ErrorEvent,
)
