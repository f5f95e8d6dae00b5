"""Log-probabilities of tokens out of the model's own logits, as `yaie.core.told` reads them."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.step import Arrays, Ints
from yaie.core.told import NO_RANK
from yaie.worker.transfer import on_device

_HEAD = 3
"""Columns before those of the most likely tokens: the token, its log-probability, its rank."""


def table(
    logits: Tensor,
    token_ids: Tensor,
    most: int,
    named: Sequence[list[int]] = (),
    *,
    with_rank: bool = False,
) -> Tensor:
    """[m, columns] float64 on the device, for `arrays`. Doubles hold a token id and a float32 exactly,
    so that everything comes to the host in one transfer.

    logits: [m, vocab] float32. token_ids: [m] int64; one of -1 is passed through, and its
    log-probability says nothing. most: how many of the most likely tokens to tell. named: m lists of
    tokens that are told besides; empty if no row has any.
    """
    # What a model itself rules out has -inf, which JSON cannot say.
    logprobs = logits.log_softmax(dim=1).clamp_(min=torch.finfo(torch.float32).min)
    values, indices = logprobs.topk(min(most, logits.shape[1]), dim=1)
    chosen = logprobs.gather(1, token_ids.clamp(min=0)[:, None])
    if with_rank:
        ranks = (logprobs > chosen).sum(dim=1, keepdim=True) + 1
    else:
        ranks = torch.full_like(chosen, NO_RANK)
    columns = [token_ids[:, None], chosen, ranks, indices, values]
    if any(named):
        columns.append(logprobs.gather(1, _padded(named, logits.device)))
    return torch.cat([column.double() for column in columns], dim=1)


def arrays(
    rows: Ints, told: NDArray[np.float64], num_top: Ints, named: Sequence[list[int]] = ()
) -> Arrays:
    """What `told` [m, columns], made by `table`, says of these rows [m]. num_top: [m], how many of the
    most likely tokens each wants; one with `named` tokens wants those instead."""
    num_named = max(map(len, named), default=0)
    most = (told.shape[1] - _HEAD - num_named) // 2
    ids, values, others = np.split(told[:, _HEAD:], [most, 2 * most], axis=1)
    counts = np.minimum(num_top, most)
    top_ids = np.zeros((len(told), max(most, num_named)), np.int32)
    top_logprobs = np.zeros(top_ids.shape, np.float32)
    top_ids[:, :most], top_logprobs[:, :most] = ids, values
    for row, own in enumerate(named):
        if own:
            counts[row] = len(own)
            top_ids[row, : len(own)] = own
            top_logprobs[row, : len(own)] = others[row, : len(own)]
    return {
        "rows": rows.astype(np.int32),
        "token_ids": told[:, 0].astype(np.int32),
        "logprobs": told[:, 1].astype(np.float32),
        "ranks": told[:, 2].astype(np.int32),
        "counts": counts.astype(np.int32),
        "top_ids": top_ids,
        "top_logprobs": top_logprobs,
    }


def _padded(named: Sequence[list[int]], device: torch.device) -> Tensor:
    """[m, longest] int64; the ends of shorter rows say nothing."""
    padded = np.zeros((len(named), max(map(len, named))), np.int64)
    for row, own in enumerate(named):
        padded[row, : len(own)] = own
    return on_device(padded, device)
