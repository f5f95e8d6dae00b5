"""Other right filters: every one writes into the logits that it is given and returns the same tensor.

The contract of `sample` lets logits be overwritten, and parameters stay as they are.
"""

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch

_OUT = -torch.inf


def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """Three updates in place, the first of the seen tokens alone."""
    counts = penalties.output_counts
    rows, tokens = (penalties.prompt_mask | counts.gt(0)).nonzero(as_tuple=True)
    seen, factor = logits[rows, tokens], penalties.repetition[rows]
    logits.index_put_((rows, tokens), torch.where(seen < 0, seen.mul(factor), seen.div(factor)))
    logits.addcmul_(penalties.frequency.unsqueeze(-1), counts, value=-1)
    logits.sub_(counts.sign().mul(penalties.presence.unsqueeze(-1)))
    return logits


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """The best logit is taken off, then rows that sample are divided."""
    logits.sub_(logits.max(dim=-1, keepdim=True).values)
    return logits.div_(temperature.masked_fill(temperature.eq(0), 1.0).unsqueeze(-1))


def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """The k-th largest of an ascending sort, which lies k places before its end."""
    vocab = logits.size(-1)
    first = vocab - torch.where(top_k.gt(0), top_k, vocab).clamp(max=vocab)
    bar = logits.sort(dim=-1).values.take_along_dim(first.unsqueeze(-1), dim=-1)
    return logits.masked_fill_(logits.lt(bar), _OUT)


def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """A row is rewritten in sorted order and scattered back to its tokens' columns."""
    ordered, tokens = logits.sort(dim=-1, descending=True, stable=True)
    reached = ordered.softmax(dim=-1).cumsum(dim=-1)
    # A token goes if those before it have reached p: shift the sums by one place.
    full = reached.ge(top_p.unsqueeze(-1)) & top_p.lt(1).unsqueeze(-1)
    ordered[:, 1:].masked_fill_(full[:, :-1], _OUT)
    return logits.scatter_(-1, tokens, ordered)


def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Every token's distance to the best, against the logarithm of the ratio."""
    bar = logits.max(dim=-1).values.add(min_p.log())
    return logits.masked_fill_(logits.lt(bar.unsqueeze(-1)), _OUT)
