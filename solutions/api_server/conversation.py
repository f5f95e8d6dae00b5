"""What a conversation is made of: messages, tools, and the form that the answer must have. Given."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from yaie.core.fields import Fields, JsonObject, Nothing, Text, or_say, wrong
from yaie.core.params import ROLES, Constraint

FunctionName = Annotated[
    Text, Field(pattern=r"^[a-zA-Z0-9_.:/-]+$", max_length=128, description="Of a function.")
]
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a function whose parameters are left out: it has none, as OpenAI says."""


# --- what was said ---


def _is_object(text: str) -> str:
    """Checked here, because chat templates want the object itself."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise wrong("It must be a JSON object, written as a string.")
    return text


class FunctionCall(Fields):
    name: Text
    arguments: Annotated[Text, AfterValidator(_is_object)]


class ToolCall(Fields):
    """A call that an earlier answer made."""

    id: Text
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = Field(None, description="Of a streamed call; has no effect.")

    def for_template(self) -> dict[str, Any]:
        """The arguments as an object, which is what the templates of transformers expect."""
        arguments = json.loads(self.function.arguments)
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


Part = Annotated[
    JsonObject,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            "required": ["type", "text"],
        }
    ),
]


# Nothing may be said only beside a call.
_CONTENT_OR_CALLS: dict[str, Any] = {
    "anyOf": [
        {"properties": {"content": {"type": ["string", "array"]}}, "required": ["content"]},
        {
            "properties": {
                "role": {"const": "assistant"},
                "tool_calls": {"type": "array", "minItems": 1},
            },
            "required": ["tool_calls"],
        },
    ]
}


class Message(Fields):
    """One turn. Roles and parts are checked by `LLMEngine.encode_chat`, which knows them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_CONTENT_OR_CALLS)

    role: Text = Field(json_schema_extra={"enum": list(ROLES)})
    content: Annotated[
        Text | list[Part] | None, or_say("It must be a string or a list of text parts.")
    ] = Field(None, description="May be null only beside tool_calls.")
    name: Text | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = Field(None, description="Which call a tool's message answers.")
    # What a client sends back when it repeats an answer of ours.
    refusal: None = None
    annotations: Nothing | None = None
    audio: None = None
    function_call: None = None

    def for_template(self) -> dict[str, Any]:
        """Without the fields that no template knows, and without nulls."""
        known = {"role", "content", "name", "tool_call_id"}
        message = self.model_dump(include=known, exclude_none=True)
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        return message


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


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool,
    or_say(
        'It must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}.'
    ),
]


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
