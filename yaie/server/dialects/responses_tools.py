"""What a response may be asked to call, and what the model knows it by.

A chat template knows functions with names in one list. So a function in a namespace gets a name with the
namespace in front, and a custom tool, whose input is a text, becomes a function with one argument. The
answer names both as the client did.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import FAST, MAX_TOOLS, Fields, Flag, Text, wrong
from yaie.server.dialects.arguments import ArgumentsSchema
from yaie.server.dialects.custom_input import INPUT
from yaie.server.dialects.leniency import OTHER, Placed, kind_or_other, left_out, others
from yaie.server.discriminated import choice, kind_of, tag
from yaie.server.tools.text_grammars import TextGrammar

Json = dict[str, Any]

SEPARATOR = "__"
MAX_NAME = 128
MAX_NAMESPACE = 1024
ToolName = Annotated[Text, Field(pattern="^[a-zA-Z0-9_.:/-]+$", max_length=MAX_NAME)]
_NO_NAME = re.compile(r"[^a-zA-Z0-9_.:/-]")
_DIGEST_CHARS = 8

# --- what is declared ---


class FunctionTool(Placed):
    """A function that the model may ask the client to call."""

    type: Literal["function"]
    name: ToolName
    description: Text | None = None
    parameters: ArgumentsSchema | None = Field(None, description="A JSON schema of the arguments.")
    strict: Flag | None = None


class TextInput(Fields):
    """Any text."""

    type: Literal["text"]


class GrammarInput(Fields):
    """A text that belongs to a grammar."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: Text = Field(
        description="In Lark as llguidance takes it, without directives but imports of common; or a "
        "regular expression in Rust's syntax for the whole text."
    )


InputFormat = Annotated[
    Annotated[TextInput, tag("text")] | Annotated[GrammarInput, tag("grammar")],
    choice(kind_of, "Only the types text and grammar are supported."),
]


class CustomTool(Placed):
    """A tool whose input is a text. The model knows it as a function with the argument `input`."""

    type: Literal["custom"]
    name: ToolName
    description: Text | None = None
    format: InputFormat | None = Field(
        None, description="The model sees a grammar, and its calls follow it."
    )


_MEMBERS = frozenset({"function", "custom"})
_TOOLS = _MEMBERS | {"namespace"}
OtherMember = Annotated[Json, others(*_MEMBERS)]
OtherTool = Annotated[Json, others(*_TOOLS)]
Member = Annotated[
    Annotated[FunctionTool, tag("function")]
    | Annotated[CustomTool, tag("custom")]
    | Annotated[OtherMember, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, _MEMBERS),
        "Only tools of the types function and custom are supported in a namespace.",
    ),
]


class NamespaceTool(Placed):
    """Tools with a name in common."""

    type: Literal["namespace"]
    name: Annotated[Text, Field(min_length=1, max_length=MAX_NAMESPACE)]
    description: Text = Field("", description="The model is told it before the first tool's.")
    tools: Annotated[
        list[Member], Field(max_length=MAX_TOOLS), FAST, left_out("tools[].tools[]")
    ] = Field(description="Each counts as one of the request's tools.")


Tool = Annotated[
    Annotated[FunctionTool, tag("function")]
    | Annotated[CustomTool, tag("custom")]
    | Annotated[NamespaceTool, tag("namespace")]
    | Annotated[OtherTool, tag(OTHER)],
    choice(
        lambda value: kind_or_other(value, _TOOLS),
        "Only tools of the types function, custom and namespace are supported.",
    ),
]
Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS), FAST, left_out("tools[]")]
AnyTool = FunctionTool | CustomTool | NamespaceTool | Json
"""Json: none is left once a body is validated."""

# --- what is chosen ---


class NamedResponseTool(Fields):
    """Call this tool."""

    type: Literal["function", "custom"]
    name: Text
    namespace: Text | None = Field(
        None, description="Of the tool. Without one, the name must be of one tool alone."
    )


