"""The body of a response as the body of a chat completion: the same conversation in older words."""

from collections.abc import Sequence
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.server.responses.schemas import (
    AllowedFunctionTools,
    FunctionCallItem,
    FunctionOutputItem,
    FunctionTool,
    InputMessage,
    JsonSchemaFormat,
    NamedFunctionTool,
    OutputTextPart,
    ReasoningItem,
    RefusalPart,
    ResponsesRequest,
    TextPart,
)

Json = dict[str, Any]
InputItem = InputMessage | FunctionCallItem | FunctionOutputItem | ReasoningItem
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


def chat_body(body: ResponsesRequest) -> Json:
    """What `POST /v1/chat/completions` would be sent for the same answer. Holds no None."""
    chat = {name: getattr(body, name) for name in SAME}
    chat["messages"] = _messages(body)
    chat["max_completion_tokens"] = body.max_output_tokens
    chat["response_format"] = _response_format(body)
    chat["verbosity"] = body.text and body.text.verbosity
    chat["reasoning_effort"] = body.reasoning and body.reasoning.effort
    if body.tools:
        chat["tools"] = [_tool(tool) for tool in body.tools]
        chat["parallel_tool_calls"] = body.parallel_tool_calls
    if body.tool_choice is not None:
        chat["tool_choice"] = _tool_choice(body.tool_choice)
    if body.wants_logprobs:
        chat["logprobs"], chat["top_logprobs"] = True, body.top_logprobs or 0
    return {name: value for name, value in chat.items() if value is not None}


def in_our_words(error: InvalidRequestError) -> InvalidRequestError:
    """A complaint about the chat body as one about the field that the client did send."""
    param = error.param or ""
    if param.startswith(("messages", "prompt")):
        # Not one item is one message: instructions come before, and calls of one turn are joined.
        message, (_, dot, field) = error.message.removeprefix(f"{param}: "), param.rpartition(".")
        error.message = f"{field}: {message}" if dot else message
        error.param = "input"
        return error
    for theirs, ours in RENAMED:
        error.message = error.message.replace(theirs, ours)
        error.param = error.param and error.param.replace(theirs, ours)
    return error


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


def _append(messages: list[Json], item: InputItem) -> None:
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
