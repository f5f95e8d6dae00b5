"""What `POST /v1/responses` takes, and how a chat completion is asked so.

Types and ranges are checked here, lengths by the engine.

As with chat completions, what is accepted is honoured, and what is not supported is refused by name.
The server keeps nothing between two calls, so all that would need a memory is refused.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_MESSAGES,
    MAX_TOOLS,
    Always,
    Fields,
    Flag,
    Integer,
    JsonObject,
    Label,
    Labels,
    Never,
    Nothing,
    Number,
    Text,
    bounded,
    or_say,
    ranged,
)
from yaie.server.discriminated import Conversation, choice, kind_of, tag, text_or_list

Json = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]
Id = Annotated[Text | None, Field(description="As an earlier answer gave it; has no effect.")]
MAX_INSTRUCTIONS = 1 << 20
"""Characters. Three events of a stream repeat them."""
STATELESS = "This server keeps no responses; send the whole conversation as input."


class TextPart(Fields):
    """A text that a client wrote."""

    type: Literal["input_text"]
    text: Text


class OutputTextPart(Fields):
    """A text that a model wrote, sent back."""

    type: Literal["output_text"]
    text: Text
    annotations: Nothing | None = None
    logprobs: Annotated[list[dict[str, Any]], FAST] | None = None


class RefusalPart(Fields):
    """A refusal that a model wrote, sent back."""

    type: Literal["refusal"]
    refusal: Text


Part = Annotated[
    Annotated[TextPart, tag("input_text")]
    | Annotated[OutputTextPart, tag("output_text")]
    | Annotated[RefusalPart, tag("refusal")],
    choice(kind_of, "Only parts of the types input_text, output_text and refusal are supported."),
]
Content = Annotated[
    Annotated[Text, tag("text")] | Annotated[list[Part], FAST, tag("list")],
    choice(text_or_list, "It must be a string or a list of text parts."),
]


class InputMessage(Fields):
    """One turn of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Id = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Fields):
    """A call that the model made, sent back."""

    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: Annotated[Text, Field(description="The arguments, as JSON.")]
    id: Id = None
    status: Status | None = None
    # What the openai client writes when it dumps a call.
    namespace: None = None
    caller: None = None
    async_: None = None


class FunctionOutputItem(Fields):
    """What the client's function returned."""

    type: Literal["function_call_output"]
    call_id: Text
    output: Content
    id: Id = None
    status: Status | None = None


class ReasoningPart(Fields):
    """A piece of what a model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: Text


class ReasoningItem(Fields):
    """What the model thought before the item that follows, sent back."""

    type: Literal["reasoning"]
    id: Id = None
    summary: Annotated[list[ReasoningPart], FAST] | None = Field(None, description="Has no effect.")
    content: Annotated[list[ReasoningPart], FAST] | None = None
    encrypted_content: None = None
    status: Status | None = None


InputItem = Annotated[
    Annotated[InputMessage, tag("message")]
    | Annotated[FunctionCallItem, tag("function_call")]
    | Annotated[FunctionOutputItem, tag("function_call_output")]
    | Annotated[ReasoningItem, tag("reasoning")],
    choice(
        lambda item: "message" if _is_untyped(item) else kind_of(item),
        "Only items of the types message, function_call, function_call_output and reasoning are "
        "supported.",
    ),
]


def _is_untyped(item: Any) -> bool:
    return isinstance(item, dict) and "type" not in item


class FunctionTool(Fields):
    """A function that the model may ask the client to call."""

    type: Literal["function"]
    name: Annotated[Text, Field(pattern="^[a-zA-Z0-9_.:/-]+$", max_length=128)]
    description: Text | None = None
    parameters: JsonObject | None = Field(None, description="A JSON schema of the arguments.")
    strict: Flag | None = None


class NamedFunctionTool(Fields):
    """Call this function."""

    type: Literal["function"]
    name: Text


class AllowedFunctionTools(Fields):
    """Call these functions at most, though the model is told about all."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunctionTool], Field(min_length=1, max_length=MAX_TOOLS), FAST]


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], tag("mode")]
    | Annotated[NamedFunctionTool, tag("function")]
    | Annotated[AllowedFunctionTools, tag("allowed_tools")],
    choice(
        lambda value: "mode" if isinstance(value, str) else kind_of(value),
        "It must be none, auto, required, a function by name, or allowed_tools.",
    ),
]


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


