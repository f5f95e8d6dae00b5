"""What a request may demand of its answer: calls of functions, or a form. Given."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import FAST, MAX_TOOLS, Fields, JsonObject, Text, or_say, wrong
from yaie.core.params import Constraint

FunctionName = Annotated[
    Text, Field(pattern=r"^[a-zA-Z0-9_.:/-]+$", max_length=128, description="Of a function.")
]
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a function whose parameters are left out: it has none, as OpenAI says."""


# --- what may be called ---


def _describes_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise wrong('Its type must be "object": arguments have names.')
    return schema


class Function(Fields):
    name: FunctionName
    description: Text | None = None
    parameters: Annotated[JsonObject, AfterValidator(_describes_an_object)] | None = Field(
        None, description="A JSON schema; without it the function has no parameters."
    )
    strict: Annotated[bool, Field(strict=True)] | None = Field(
        None, description="Calls of it follow its parameters, whatever the model would like to say."
    )

    @property
    def schema_of_arguments(self) -> dict[str, Any]:
        """The parameters; a schema without a type is taken for one of objects."""
        return NO_PARAMETERS if self.parameters is None else {"type": "object", **self.parameters}


class Tool(Fields):
    type: Literal["function"]
    function: Function

    def for_template(self) -> dict[str, Any]:
        """As transformers' own `get_json_schema` describes a function: templates rely on each key."""
        function = {
            "name": self.function.name,
            "description": self.function.description or "",
            "parameters": self.function.schema_of_arguments,
        }
        return {"type": "function", "function": function}


class NamedFunction(Fields):
    name: Text


class NamedTool(Fields):
    """A `tool_choice` of one function."""

    type: Literal["function"]
    function: NamedFunction


class AllowedFunctions(Fields):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=MAX_TOOLS), FAST]


class AllowedTools(Fields):
    """A `tool_choice` of some functions: the model is told about all, and may call these."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedFunctions


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool | AllowedTools,
    or_say(
        'It must be "none", "auto", "required", {"type": "function", "function": {"name": ...}} or '
        '{"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}.'
    ),
]


def demands_a_call(choice: Any) -> bool:
    """Whether nothing but calls will do. choice: a ToolChoice, or None if it was not given."""
    if isinstance(choice, AllowedTools):
        return choice.allowed_tools.mode == "required"
    return choice not in (None, "none", "auto")


def named_in(choice: Any) -> list[str] | None:
    """The functions that a `tool_choice` names; None if any may be called."""
    if isinstance(choice, NamedTool):
        return [choice.function.name]
    if isinstance(choice, AllowedTools):
        return [tool.function.name for tool in choice.allowed_tools.tools]
    return None


def check_choice(tools: list[Tool], choice: Any) -> None:
    """Raises InvalidRequestError if two tools have one name, or a `tool_choice` names none of them."""
    names = [tool.function.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidRequestError(f"tools has {twice[0]!r} twice.", param="tools")
    if not names and choice not in (None, "none", "auto"):
        raise InvalidRequestError("tool_choice demands a tool, but tools has none.",
                                  param="tool_choice")  # fmt: skip
    for name in named_in(choice) or ():
        if name not in names:
            message = f"tool_choice demands {name!r}, which is not among the tools."
            raise InvalidRequestError(message, param="tool_choice")


def callable_among(tools: list[Tool], choice: Any) -> list[Function]:
    """The functions that may be called."""
    named = named_in(choice)
    return [tool.function for tool in tools if named is None or tool.function.name in named]


def tool_constraint(
    tools: list[Tool], choice: Any, answer: Constraint | None, *, may_be_several: bool
) -> Constraint | None:
    """What the engine makes sure of; None where the model may say what it likes. answer: the form of one
    that calls nothing. See `yaie.server.tools.ToolDemand`."""
    functions, is_required = callable_among(tools, choice), demands_a_call(choice)
    is_some = len(functions) < len(tools)
    must_be_one = not may_be_several or isinstance(choice, NamedTool)
    is_strict = any(function.strict for function in functions)
    if not (is_required or must_be_one or is_strict or is_some or answer):
        return None
    demand = {
        "functions": {
            it.name: it.schema_of_arguments if is_required or it.strict else {"type": "object"}
            for it in functions
        },
        "is_required": is_required,
        "may_be_several": not must_be_one,
        "answer": answer and json.loads(answer.text or '{"type": "object"}'),
    }
    return Constraint("tools", json.dumps(demand))


# --- what the answer must look like ---


class JsonSchema(Fields):
    """`strict` makes no difference: the answer always follows the schema."""

    name: Text
    schema_: JsonObject = Field(alias="schema")
    description: Text | None = None
    strict: Annotated[bool, Field(strict=True)] | None = None


class ResponseFormat(Fields):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @property
    def constraint(self) -> Constraint | None:
        """What the engine makes sure of."""
        if self.json_schema is not None:
            return Constraint("json_schema", json.dumps(self.json_schema.schema_))
        return Constraint("json_object") if self.type == "json_object" else None
