"""From a conversation or a text to what is tokenized of it. It needs a tokenizer and no engine.

A long prompt is refused before it is tokenized where that cannot be wrong.
"""

from typing import Any

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.params import ROLES, PromptOptions, SamplingParams
from yaie.engine.input.limits import resolve_max_tokens, too_long
from yaie.models.text_encoder import PromptText
from yaie.models.tokenizer import Tokenizer
from yaie.system.gc_tuning import give_back_memory

Json = dict[str, Any]

GIVE_BACK = 1 << 20
"""Characters of a text after which the C library is asked to return memory to the system."""


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


def check_text(
    tokenizer: Tokenizer,
    prompt: PromptText,
    params: SamplingParams,
    max_model_len: int,
    pool_tokens: int,
) -> PromptText:
    """What is to be tokenized of a prompt of one text: all, or with `truncate_prompt_tokens` as much of
    its end as may be. Tokenizes nothing.

    Raises ContextLengthError or KVPoolTooSmallError if it is too long even with the longest token for
    each of its tokens, and InvalidRequestError if it has too many bytes.
    """
    if params.truncate_prompt_tokens is not None:
        return tokenizer.end(prompt, max_model_len + 1)
    if prompt.num_chars > GIVE_BACK:
        give_back_memory()  # of the body that held it
    least = tokenizer.fewest(prompt)
    resolve_max_tokens(least, params, max_model_len, pool_tokens, is_least=True)
    _check_bytes(tokenizer, prompt, "prompt")
    return prompt


def check_chat(tokenizer: Tokenizer, prompt: PromptText, max_model_len: int) -> None:
    """Raise ContextLengthError or InvalidRequestError for a conversation with too many bytes. One that
    has fewer is tokenized, though it be too long: it may be truncated afterwards."""
    if prompt.num_bytes <= tokenizer.max_bytes:
        return
    if (least := tokenizer.fewest(prompt)) > max_model_len:
        raise ContextLengthError(
            too_long(max_model_len, least, None, is_least=True), param="messages"
        )
    _check_bytes(tokenizer, prompt, "messages")


def encode_long(tokenizer: Tokenizer, prompt: PromptText) -> list[int]:
    """The tokens of a prompt that takes long."""
    try:
        return tokenizer.encode_parts(prompt)
    finally:
        if prompt.num_chars > GIVE_BACK:
            give_back_memory()


def fitting(ids: list[int], params: SamplingParams, max_model_len: int) -> list[int]:
    """What can matter of a prompt's tokens. Raises ContextLengthError if they are too many."""
    if params.truncate_prompt_tokens is not None:
        return list(ids[-max_model_len - 1 :])
    if len(ids) > max_model_len:
        resolve_max_tokens(len(ids), params, max_model_len, max_model_len)
    return ids


def _check_bytes(tokenizer: Tokenizer, prompt: PromptText, param: str) -> None:
    if (size := prompt.num_bytes) > tokenizer.max_bytes:
        raise InvalidRequestError(
            f"{param}: {size} bytes of text in UTF-8, and at most {tokenizer.max_bytes} are tokenized "
            "at once. Send less.",
            param=param,
        )
