"""From a conversation to what is tokenized of it. It needs a tokenizer and no engine."""

from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.core.params import ROLES, PromptOptions
from yaie.models.tokenizer import PromptText, Tokenizer

Json = dict[str, Any]


def encode_chat(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> list[int]:
    """The token ids of a conversation, by the model's chat template.

    tools: JSON schemas of functions that the model may call. Raises InvalidRequestError.
    """
    return tokenizer.encode_parts(chat_text(tokenizer, messages, tools, options))


def encode_short_chat(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> list[int] | PromptText:
    """As `encode_chat`, but a prompt that takes long is left to be tokenized."""
    text = chat_text(tokenizer, messages, tools, options)
    return text if text.is_long else tokenizer.encode_parts(text)


def chat_text(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> PromptText:
    """A conversation, written by the model's chat template. Raises InvalidRequestError."""
    options = options or PromptOptions()
    return tokenizer.chat_text(
        check_messages(messages, keeps_parts=tokenizer.wants_parts(tools)),
        tools=tools,
        add_generation_prompt=options.add_generation_prompt,
        continue_final_message=options.continue_final_message,
        add_special_tokens=options.add_special_tokens,
        variables=options.variables,
    )


def check_messages(messages: Any, *, keeps_parts: bool = False) -> list[dict[str, Any]]:
    """The messages as chat templates expect them: contents are plain text, lists of text parts are
    joined, and the role `developer` goes by its older name, `system`.

    keeps_parts: for a template that goes through them; then lists of parts stay as they are.

    Raises InvalidRequestError naming the message and field that is wrong.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(
            "messages must be a list of at least one message", param="messages"
        )
    return [
        _check_message(message, f"messages[{i}]", keeps_parts) for i, message in enumerate(messages)
    ]


def _check_message(message: Any, where: str, keeps_parts: bool) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidRequestError(f"{where} must be an object with role and content", param=where)
    if message.get("role") not in ROLES:
        raise InvalidRequestError(
            f"{where}.role must be one of {', '.join(ROLES)}, got {str(message.get('role'))[:40]!r}",
            param=f"{where}.role",
        )
    role = "system" if message["role"] == "developer" else message["role"]
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        content = ""  # templates print what they are given, and None is no word
    texts = _texts(content, f"{where}.content")
    if keeps_parts and not isinstance(content, str):
        content = [{"type": "text", "text": text} for text in texts]
    else:
        content = "".join(texts)
    return {**message, "role": role, "content": content}


def _texts(content: Any, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a string or a list of text parts", param=where)
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRequestError(
                f"{where}[{i}] is of type {str(kind)[:40]!r}; only text parts are "
                "supported: this model is served as text only",
                param=f"{where}[{i}].type",
            )
        if not isinstance(part.get("text"), str):
            raise InvalidRequestError(
                f"{where}[{i}].text must be a string", param=f"{where}[{i}].text"
            )
        texts.append(part["text"])
    return texts
