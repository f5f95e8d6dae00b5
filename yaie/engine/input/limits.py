"""How long a prompt and its output may be: what becomes of a request for more than there is room for."""

from yaie.core.errors import ContextLengthError, KVPoolTooSmallError
from yaie.core.params import SamplingParams


def resolve_max_tokens(
    num_prompt: int,
    params: SamplingParams,
    max_model_len: int,
    text_tokens: int,
    *,
    is_least: bool = False,
) -> int:
    """How many tokens the request may generate: what it asks for, or as many as fit. With
    `fits_context` it is the smaller of both.

    text_tokens: of the longest text that the pool can serve. is_least: the prompt has at least
    `num_prompt` tokens; they were not all counted.

    Raises ContextLengthError if prompt and output exceed the context, and KVPoolTooSmallError if the
    pool could not hold them even with nobody else there.
    """
    wanted = params.max_tokens
    room = min(max_model_len, text_tokens + 1) - num_prompt
    if params.fits_context and wanted is not None and wanted > room:
        wanted = None
    if num_prompt + (wanted or 1) > max_model_len:
        raise ContextLengthError(
            too_long(max_model_len, num_prompt, wanted, is_least=is_least),
            param="prompt" if wanted is None else "max_tokens",
        )
    # The last token generated is never computed, so it needs no slot.
    if num_prompt + (wanted or 1) - 1 > text_tokens:
        raise KVPoolTooSmallError(
            f"prompt and max_tokens come to {'at least ' * is_least}{num_prompt + (wanted or 1)} "
            f"tokens, but the KV pool holds {text_tokens} in all. Ask for less, or start the engine "
            "with more num_blocks.",
            param="prompt" if wanted is None else "max_tokens",
        )
    return wanted or room


def too_long(
    max_model_len: int, num_prompt: int, max_tokens: int | None, *, is_least: bool = False
) -> str:
    """Why a request does not fit the context, in the sentence that OpenAI's clients look for."""
    least = "at least " * is_least
    output = "at least 1" if max_tokens is None else str(max_tokens)
    return (
        f"This model's maximum context length is {max_model_len} tokens. However, you requested "
        f"{least}{num_prompt + (max_tokens or 1)} tokens ({least}{num_prompt} in the prompt, {output} "
        "in the output). "
        # LangChain finds its context overflow by "prompt is too long".
        "If the prompt is too long, shorten it; otherwise ask for fewer tokens."
    )


def truncated(
    token_ids: list[int], params: SamplingParams, max_model_len: int, text_tokens: int
) -> list[int]:
    """What `truncate_prompt_tokens` leaves of a prompt: its end.

    -1 leaves as much as context and pool hold beside `max_tokens`, or beside one token, if that is all
    or more than they hold.
    """
    kept = params.truncate_prompt_tokens
    if kept is None:
        return token_ids
    if kept == -1:
        # The last token generated is never computed, so it needs no slot.
        room = min(max_model_len, text_tokens + 1)
        kept = room - (params.max_tokens or 1)
        if kept < 1 and params.fits_context:
            kept = room - 1
        kept = max(1, kept)
    return token_ids[-kept:]
