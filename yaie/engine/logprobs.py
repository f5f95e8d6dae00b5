"""Log-probabilities of tokens, drawn ones and those of prompts, out of the model's raw logits."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from yaie.core.batch import ScheduledRequest
from yaie.core.request import TokenLogprob

MOST_ROWS = 128
"""Prompt positions whose logits are in memory at once: 64 MiB in a vocabulary of 128 thousand."""


@torch.inference_mode()
def token_logprobs(logits: Tensor, token_ids: Tensor, num_top: Sequence[int]) -> list[TokenLogprob]:
    """One for each row of `logits` [m, vocab] float32, of the token in `token_ids` [m] int64.

    num_top: m numbers, how many of the most likely tokens to tell. Everything comes to the host in one
    transfer. A token id of -1 is passed through; its log-probability says nothing.
    """
    # What a model itself rules out has -inf, which JSON cannot say.
    logprobs = logits.log_softmax(dim=1).clamp_(min=torch.finfo(torch.float32).min)
    most = min(max(num_top), logits.shape[1])
    values, indices = logprobs.topk(most, dim=1)
    chosen = logprobs.gather(1, token_ids.clamp(min=0)[:, None])
    # Doubles hold a token id and a float32 exactly.
    columns = (token_ids[:, None], chosen, indices, values)
    rows = torch.cat([column.double() for column in columns], dim=1).tolist()
    return [
        TokenLogprob(int(row[0]), row[1], _pairs(row[2 : 2 + count], row[2 + most :]))
        for row, count in zip(rows, (min(count, most) for count in num_top), strict=True)
    ]


def _pairs(ids: list[float], values: list[float]) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), value) for token, value in zip(ids, values, strict=False))


def lacks_prompt_logprobs(item: ScheduledRequest) -> bool:
    """Whether a request is to have log-probabilities of its prompt and does not have them all."""
    request = item.request
    return (
        request.params.prompt_logprobs is not None
        and request.fork_of is None
        and len(request.prompt_logprobs) < request.num_prompt_tokens
    )


def note_prompt_logprobs(
    item: ScheduledRequest, hidden: Tensor, head: Callable[[Tensor], Tensor]
) -> None:
    """Append to `prompt_logprobs` what the tokens of this step tell of the prompt.

    hidden: [num_tokens, d], the last hidden states of the request's tokens. head: makes logits of them.
    The state at position p tells of the token at p + 1; recomputed positions tell nothing new.

    Raises RuntimeError if the request was started from a cached prefix, whose states nobody has.
    """
    request, known = item.request, item.request.prompt_logprobs
    if not known:
        known.append(None)
    first = len(known) - 1
    if first < item.start:
        raise RuntimeError(
            f"{request.request_id} asks for the log-probabilities of its prompt, but the KV cache "
            f"manager started it from {item.start} cached tokens: see Request.may_reuse_prefix"
        )
    last = min(item.start + item.num_tokens, request.num_prompt_tokens - 1)
    for start in range(first, last, MOST_ROWS):
        end = min(start + MOST_ROWS, last)
        logits = head(hidden[start - item.start : end - item.start])
        told = torch.tensor(request.token_ids[start + 1 : end + 1], device=logits.device)
        known += token_logprobs(logits, told, [request.params.prompt_logprobs or 0] * (end - start))