class AllowedResponseTools(Fields):
    """Call these tools at most, though the model is told about all."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedResponseTool], Field(min_length=1, max_length=MAX_TOOLS), FAST]


def _cannot_be_used(value: Json) -> Json:
    kind = str(value["type"])[:64]
    raise wrong(f"This server runs no tools of its own: it cannot be made to use {kind!r}.")


_CHOICES = frozenset({"function", "custom", "allowed_tools"})
OtherChoice = Annotated[Json, AfterValidator(_cannot_be_used), others(*_CHOICES)]
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], tag("mode")]
    | Annotated[NamedResponseTool, tag("named")]
    | Annotated[AllowedResponseTools, tag("allowed_tools")]
    | Annotated[OtherChoice, tag(OTHER)],
    choice(
        lambda value: _kind_of_choice(value),
        "It must be none, auto, required, a function or a custom tool by name, or allowed_tools.",
    ),
]


def _kind_of_choice(value: Any) -> str | None:
    if isinstance(value, str):
        return "mode"
    kind = kind_of(value)
    if kind in ("function", "custom"):
        return "named"
    return kind if kind is None or kind in _CHOICES else OTHER


# --- what the model knows ---


@dataclass(frozen=True, slots=True)
class Callee:
    """A tool as the client knows it."""

    name: str
    namespace: str | None
    is_custom: bool


def flat_name(namespace: str | None, name: str) -> str:
    """What the model knows a tool by: one in a namespace is NAMESPACE__NAME, as Codex writes it where it
    tells a model about its tools; a namespace that ends so gets no second separator. A name that is
    too long then, or has other characters, is cut, and a digest of it is put behind: the same in every
    turn."""
    if not namespace:
        return name
    joined = f"{namespace}{'' if namespace.endswith(SEPARATOR) else SEPARATOR}{name}"
    if len(joined) <= MAX_NAME and not _NO_NAME.search(joined):
        return joined
    kept = _NO_NAME.sub("_", joined[: MAX_NAME - _DIGEST_CHARS - 1])
    return f"{kept}_{sha256(joined.encode()).hexdigest()[:_DIGEST_CHARS]}"


def callees(tools: Iterable[AnyTool]) -> dict[str, Callee]:
    """The tools by what the model knows them by."""
    return {
        flat_name(namespace, tool.name): Callee(
            tool.name, namespace, is_custom=isinstance(tool, CustomTool)
        )
        for namespace, tool, *_ in _flattened(tools)
    }


def chat_tools(tools: Iterable[AnyTool]) -> list[Json]:
    """The tools of the chat completion. Raises InvalidRequestError if there are too many."""
    functions = []
    for namespace, tool, preface, _ in _flattened(tools):
        said = [preface, tool.description or ""]
        if isinstance(tool, CustomTool):
            said.append(_explained(tool.format))
        function: Json = {"name": flat_name(namespace, tool.name), **_arguments(tool)}
        if description := "\n\n".join(filter(None, said)):
            function["description"] = description
        functions.append({"type": "function", "function": function})
    if len(functions) > MAX_TOOLS:
        message = (
            f"tools: At most {MAX_TOOLS} are supported; with those in namespaces there are "
            f"{len(functions)}."
        )
        raise InvalidRequestError(message, param="tools")
    return functions


def text_grammars(tools: Iterable[AnyTool], field: str) -> dict[str, TextGrammar]:
    """What the inputs of custom tools must be, by what the model knows these by. field: where the tools
    are declared."""
    return {
        flat_name(namespace, tool.name): TextGrammar(
            INPUT,
            tool.format.syntax,
            tool.format.definition,
            f"{field}{place}.format.definition",
        )
        for namespace, tool, _, place in _flattened(tools)
        if isinstance(tool, CustomTool) and isinstance(tool.format, GrammarInput)
    }


def chat_tool_choice(wanted: Any, known: Mapping[str, Callee]) -> str | Json:
    """`tool_choice` of the chat completion. wanted: a ToolChoice."""
    if isinstance(wanted, NamedResponseTool):
        return {"type": "function", "function": {"name": _known_name(wanted, known)}}
    if isinstance(wanted, AllowedResponseTools):
        tools = [chat_tool_choice(tool, known) for tool in wanted.tools]
        return {"type": "allowed_tools", "allowed_tools": {"mode": wanted.mode, "tools": tools}}
    return str(wanted)


class _Flat(NamedTuple):
    """A tool by itself. preface: comes before its description. place: follows the name of the field that
    declares the tools."""

    namespace: str | None
    tool: FunctionTool | CustomTool
    preface: str
    place: str


def _flattened(tools: Iterable[AnyTool]) -> Iterator[_Flat]:
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            preface = tool.description
            for member in tool.tools:
                if not isinstance(member, dict):
                    place = f"[{tool.place}].tools[{member.place}]"
                    yield _Flat(tool.name, member, preface, place)
                    preface = ""
        elif not isinstance(tool, dict):
            yield _Flat(None, tool, "", f"[{tool.place}]")


def _known_name(wanted: NamedResponseTool, known: Mapping[str, Callee]) -> str:
    name = flat_name(wanted.namespace, wanted.name)
    if name not in known and wanted.namespace is None:
        meant = [flat for flat, callee in known.items() if callee.name == name]
        return meant[0] if len(meant) == 1 else name
    return name


def _arguments(tool: FunctionTool | CustomTool) -> Json:
    if isinstance(tool, FunctionTool):
        return tool.model_dump(include={"parameters", "strict"}, exclude_none=True)
    schema = {
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    # Without `strict` a call that is not required might have any arguments.
    is_strict = {"strict": True} if isinstance(tool.format, GrammarInput) else {}
    return {"parameters": schema, **is_strict}


def _explained(wanted: TextInput | GrammarInput | None) -> str:
    told = f"The argument `{INPUT}` is the whole input of this tool, as plain text."
    if not isinstance(wanted, GrammarInput):
        return told
    form = "this Lark grammar" if wanted.syntax == "lark" else "this regular expression"
    return f"{told} It must follow {form}:\n{wanted.definition}"
