"""What a conversation is made of, and how it becomes a prompt. Given."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    Fields,
    Flag,
    JsonObject,
    Nothing,
    Text,
    or_say,
    wrong,
)
from yaie.core.params import ROLES, PromptOptions

from .calls import ToolCall

# --- what was said ---

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


SHOWN = ("role", "content", "name", "tool_call_id", "reasoning_content")
"""Fields of a message that chat templates know."""


class Message(Fields):
    """One turn. Roles and parts are checked by `LLMEngine.encode_chat`, which knows them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_CONTENT_OR_CALLS)

    role: Text = Field(json_schema_extra={"enum": list(ROLES)})
    content: Annotated[
        Text | Annotated[list[Part], FAST] | None,
        or_say("It must be a string or a list of text parts."),
    ] = Field(None, description="May be null only beside tool_calls.")
    name: Text | None = None
    tool_calls: Annotated[list[ToolCall], FAST] | None = None
    tool_call_id: Text | None = Field(None, description="Which call a tool's message answers.")
    # What a client sends back when it repeats an answer of ours.
    refusal: None = None
    annotations: Nothing | None = None
    audio: None = None
    function_call: None = None
    reasoning_content: Text | None = Field(
        None, description="What an earlier answer thought; some templates show it to the model."
    )

    def for_template(self) -> dict[str, Any]:
        """Without the fields that no template knows, and without nulls."""
        # Not by `model_dump`, which takes ten times as long: there may be 4,096 messages.
        message = {name: value for name in SHOWN if (value := getattr(self, name)) is not None}
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        return message


# --- how it becomes a prompt ---

NO_VARIABLES = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "conversations",
    "documents", "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
"""What transformers takes for itself when it renders a template."""


def _are_variables(variables: dict[str, Any]) -> dict[str, Any]:
    if taken := sorted(NO_VARIABLES & variables.keys()):
        raise wrong(f"{taken[0]!r} cannot be set here; it is no variable that a template is given.")
    return variables


class Prompting(Fields):
    """What a request says of its prompt beside the messages."""

    add_generation_prompt: Flag | None = Field(
        None, description="Extension. False: the prompt ends behind the last message."
    )
    continue_final_message: Flag | None = Field(
        None,
        description="Extension. The answer goes on with the last message; needs "
        "add_generation_prompt: false.",
    )
    add_special_tokens: Flag | None = Field(
        None, description="Extension. A BOS and the like in front of what the template writes."
    )
    chat_template_kwargs: Annotated[JsonObject, AfterValidator(_are_variables)] | None = Field(
        None, description="Extension. Variables for the chat template."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        Field(
            None,
            description="A variable for the chat template; none sets enable_thinking to false too.",
        )
    )
    verbosity: Literal["low", "medium", "high"] | None = Field(
        None, description="A variable for the chat template."
    )

    @model_validator(mode="after")
    def _ends_in_one_way(self) -> "Prompting":
        if self.continue_final_message and self.add_generation_prompt is not False:
            raise InvalidRequestError(
                "continue_final_message needs add_generation_prompt: false, since a prompt ends either "
                "inside the last message or where a new one begins.",
                param="continue_final_message",
            )
        return self

    @property
    def prompt_options(self) -> PromptOptions:
        """For `ModelService.encode_chat`."""
        variables: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
        if self.reasoning_effort == "none":
            variables["enable_thinking"] = False
        if self.verbosity is not None:
            variables["verbosity"] = self.verbosity
        return PromptOptions(
            add_generation_prompt=self.add_generation_prompt is not False,
            continue_final_message=bool(self.continue_final_message),
            add_special_tokens=bool(self.add_special_tokens),
            variables=variables | (self.chat_template_kwargs or {}),
        )
