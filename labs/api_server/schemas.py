"""What a request may hold. Types are checked here, ranges by SamplingParams, lengths by the engine.

A parameter that is accepted is honoured. One that is not supported is refused by name, unless it
asks for what happens anyway (`suffix: null`): clients and routers send such defaults without being
asked to. `shared.py` has what both kinds of request share, `conversation.py` what a conversation is made
of, `demands.py` what an answer must be. Given.
"""

from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_CHOICES,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_TOOLS,
    Flag,
    Integer,
    Nothing,
    PromptToken,
    Text,
    bounded,
    or_say,
    ranged,
)
from yaie.core.ranges import RANGES

from .conversation import Message, Prompting
from .demands import (
    ResponseFormat,
    Tool,
    ToolChoice,
    callable_among,
    check_choice,
    tool_constraint,
)
from .shared import Shared

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""


class ChatRequest(Prompting, Shared):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES), FAST]
    max_completion_tokens: Integer | None = bounded("max_tokens")
    logprobs: Flag | None = None
    top_logprobs: Integer | None = bounded("logprobs")
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS), FAST] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Flag | None = Field(None, description="False: one call at most.")
    separate_reasoning: Flag | None = Field(None, description="False: it stays in the content.")
    stream_reasoning: Flag | None = Field(None, description="False: it is streamed in one piece.")
    include_reasoning: Flag | None = Field(None, description="False: it is left out.")
    safety_identifier: str | None = Field(None, description="A label; has no effect.")
    prompt_cache_key: str | None = Field(None, description="A hint; every prefix is cached.")
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = Field(
        None, description="A hint; prefixes are kept as long as there is room."
    )
    store: Flag | None = Field(None, description="Has no effect: nothing is stored.")
    # Not supported: only what happens anyway.
    functions: Nothing | None = Field(None, description="Not supported; use tools.")
    function_call: Literal["none", "auto"] | None = None
    modalities: Annotated[list[Literal["text"]], FAST] | None = None
    service_tier: Literal["auto", "default"] | None = Field(
        None, description="Has no effect: there is one."
    )
    web_search_options: Annotated[
        None, or_say("This server cannot search the web; give the model a tool that does.")
    ] = None

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatRequest":
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            message = "max_tokens and max_completion_tokens differ; give one of them."
            raise InvalidRequestError(message, param="max_completion_tokens")
        return self

    @model_validator(mode="after")
    def _alternatives_need_logprobs(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            message = "top_logprobs may only be given together with logprobs: true."
            raise InvalidRequestError(message, param="top_logprobs")
        if self.logprob_token_ids and self.top_logprobs not in (
            None, 0, len(self.logprob_token_ids),
        ):  # fmt: skip
            message = "logprob_token_ids takes the place of top_logprobs; leave that out."
            raise InvalidRequestError(message, param="top_logprobs")
        return self

    @model_validator(mode="after")
    def _schema_belongs_to_its_type(self) -> "ChatRequest":
        wanted = self.response_format
        if wanted and (wanted.type == "json_schema") != (wanted.json_schema is not None):
            message = "response_format.json_schema belongs to the type json_schema, which needs it."
            raise InvalidRequestError(message, param="response_format.json_schema")
        return self

    @model_validator(mode="after")
    def _choice_is_among_the_tools(self) -> "ChatRequest":
        if self.tools or self.tool_choice is not None:
            check_choice(self.tools or [], self.tool_choice)
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def may_call_tools(self) -> bool:
        """Whether calls are looked for in the answer."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def callable_functions(self) -> dict[str, dict[str, Any]]:
        """The functions that may be called, each with the schema of its arguments."""
        functions = callable_among(self.tools or [], self.tool_choice)
        return {function.name: function.schema_of_arguments for function in functions}

    @property
    def prompt_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the model is told about, as chat templates expect them."""
        tools = self.tools if self.may_call_tools else None
        return [tool.for_template() for tool in tools] if tools else None

    def _beyond_text(self) -> dict[str, Any]:
        form = self.response_format
        constraint = None if form is None else form.constraint
        if self.may_call_tools:
            several = self.parallel_tool_calls is not False
            constraint = tool_constraint(
                self.tools or [], self.tool_choice, constraint, may_be_several=several
            )
        return {
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
            "constraint": constraint,
        }


Tokens = Annotated[list[PromptToken], FAST]
Prompt = Annotated[
    Text
    | Annotated[list[Text], Field(max_length=MAX_PROMPTS), FAST]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=MAX_PROMPTS), FAST],
    or_say(
        f"It must be a string, token ids, or a list of at most {MAX_PROMPTS} strings or of lists of "
        f"token ids. An id is {RANGES['token'].told}."
    ),
]


class CompletionRequest(Shared):
    """The body of `POST /v1/completions`."""

    prompt: Prompt
    max_tokens: Integer | None = ranged("max_tokens", "0 only with echo.", minimum=0)
    add_special_tokens: Flag | None = Field(
        None, description="Extension. False: no BOS and the like in front of a prompt in text."
    )
    echo: Flag | None = Field(None, description="The prompt comes back in front of the text.")
    logprobs: Integer | None = ranged("logprobs")
    # Not supported: only what happens anyway.
    suffix: None = None
    best_of: Integer | None = bounded("n", "Not supported unless it is n.")

    @model_validator(mode="after")
    def _best_of_is_n(self) -> "CompletionRequest":
        if self.best_of not in (None, self.n or 1):
            raise InvalidRequestError("best_of is not supported unless it is n.", param="best_of")
        return self

    @property
    def token_limit(self) -> int | None:
        if self.is_only_echo:
            return 1  # the engine generates at least one; `yaie.server.extras` hides it
        return COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def is_only_echo(self) -> bool:
        """Whether nothing but the prompt is wanted, for its log-probabilities as a rule."""
        return bool(self.echo) and self.max_tokens == 0

    def _beyond_text(self) -> dict[str, Any]:
        of_prompt = self.prompt_logprobs
        if of_prompt is None and self.echo:
            of_prompt = self.logprobs
        special = self.add_special_tokens
        return {
            "logprobs": self.logprobs,
            "prompt_logprobs": of_prompt,
            "add_special_tokens": special,
        }

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or many. Raises InvalidRequestError if there is none, or too many choices."""
        if self.prompt == []:
            raise InvalidRequestError("prompt: It must not be empty.", param="prompt")
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        prompts = cast("list[str | list[int]]", [self.prompt] if is_one else self.prompt)
        if len(prompts) * (self.n or 1) > MAX_CHOICES:
            message = (
                f"n times the prompts is more than {MAX_CHOICES}, which one request may ask for."
            )
            raise InvalidRequestError(message, param="n")
        return prompts
