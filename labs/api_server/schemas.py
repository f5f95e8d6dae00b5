"""What a request may hold. Types are checked here, ranges by SamplingParams, lengths by the engine.

A parameter that is accepted is honoured. One that is not supported is refused by name, unless it
asks for what happens anyway (`suffix: null`): clients and routers send such defaults without being
asked to. `completion.py` has the other kind of request, `shared.py` what both share, `conversation.py`
what a conversation is made of, `demands.py` what an answer must be. Given.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_MESSAGES,
    MAX_TOOLS,
    Flag,
    Integer,
    Nothing,
    bounded,
    or_say,
)

from .completion import CompletionRequest as CompletionRequest
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
