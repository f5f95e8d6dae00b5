"""Log-probabilities of tokens, drawn ones and those of prompts, out of the model's raw logits."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.request import TokenLogprob

MOST_ROWS = 128
"""Prompt positions whose logits are in memory at once: 64 MiB in a vocabulary of 128 thousand."""


@torch.inference_mode()
def token_logprobs(
    logits: Tensor,
    token_ids: Tensor,
    num_top: Sequence[int],
    named: Sequence[list[int] | None] = (),
    *,
    with_rank: bool = False,
) -> list[TokenLogprob]:
    """One for each row of `logits` [m, vocab] float32, of the token in `token_ids` [m] int64.

    num_top: m numbers, how many of the most likely tokens to tell. named: m lists of token ids to tell
    instead, None for a row that has none; empty if no row has. Everything comes to the host in one
    transfer. A token id of -1 is passed through; its log-probability says nothing.
    """
    named = named if any(named) else ()
    # What a model itself rules out has -inf, which JSON cannot say.
    logprobs = logits.log_softmax(dim=1).clamp_(min=torch.finfo(torch.float32).min)
    most = min(max(num_top), logits.shape[1])
    values, indices = logprobs.topk(most, dim=1)
    chosen = logprobs.gather(1, token_ids.clamp(min=0)[:, None])
    # Doubles hold a token id and a float32 exactly.
    columns = [token_ids[:, None], chosen, indices, values]
    if with_rank:
        columns.append((logprobs > chosen).sum(dim=1, keepdim=True) + 1)
    if named:
        columns.append(logprobs.gather(1, _padded(named, logits.device)))
    rows = torch.cat([column.double() for column in columns], dim=1).tolist()
    entries = []
    for position, (row, count) in enumerate(zip(rows, num_top, strict=True)):
        token_id, logprob, *rest = row
        top, rest = _pairs(rest[: min(count, most)], rest[most:]), rest[2 * most :]
        rank = int(rest.pop(0)) if with_rank else None
        if named and (own := named[position]):
            top = tuple(zip(own, rest, strict=False))
        entries.append(TokenLogprob(int(token_id), logprob, top, rank))
    return entries


def _padded(named: Sequence[list[int] | None], device: torch.device) -> Tensor:
    """[m, longest] int64; the ends of shorter rows say nothing."""
    width = max(len(own or ()) for own in named)
    rows = [[*(own or ()), *[0] * (width - len(own or ()))] for own in named]
    return torch.tensor(rows, dtype=torch.int64, device=device)


def _pairs(ids: list[float], values: list[float]) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), value) for token, value in zip(ids, values, strict=False))


@torch.inference_mode()
def prompt_logprobs(
    hidden: Tensor,
    told: NDArray[np.int32],
    num_top: int,
    head: Callable[[Tensor], Tensor],
) -> list[TokenLogprob]:
    """Log-probabilities of prompt tokens `told` [m], each of which follows a row of `hidden` [m, d].

    head: makes logits of hidden states.
    """
    entries: list[TokenLogprob] = []
    for start in range(0, len(told), MOST_ROWS):
        logits = head(hidden[start : start + MOST_ROWS])
        token_ids = torch.from_numpy(told[start : start + MOST_ROWS]).long().to(logits.device)
        entries += token_logprobs(logits, token_ids, [num_top] * len(token_ids), with_rank=True)
    return entries
