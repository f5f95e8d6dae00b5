"""What `POST /v1/responses` takes, and how a chat completion is asked so.

Types and ranges are checked here, lengths by the engine.

As with chat completions, what changes the answer is honoured or refused by name; declarations and a
history are taken as they are (`responses_tools.py`, `responses_input.py`). The server keeps nothing
between two calls, so all that would need a memory is refused.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    Always,
    Fields,
    Flag,
    Integer,
    JsonObject,
    Label,
    Labels,
    Never,
    Number,
    Text,
    bounded,
    or_say,
    ranged,
    wrong,
)
from yaie.engine.input.grammars.schema_limits import MOST_CHARS
from yaie.server.dialects.responses_input import Input, MoreToolsItem, chat_messages
from yaie.server.dialects.responses_tools import (
    Callee,
    ToolChoice,
    Tools,
    callees,
    chat_tool_choice,
    chat_tools,
    text_grammars,
)
from yaie.server.discriminated import Conversation, choice, kind_of, tag
from yaie.server.lenient.notes import ignored, put_beside, refuses
from yaie.server.tools.text_grammars import TEXTS
from yaie.server.work import check_work

Json = dict[str, Any]
MAX_INSTRUCTIONS = 1 << 20
"""Characters. Three events of a stream repeat them."""
STATELESS = "This server keeps no responses; send the whole conversation as input."

# --- how it is to be answered ---


class PlainTextFormat(Fields):
    """Whatever the model says."""

    type: Literal["text"]


class JsonObjectFormat(Fields):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(Fields):
    """JSON that a schema describes."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    name: Text
    schema_: Annotated[JsonObject, Field(alias="schema")]
    description: Text | None = None
    strict: Flag | None = None


Format = Annotated[
    Annotated[PlainTextFormat, tag("text")]
    | Annotated[JsonObjectFormat, tag("json_object")]
    | Annotated[JsonSchemaFormat, tag("json_schema")],
    choice(kind_of, "Only the types text, json_object and json_schema are supported."),
]


class TextConfig(Fields):
    """What the text of the answer must look like."""

    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(
        None, description="A variable for the chat template."
    )


