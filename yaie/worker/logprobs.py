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
        entries += token_logprobs(logits, token_ids, [num_top] * len(token_ids))
    return entries
