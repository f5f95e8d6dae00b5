"""What a request may hold. Types are checked here, ranges by SamplingParams, lengths by the engine.

A parameter that is accepted is honoured. One that is not supported is refused by name, unless it
asks for what happens anyway (`logprobs: false`): clients send such defaults without being asked to.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams

T = TypeVar("T")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "It must not hold half of a surrogate pair, which is not a character."
        raise PydanticCustomError("surrogate", "{message}", {"message": message}) from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Nothing = Annotated[list[Any], Field(max_length=0)]

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""


def _or_say(message: str) -> WrapValidator:
    """One message for a union, instead of a complaint from each of its members."""

    def check(value: Any, handler: Callable[[Any], T]) -> T:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("shape", "{message}", {"message": message}) from None

    return WrapValidator(check)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StreamOptions(_Model):
    include_usage: Flag = False
    include_obfuscation: Literal[False] = False


class _Request(_Model):
    """What both kinds of completion share."""

    model: str | None = Field(None, description="The served model; may be left out.")
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Integer | None = Field(None, description="Extension. 0 or -1 is off.")
    min_p: Number | None = Field(None, description="Extension.")
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = Field(None, description="Extension.")
    max_tokens: Integer | None = None
    stop: Annotated[
        Text | list[Text] | None, _or_say("It must be a string or a list of strings.")
    ] = None
    stop_token_ids: list[Integer] | None = Field(None, description="Extension.")
    ignore_eos: Flag | None = Field(None, description="Extension.")
    seed: Integer | None = None
    n: Integer | None = None
    priority: Integer | None = Field(None, description="Extension. Smaller goes first.")
    user: str | None = Field(None, description="A label; has no effect.")
    metadata: dict[str, str] | None = Field(None, description="Labels; have no effect.")
    # Not supported yet: only what happens anyway.
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _usage_needs_a_stream(self) -> "_Request":
        if self.stream_options is not None and not self.stream:
            message = "stream_options may only be given together with stream: true."
            raise InvalidRequestError(message, param="stream_options")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling_params(self, defaults: dict[str, Any]) -> SamplingParams:
        """Raises InvalidRequestError. A parameter that is null counts as absent.

        defaults: for absent ones, where they differ from those of SamplingParams, which are OpenAI's.
        """
        given = {item.name: getattr(self, item.name) for item in fields(SamplingParams)}
        given["max_tokens"] = self.token_limit
        present = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(**(defaults | present))

    @property
    def token_limit(self) -> int | None:
        """Tokens to generate at most, under whichever name it was given."""
        return self.max_tokens


class Message(_Model):
    """One turn. Roles and parts are checked by `LLMEngine.encode_chat`, which knows them."""

    role: Text
    content: Annotated[
        Text | list[dict[str, Any]], _or_say("It must be a string or a list of text parts.")
    ]
    name: Text | None = None
    # What a client sends back when it repeats an answer of ours.
    refusal: None = None
    annotations: Nothing | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Nothing | None = None

    def for_template(self) -> dict[str, Any]:
        """Without the fields that no template knows, and without nulls."""
        return self.model_dump(include={"role", "content", "name"}, exclude_none=True)


class ResponseFormat(_Model):
    type: Literal["text"]


class ChatRequest(_Request):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[Integer, Field(ge=1)] | None = None
    safety_identifier: str | None = Field(None, description="A label; has no effect.")
    prompt_cache_key: str | None = Field(None, description="A hint; every prefix is cached.")
    # Not supported yet: only what happens anyway.
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: Flag | None = Field(None, description="Has no effect without tools.")
    functions: Nothing | None = None
    function_call: Literal["none", "auto"] | None = None
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatRequest":
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            message = "max_tokens and max_completion_tokens differ; give one of them."
            raise InvalidRequestError(message, param="max_completion_tokens")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(_Request):
    """The body of `POST /v1/completions`."""

    prompt: Annotated[
        Text | list[Text] | list[Integer] | list[list[Integer]],
        _or_say("It must be a string, a list of strings, token ids, or lists of token ids."),
    ]
    # Not supported yet: only what happens anyway.
    echo: Literal[False] | None = None
    suffix: None = None
    logprobs: None = None
    best_of: Integer | None = None

    @model_validator(mode="after")
    def _best_of_is_n(self) -> "CompletionRequest":
        if self.best_of not in (None, self.n or 1):
            raise InvalidRequestError("best_of is not supported unless it is n.", param="best_of")
        return self

    @property
    def token_limit(self) -> int | None:
        return COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or many. Raises InvalidRequestError if there is none."""
        if self.prompt == []:
            raise InvalidRequestError("prompt: It must not be empty.", param="prompt")
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return cast("list[str | list[int]]", [self.prompt] if is_one else self.prompt)