class ReasoningConfig(Fields):
    """How much the model is to reason. There is no summary of it."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="A variable for the chat template."
    )
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        None, description="Has no effect: the reasoning comes whole, and without a summary."
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = Field(
        None, description="The older name of summary; has no effect."
    )


class ResponseStreamOptions(Fields):
    include_obfuscation: Never | None = None
    include_usage: Always | None = Field(None, description="The last event has it in any case.")


LOGPROBS = "message.output_text.logprobs"
INCLUDED = frozenset({LOGPROBS, "reasoning.encrypted_content"})
MAX_INCLUDED = 64


def _includable(wanted: list[str]) -> list[str]:
    for name in wanted:
        if name not in INCLUDED:
            if refuses():
                raise wrong(f"It may hold {' and '.join(sorted(INCLUDED))}.")
            ignored(f"include[].{name}")
    return wanted


class ResponsesRequest(Conversation):
    """The body of `POST /v1/responses`."""

    input: Input
    model: Text | None = Field(None, description="The served model; may be left out.")
    instructions: Annotated[Text, Field(max_length=MAX_INSTRUCTIONS)] | None = Field(
        None, description="A system message before all input."
    )
    max_output_tokens: Integer | None = bounded("max_tokens")
    temperature: Number | None = ranged("temperature")
    top_p: Number | None = ranged("top_p")
    text: TextConfig | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Flag | None = None
    top_logprobs: Integer | None = bounded("logprobs")
    include: (
        Annotated[list[Text], Field(max_length=MAX_INCLUDED), FAST, AfterValidator(_includable)]
        | None
    ) = Field(
        None,
        description=f"{LOGPROBS}: log-probabilities of the text. All else has no effect: there is none.",
    )
    stream: Flag | None = None
    stream_options: ResponseStreamOptions | None = None
    metadata: Labels | None = Field(None, description="Labels, repeated in the answer.")
    user: Label | None = Field(None, description="A label, repeated in the answer.")
    safety_identifier: Label | None = Field(None, description="A label, repeated in the answer.")
    prompt_cache_key: Label | None = Field(None, description="A hint; every prefix is cached.")
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = Field(
        None, description="A hint; prefixes are kept as long as there is room."
    )
    top_k: Integer | None = ranged("top_k", "Extension.")
    min_p: Number | None = ranged("min_p", "Extension.")
    presence_penalty: Number | None = ranged("presence_penalty", "Extension.")
    frequency_penalty: Number | None = ranged("frequency_penalty", "Extension.")
    repetition_penalty: Number | None = ranged("repetition_penalty", "Extension.")
    seed: Integer | None = ranged("seed", "Extension.")
    ignore_eos: Flag | None = Field(None, description="Extension.")
    priority: Integer | None = bounded("priority", "Extension. Smaller goes first.")
    # Only what happens anyway.
    store: Flag | None = Field(
        None, description="Nothing is stored, whatever is asked: `store` is false in the answer."
    )
    previous_response_id: Annotated[None, or_say(STATELESS)] = None
    conversation: Annotated[None, or_say(STATELESS)] = None
    prompt: Annotated[None, or_say("This server keeps no prompts; send it as input.")] = None
    background: Annotated[
        Never | None, or_say("This server keeps no responses; wait for the answer.")
    ] = None
    truncation: Annotated[
        Literal["disabled"] | None,
        or_say("Only disabled is supported: shorten the input that does not fit."),
    ] = None
    reasoning: ReasoningConfig | None = None
    max_tool_calls: Annotated[None, or_say("It limits built-in tools, and there is none.")] = None
    service_tier: Literal["auto", "default"] | None = Field(
        None, description="Has no effect: there is one."
    )

    def chat_fields(self) -> Json:
        """See Conversation."""
        chat = {name: getattr(self, name) for name in SAME}
        chat["messages"] = chat_messages(self.instructions, self.input)
        if not chat["messages"]:
            message = "input: Nothing is left without items of types that are not supported."
            raise InvalidRequestError(message, param="input")
        chat["max_completion_tokens"] = self.max_output_tokens
        chat["response_format"] = _response_format(self)
        chat["verbosity"] = self.text and self.text.verbosity
        chat["reasoning_effort"] = self.reasoning and self.reasoning.effort
        if tools := chat_tools(self.all_tools):
            if self._items_with_tools:
                check_work({"tools": tools})  # which has seen only those at the top so far
            chat["tools"] = tools
            self._note_texts()
            chat["parallel_tool_calls"] = self.parallel_tool_calls
        if self.tool_choice is not None:
            chat["tool_choice"] = chat_tool_choice(self.tool_choice, self.callees)
        if self.wants_logprobs:
            chat["logprobs"], chat["top_logprobs"] = True, self.top_logprobs or 0
        return {name: value for name, value in chat.items() if value is not None}

    def _note_texts(self) -> None:
        """The grammars of custom tools, for which a chat completion has no field. Raises
        InvalidRequestError if they are too large."""
        texts = text_grammars(self.tools or (), "tools")
        for item in self._items_with_tools:
            texts |= text_grammars(item.tools, f"input[{item.place}].tools")
        num_chars = 0
        for text in texts.values():
            num_chars += len(text.definition)
            if num_chars > MOST_CHARS:
                raise text.refusal(f"All grammars together may have {MOST_CHARS} characters.")
        if texts:
            put_beside(TEXTS, texts)

    def in_our_words(self, error: InvalidRequestError) -> InvalidRequestError:
        """See Conversation."""
        param = error.param or ""
        if param.startswith(("messages", "prompt")):
            # Not one item is one message: instructions come before, and calls of one turn are joined.
            message, (_, dot, field) = (
                error.message.removeprefix(f"{param}: "),
                param.rpartition("."),
            )
            error.message = f"{field}: {message}" if dot else message
            error.param = "input"
            return error
        for theirs, ours in RENAMED:
            error.message = error.message.replace(theirs, ours)
            error.param = error.param and error.param.replace(theirs, ours)
        return error

    def _forget(self) -> None:
        self.input = self._items_with_tools

    @property
    def _items_with_tools(self) -> list[Any]:
        items = [] if isinstance(self.input, str) else self.input
        return [item for item in items if isinstance(item, MoreToolsItem)]

    @property
    def all_tools(self) -> list[Any]:
        """Those of the request and of its input."""
        more = [tool for item in self._items_with_tools for tool in item.tools]
        return [*(self.tools or ()), *more]

    @property
    def callees(self) -> dict[str, Callee]:
        """What the model may call, by the names that it knows."""
        return callees(self.all_tools)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer tells how likely its tokens were."""
        return bool(self.top_logprobs) or LOGPROBS in (self.include or [])


# --- the same in older words ---

SAME = (
    "model", "temperature", "top_p", "metadata", "user", "safety_identifier", "prompt_cache_key",
    "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed",
    "ignore_eos", "priority",
)  # fmt: skip
"""Fields that both bodies call the same."""
RENAMED = (
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    (".function.", "."),
)
"""What the older body calls otherwise."""


def _response_format(body: ResponsesRequest) -> Json | None:
    wanted = body.text.format if body.text else None
    if not isinstance(wanted, JsonSchemaFormat):
        return None if wanted is None else wanted.model_dump()
    schema = wanted.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}
