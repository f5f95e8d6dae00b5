"""Prompts that take long to tokenize: refused before that where it cannot be wrong, and cut where no
more can matter. It needs a tokenizer and no engine.
"""

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.engine.input.limits import resolve_max_tokens, too_long
from yaie.models.tokenizer import PromptText, Tokenizer
from yaie.system.gc_tuning import give_back_memory

GIVE_BACK = 1 << 20
"""Characters of a text after which the C library is asked to return memory to the system."""


def check_text(
    tokenizer: Tokenizer,
    prompt: PromptText,
    params: SamplingParams,
    max_model_len: int,
    text_tokens: int,
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
    resolve_max_tokens(least, params, max_model_len, text_tokens, is_least=True)
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