Included = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class ResponsesRequest(Conversation):
    """The body of `POST /v1/responses`."""

    input: Annotated[
        Annotated[Text, tag("text")]
        | Annotated[
            list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES), FAST, tag("list")
        ],
        choice(text_or_list, "It must be a string or a list of items."),
    ]
    model: Text | None = Field(None, description="The served model; may be left out.")
    instructions: Annotated[Text, Field(max_length=MAX_INSTRUCTIONS)] | None = Field(
        None, description="A system message before all input."
    )
    max_output_tokens: Integer | None = bounded("max_tokens")
    temperature: Number | None = ranged("temperature")
    top_p: Number | None = ranged("top_p")
    text: TextConfig | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS), FAST] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Flag | None = None
    top_logprobs: Integer | None = bounded("logprobs")
    include: Annotated[list[Included], FAST] | None = Field(
        None, description="Log-probabilities of the text. Encrypted reasoning: there is none."
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
        chat["messages"] = _messages(self)
        chat["max_completion_tokens"] = self.max_output_tokens
        chat["response_format"] = _response_format(self)
        chat["verbosity"] = self.text and self.text.verbosity
        chat["reasoning_effort"] = self.reasoning and self.reasoning.effort
        if self.tools:
            chat["tools"] = [_tool(tool) for tool in self.tools]
            chat["parallel_tool_calls"] = self.parallel_tool_calls
        if self.tool_choice is not None:
            chat["tool_choice"] = _tool_choice(self.tool_choice)
        if self.wants_logprobs:
            chat["logprobs"], chat["top_logprobs"] = True, self.top_logprobs or 0
        return {name: value for name, value in chat.items() if value is not None}

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
        self.input = []

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer tells how likely its tokens were."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or [])


# --- the same conversation in older words ---

Item = InputMessage | FunctionCallItem | FunctionOutputItem | ReasoningItem
Parts = str | Sequence[TextPart | OutputTextPart | RefusalPart]

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


def _messages(body: ResponsesRequest) -> list[Json]:
    messages: list[Json] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    else:
        thought: str | None = None  # goes with the turn that follows
        for item in body.input:
            if isinstance(item, ReasoningItem):
                thought = "".join(part.text for part in item.content or ()) or None
                continue
            num_before = len(messages)
            _append(messages, item)
            if len(messages) > num_before and messages[-1]["role"] == "assistant" and thought:
                messages[-1]["reasoning_content"] = thought
            thought = None
    return messages


def _append(messages: list[Json], item: Item) -> None:
    match item:
        case InputMessage():
            messages.append({"role": item.role, "content": _text(item.content)})
        case FunctionOutputItem():
            output = {"tool_call_id": item.call_id, "content": _text(item.output)}
            messages.append({"role": "tool", **output})
        case FunctionCallItem():
            # Calls of one turn, and the words before them, are one message there.
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)


def _text(content: Parts) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.refusal if isinstance(part, RefusalPart) else part.text for part in content)


def _response_format(body: ResponsesRequest) -> Json | None:
    wanted = body.text.format if body.text else None
    if not isinstance(wanted, JsonSchemaFormat):
        return None if wanted is None else wanted.model_dump()
    schema = wanted.model_dump(exclude={"type"}, exclude_none=True)
    return {"type": "json_schema", "json_schema": schema}


def _tool(tool: FunctionTool) -> Json:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def _tool_choice(choice: str | NamedFunctionTool | AllowedFunctionTools) -> str | Json:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, AllowedFunctionTools):
        allowed = {"mode": choice.mode, "tools": [_tool_choice(tool) for tool in choice.tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return {"type": "function", "function": {"name": choice.name}}
