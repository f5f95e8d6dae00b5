"""Tools in Anthropic's words: those that a request declares, and changes of them in its messages."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from yaie.core.fields import FAST, MAX_TOOLS, Fields, Flag, Text
from yaie.server.dialects.arguments import ArgumentsSchema
from yaie.server.dialects.leniency import OTHER, kind_or_other, left_out, others, without_effect
from yaie.server.discriminated import choice, kind_of, tag
from yaie.server.lenient.notes import ignored

Json = dict[str, Any]
HAS_NO_EFFECT = "Has no effect."


class CacheControl(Fields):
    """A hint. Every prefix is cached, and for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Block(Fields):
    """What every block and every tool may carry."""

    cache_control: CacheControl | None = Field(None, description=HAS_NO_EFFECT)


class ClientTool(Block):
    """A tool that the model may ask the client to use."""

    type: Literal["custom"] | None = None
    name: Annotated[Text, Field(pattern="^[a-zA-Z0-9_.:/-]+$", max_length=128)]
    description: Text | None = None
    input_schema: Annotated[ArgumentsSchema, Field(description="A JSON schema of an object.")]
    strict: Flag | None = Field(None, description="The input follows the schema in any case.")
    eager_input_streaming: Flag | None = Field(
        None, description="Has no effect: the input is streamed as it is made."
    )
    defer_loading: Annotated[Flag | None, without_effect("tools[].defer_loading")] = Field(
        None, description="Has no effect: the model is told about every tool."
    )
    input_examples: Annotated[list[Any] | None, without_effect("tools[].input_examples")] = Field(
        None, description="Has no effect: chat templates have no place for them."
    )
    # Only what happens anyway.
    allowed_callers: Annotated[list[Literal["direct"]], FAST] | None = None


def _kind_of_tool(value: Any) -> str | None:
    kind = kind_of(value)
    return "client" if kind in (None, "custom") else kind_or_other(value, frozenset())


OtherTool = Annotated[Json, others("custom")]
AnyTool = Annotated[
    Annotated[ClientTool, tag("client")] | Annotated[OtherTool, tag(OTHER)],
    choice(_kind_of_tool, "Only tools of the type custom are supported: this server runs none."),
]
Tools = Annotated[list[AnyTool], Field(max_length=MAX_TOOLS), FAST, left_out("tools[]")]

# --- changes in the middle of a conversation ---


class ToolByName(Fields):
    """A tool that was declared before."""

    type: Literal["tool_reference"]
    name: Text


class ToolByValue(Fields):
    """A tool that is declared here."""

    type: Literal["tool_definition"]
    definition: AnyTool


_FORMS = frozenset({"tool_reference", "tool_definition"})


def _kind_of_form(value: Any) -> str | None:
    kind = kind_of(value)
    return "client" if kind in (None, "custom") else kind_or_other(value, _FORMS)


OtherForm = Annotated[Json, others("custom", *_FORMS)]
ChangedTool = Annotated[
    Annotated[ToolByName, tag("tool_reference")]
    | Annotated[ToolByValue, tag("tool_definition")]
    | Annotated[ClientTool, tag("client")]
    | Annotated[OtherForm, tag(OTHER)],
    choice(_kind_of_form, "It must be a tool, a tool_definition or a tool_reference."),
]


class ToolAdditionBlock(Block):
    """Tools that the model may use besides. It knows them from the beginning of the conversation on."""

    type: Literal["tool_addition"]
    tool: ChangedTool | None = None
    tools: Annotated[list[ChangedTool], Field(max_length=MAX_TOOLS), FAST] | None = None


class ToolRemovalBlock(Block):
    """A tool that the model may use no longer. Earlier calls of it stay."""

    type: Literal["tool_removal"]
    tool: ChangedTool


Change = ToolAdditionBlock | ToolRemovalBlock


def offered(declared: list[Any], changes: Iterable[Change]) -> list[ClientTool]:
    """The tools that the model is told about: those of the request, as later messages changed them."""
    known: dict[str, ClientTool] = {tool.name: tool for tool in declared}
    if len(known) < len(declared):  # which is refused
        return declared
    told = dict(known)
    for change in changes:
        for tool in _named_in(change):
            if isinstance(change, ToolRemovalBlock):
                told.pop(tool.name, None)
            elif isinstance(tool, ClientTool):
                known[tool.name] = told[tool.name] = tool
            elif tool.name in known:
                told.setdefault(tool.name, known[tool.name])
            else:
                ignored("messages[].content[].tool_addition")
    return list(told.values())


def _named_in(change: Change) -> Iterator[ClientTool | ToolByName]:
    tools: list[Any] = [] if change.tool is None else [change.tool]
    if isinstance(change, ToolAdditionBlock):
        tools += change.tools or ()
    for tool in tools:
        if isinstance(tool, ToolByValue):
            tool = tool.definition
        if isinstance(tool, dict):
            ignored(f"messages[].content[].{change.type}.{tool['type']}")
        else:
            yield tool


def chat_tool(tool: ClientTool) -> Json:
    """The tool of the chat completion."""
    function = tool.model_dump(include={"name", "description", "strict"}, exclude_none=True)
    return {"type": "function", "function": {**function, "parameters": tool.input_schema}}


# --- what is chosen ---


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
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_tool_choice(wanted: MessageToolChoice) -> str | Json:
    """`tool_choice` of the chat completion."""
    if isinstance(wanted, NamedChoice):
        return {"type": "function", "function": {"name": wanted.name}}
    return CHOICES[wanted.type]
