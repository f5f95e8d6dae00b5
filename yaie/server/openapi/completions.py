"""What `/v1/models` and both kinds of completion answer, and what every failure is answered with.

The answers themselves are plain dicts, made by the part in use; nothing here is in their way. A field
with a default is one that is left out where it does not apply.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """An object of which every key is known."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ErrorDetail(Answer):
    """What was wrong, and what to do about it."""

    message: str
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = Field(description="The parameter at fault.", examples=["messages[0].role"])
    code: str | None = Field(examples=["context_length_exceeded"])


class Error(Answer):
    """What every failure is answered with."""

    error: ErrorDetail


class ModelCard(Answer):
    """The served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int = Field(description="The longest sequence, prompt and output together.")


class ModelList(Answer):
    """All served models: the one."""

    object: Literal["list"]
    data: list[ModelCard]


class PromptTokensDetails(Answer):
    """Where the prompt's tokens came from."""

    cached_tokens: int = Field(ge=0)


class CompletionTokensDetails(Answer):
    """What the answer's tokens were for. Only models that reason have it."""

    reasoning_tokens: int = Field(ge=0, description="Before the content, the tags included.")


class Usage(Answer):
    """Token counts of one call."""

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = None


class TopLogprob(Answer):
    """A token, and how likely it was."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    """The token that was drawn, and the likeliest ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    """One entry for each token of the answer."""

    content: list[TokenLogprob] | None
    refusal: None = None


class CalledFunction(Answer):
    """A function's name, and its arguments as JSON."""

    name: str
    arguments: str


class MadeCall(Answer):
    """A call that the model asks for."""

    id: str
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None


class AssistantMessage(Answer):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = Field(None, description="What the model thought before.")
    reasoning: str | None = Field(None, description="The same, as vLLM calls it.")
    tool_calls: list[MadeCall] | None = None


class PromptLogprob(Answer):
    """How likely a token was in its place. rank: 1 is the most likely one."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[str, PromptLogprob] | None] | None
"""Of each token of a prompt, by token id: its own, then the likeliest ones."""
TokenIds = list[int] | None
StopReason = str | int | None
ChatFinish = Literal["stop", "length", "tool_calls"] | None


class ChatChoice(Answer):
    """One answer of the `n`."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish
    stop_reason: StopReason = Field(description="The stop string or token that ended it.")
    token_ids: TokenIds = None


class ChatCompletion(Answer):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: TokenIds = None
    prompt_logprobs: PromptLogprobs = None


class PieceOfCall(Answer):
    """A piece of a call; the first one of a call has its id and its function's name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: dict[str, str | None] = {}


class Delta(Answer):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[PieceOfCall] | None = None


class ChunkChoice(Answer):
    """A piece of one answer. Only its last one has a reason."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish
    stop_reason: StopReason = None
    token_ids: TokenIds = None


class ChatCompletionChunk(Answer):
    """An event of a stream. The one with the usage, if asked for, comes last and has no choices."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: TokenIds = None


class TextLogprobs(Answer):
    """Four lists with one entry for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(Answer):
    """One continuation, or a piece of it."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    stop_reason: StopReason = None
    token_ids: TokenIds = None
    prompt_token_ids: TokenIds = None
    prompt_logprobs: PromptLogprobs = None


class Completion(Answer):
    """A whole answer, or an event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = None
