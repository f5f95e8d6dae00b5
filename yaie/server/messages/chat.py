"""The body of a message as the body of a chat completion: the same conversation in OpenAI's words."""

import json
from typing import Any

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.server.messages.schemas import (
    AssistantTurn,
    ClientTool,
    MessagesRequest,
    MessageToolChoice,
    NamedChoice,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    TokenCountRequest,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)

Json = dict[str, Any]

SAME = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "ignore_eos", "priority",
)  # fmt: skip
"""Fields that both bodies call the same."""
RENAMED = (
    ("max_completion_tokens", "max_tokens"),
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    (".function.parameters", ".input_schema"),
    (".function.", "."),
)
"""What the other body calls otherwise."""
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
BETWEEN_TURNS = "\n\n"
"""Between two messages of one role in a row, which become one."""
JOINED = {"content", "reasoning_content"}
"""Fields of a message that are made of pieces."""


def chat_body(body: TokenCountRequest) -> Json:
    """What `POST /v1/chat/completions` would be sent for the same answer. Holds no None.

    Raises InvalidRequestError.
    """
    chat: Json = {"messages": _messages(body), "response_format": _response_format(body)}
    chat |= {**_reasoning(body), **_prefill(chat["messages"][-1])}
    if body.tools:
        chat["tools"] = [_tool(tool) for tool in body.tools]
    if body.tool_choice is not None:
        chat["tool_choice"] = _tool_choice(body.tool_choice)
        if body.tools and body.tool_choice.disable_parallel_tool_use:
            chat["parallel_tool_calls"] = False
    if isinstance(body, MessagesRequest):
        chat |= {name: getattr(body, name) for name in SAME}
        chat |= {"max_completion_tokens": body.max_tokens, "stop": body.stop_sequences}
    return {name: value for name, value in chat.items() if value is not None}


def in_our_words(error: InvalidRequestError) -> InvalidRequestError:
    """A complaint about the chat body as one about the field that the client did send."""
    if isinstance(error, ContextLengthError):
        # Clients that shorten a conversation by themselves look for these words.
        error.message = f"prompt is too long: {error.message}"
        return error
    param = error.param or ""
    if param.startswith(("messages", "prompt")):
        # Not one message is one message: what tools returned are messages of their own there.
        message, (_, dot, field) = error.message.removeprefix(f"{param}: "), param.rpartition(".")
        error.message = f"messages: {field}: {message}" if dot else f"messages: {message}"
        return error
    for theirs, ours in RENAMED:
        error.message, param = error.message.replace(theirs, ours), param.replace(theirs, ours)
    if param not in error.message:  # Anthropic's errors have no other place for it
        error.message = f"{param}: {error.message}"
    return error


def _messages(body: TokenCountRequest) -> list[Json]:
    """Texts are lists of their pieces until all are there, and joined once: adding each to what came
    before would copy a conversation of 4,096 turns as often."""
    messages: list[Json] = []
    if body.system is not None:
        messages.append({"role": "system", "content": [_text(body.system)]})
    for message in body.messages:
        match message:
            case UserTurn():
                _append_user(messages, message)
            case AssistantTurn():
                _append_assistant(messages, message)
            case SystemTurn():
                messages.append({"role": "system", "content": [_text(message.content)]})
    for told in messages:
        for field in JOINED & told.keys():
            told[field] = "".join(told[field])
    return messages


def _append_user(messages: list[Json], message: UserTurn) -> None:
    """Results first: they answer the calls of the message before."""
    blocks = [] if isinstance(message.content, str) else message.content
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            said = ["Error: "] if block.is_error else []
            said.append(_text(block.content or ""))
            messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": said})
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if texts or not blocks:
        texts = [message.content] if isinstance(message.content, str) else texts
        if messages and messages[-1]["role"] == "user":
            messages[-1]["content"] += [BETWEEN_TURNS, *texts]
        else:
            messages.append({"role": "user", "content": texts})


def _append_assistant(messages: list[Json], message: AssistantTurn) -> None:
    blocks = [] if isinstance(message.content, str) else message.content
    texts = [message.content] if isinstance(message.content, str) else []
    texts += [block.text for block in blocks if isinstance(block, TextBlock)]
    texts = [text for text in texts if text]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    if messages and messages[-1]["role"] == "assistant":
        turn = messages[-1]
        if turn["content"] and texts:
            turn["content"].append(BETWEEN_TURNS)
        turn["content"] += texts
    else:
        turn = {"role": "assistant", "content": texts}
        messages.append(turn)
    if thoughts:
        turn.setdefault("reasoning_content", []).extend(thoughts)
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": json.dumps(block.input)}
            call = {"id": block.id, "type": "function", "function": function}
            turn.setdefault("tool_calls", []).append(call)


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _response_format(body: TokenCountRequest) -> Json | None:
    wanted = body.output_config and body.output_config.format
    if not wanted:
        return None
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": wanted.schema_}}


def _reasoning(body: TokenCountRequest) -> Json:
    fields: Json = {}
    if body.thinking and body.thinking.type in ("enabled", "disabled"):
        fields["chat_template_kwargs"] = {"enable_thinking": body.thinking.type == "enabled"}
    if body.output_config:
        fields["reasoning_effort"] = body.output_config.effort
    return fields


def _prefill(last: Json) -> Json:
    """A last message of the assistant is the beginning of the answer, which goes on from there."""
    if last["role"] != "assistant":
        return {}
    if "tool_calls" in last or not last["content"]:
        raise InvalidRequestError(
            "messages: A last message of the assistant must be a text, which the answer continues; the "
            "results of tools belong into a user's message behind it.",
            param="messages",
        )
    return {"add_generation_prompt": False, "continue_final_message": True}


def _tool(tool: ClientTool) -> Json:
    function = tool.model_dump(include={"name", "description", "strict"}, exclude_none=True)
    return {"type": "function", "function": {**function, "parameters": tool.input_schema}}


def _tool_choice(choice: MessageToolChoice) -> str | Json:
    if isinstance(choice, NamedChoice):
        return {"type": "function", "function": {"name": choice.name}}
    return CHOICES[choice.type]
