"""What a request must satisfy before it may wait: checks whose failure costs nobody else anything."""

from typing import Any

from yaie.core.errors import ContextLengthError, InvalidRequestError, KVPoolTooSmallError
from yaie.core.params import ROLES, SamplingParams


def check_prompt(token_ids: list[int], vocab_size: int) -> None:
    """Raise InvalidRequestError unless there is at least one token and the model knows them all."""
    if not token_ids:
        raise InvalidRequestError(
            "prompt is empty; send at least one token of text", param="prompt"
        )
    for token in token_ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"prompt holds the token id {token!r}; this model's ids go from 0 to {vocab_size - 1}",
                param="prompt",
            )


def resolve_max_tokens(
    num_prompt: int, params: SamplingParams, max_model_len: int, pool_tokens: int
) -> int:
    """How many tokens the request may generate: what it asks for, or as many as fit.

    Raises ContextLengthError if prompt and output exceed the context, and KVPoolTooSmallError if the
    pool could not hold them even with nobody else there.
    """
    wanted = params.max_tokens
    if num_prompt + (wanted or 1) > max_model_len:
        asked = "" if wanted is None else f" and max_tokens asks for {wanted}"
        raise ContextLengthError(
            f"this model's context is {max_model_len} tokens; the prompt has {num_prompt}{asked}. "
            "Shorten the prompt or ask for less.",
            param="prompt" if wanted is None else "max_tokens",
        )
    # The last token generated is never computed, so it needs no slot.
    if num_prompt + (wanted or 1) - 1 > pool_tokens:
        raise KVPoolTooSmallError(
            f"prompt and max_tokens come to {num_prompt + (wanted or 1)} tokens, but the KV pool holds "
            f"{pool_tokens} in all. Ask for less, or start the engine with more num_blocks.",
            param="prompt" if wanted is None else "max_tokens",
        )
    return wanted or min(max_model_len, pool_tokens + 1) - num_prompt


def truncated(
    token_ids: list[int], params: SamplingParams, max_model_len: int, pool_tokens: int
) -> list[int]:
    """What `truncate_prompt_tokens` leaves of a prompt: its end.

    -1 leaves as much as context and pool hold beside `max_tokens`, or beside one token.
    """
    kept = params.truncate_prompt_tokens
    if kept is None:
        return token_ids
    if kept == -1:
        # The last token generated is never computed, so it needs no slot.
        kept = max(1, min(max_model_len, pool_tokens + 1) - (params.max_tokens or 1))
    return token_ids[-kept:]


def check_biases(params: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequestError if `logit_bias` names a token that the model does not have."""
    for token, _ in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"logit_bias names the token id {token}; this model's ids go from 0 to "
                f"{vocab_size - 1}",
                param="logit_bias",
            )


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages as chat templates expect them: contents are plain text, lists of text parts are
    joined, and the role `developer` goes by its older name, `system`.

    Raises InvalidRequestError naming the message and field that is wrong.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(
            "messages must be a list of at least one message", param="messages"
        )
    return [_check_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _check_message(message: Any, where: str) -> dict[str, Any]:
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
    content = _text(content, f"{where}.content")
    return {**message, "role": role, "content": content}


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a string or a list of text parts", param=where)
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRequestError(
                f"{where}[{i}] is of type {str(kind)[:40]!r}; only text parts are supported",
                param=f"{where}[{i}].type",
            )
        if not isinstance(part.get("text"), str):
            raise InvalidRequestError(
                f"{where}[{i}].text must be a string", param=f"{where}[{i}].text"
            )
        texts.append(part["text"])
    return "".join(texts)
