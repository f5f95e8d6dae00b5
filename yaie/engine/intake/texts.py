"""Prompts in text that take long to tokenize: refused by a lower bound, or read from the end.

Only the last tokens of a prompt can matter that is longer than the context: without
`truncate_prompt_tokens` it is refused whatever comes before them, and with it they are all that is kept.
"""

from collections.abc import Generator
from typing import Any

from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.engine.intake.limits import resolve_max_tokens
from yaie.models.long_texts import LastTokens, PromptText
from yaie.models.tokenizer import Tokenizer
from yaie.models.tokenizer_splits import LONGEST_PIECE, UncutError
from yaie.system.gc_tuning import give_back_memory

GIVE_BACK = 1 << 20
"""Characters of a text after which the C library is asked to return memory to the system."""


def check_least(
    tokenizer: Tokenizer, text: str, params: SamplingParams, max_model_len: int, pool_tokens: int
) -> None:
    """Raise ContextLengthError or KVPoolTooSmallError for a text that is too long even if each of its
    tokens is the longest one. Tokenizes nothing."""
    if params.truncate_prompt_tokens is None:
        least = tokenizer.long_texts.fewest(text)
        if len(text) > GIVE_BACK:
            give_back_memory()  # of the body that held it
        resolve_max_tokens(least, params, max_model_len, pool_tokens, is_least=True)


def last_tokens(
    tokenizer: Tokenizer, prompt: PromptText, most: int | None, param: str
) -> Generator[None, None, list[int]]:
    """Yields after each piece, and returns the tokens of a prompt; if they are more than `most`,
    LastTokens: at least one more than that.

    param: what the prompt is called in the request. Raises InvalidRequestError for a text that can be
    tokenized only in one call and is too long for that.
    """
    found: list[list[int]] = []
    count = 0
    try:
        for part in reversed(prompt.parts):
            pieces: Any = [part]
            if isinstance(part, str):
                pieces = tokenizer.long_texts.from_end(part, prompt.add_special_tokens)
            for piece in pieces:
                found.append(piece)
                count += len(piece)
                if most is not None and count > most:
                    return LastTokens(_joined(found))
                yield
    except UncutError:
        raise _uncut(tokenizer, prompt, most, param) from None
    finally:
        if prompt.num_chars > GIVE_BACK:
            give_back_memory()
    return _joined(found)


def fitting(ids: list[int], params: SamplingParams, max_model_len: int) -> list[int]:
    """What can matter of a prompt's tokens. Raises ContextLengthError if they are too many."""
    if params.truncate_prompt_tokens is not None:
        return list(ids[-max_model_len - 1 :])
    if len(ids) > max_model_len:
        is_least = isinstance(ids, LastTokens)
        resolve_max_tokens(len(ids), params, max_model_len, max_model_len, is_least=is_least)
    return ids


def _joined(found: list[list[int]]) -> list[int]:
    return [token for piece in reversed(found) for token in piece]


def _uncut(
    tokenizer: Tokenizer, prompt: PromptText, most: int | None, param: str
) -> InvalidRequestError:
    least = sum(tokenizer.long_texts.fewest(part) for part in prompt.parts if isinstance(part, str))
    if most is not None and least > most:
        try:
            resolve_max_tokens(least, SamplingParams(), most, most, is_least=True)
        except ContextLengthError as error:
            error.param = param
            return error
    return InvalidRequestError(
        f"{param} holds more than {LONGEST_PIECE} characters that this model's tokenizer must take at "
        "once. Send less, or a text with spaces between its words, if it has none.",
        param=param,
    )
