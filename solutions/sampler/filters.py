"""What happens to a row of logits before a token is sampled from it.

Every function takes and returns `[n, vocab]` float32 logits and per-row parameters `[n]`; a token that
is ruled out gets -inf. A row whose parameter is "off" passes through unchanged, so that one call serves
requests that want different things. Logits may be a slice of a wider tensor; parameters are read only.
"""

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch

NEG_INF = float("-inf")


# ANCHOR: apply_penalties
def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """Make tokens that were seen less likely: first repetition, then frequency and presence.

    Repetition divides positive logits and multiplies negative ones of tokens in prompt or output
    (Keskar et al. 2019, section 4.1). Frequency and presence are subtracted, for output tokens only,
    once per occurrence and once (OpenAI's API reference). Values below off make them more likely.
    """
    # BEGIN SOLUTION 1.1
    counts = penalties.output_counts
    seen = penalties.prompt_mask | (counts > 0)
    factor = penalties.repetition[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor)
    logits = torch.where(seen, repeated, logits)
    logits = logits - penalties.frequency[:, None] * counts
    return logits - penalties.presence[:, None] * (counts > 0)
    # END SOLUTION


# ANCHOR_END: apply_penalties


# ANCHOR: apply_temperature
def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide each row by its temperature; rows at 0 (greedy) by 1.

    The largest logit becomes 0 first, which changes no probability: however small the temperature, the
    others can then only fall to -inf, and nothing overflows to +inf.
    """
    # BEGIN SOLUTION 1.2
    divisor = torch.where(temperature == 0, torch.ones_like(temperature), temperature)
    return (logits - logits.amax(dim=1, keepdim=True)) / divisor[:, None]
    # END SOLUTION


# ANCHOR_END: apply_temperature


# ANCHOR: apply_top_k
def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """Keep each row's k largest logits; k <= 0 or k >= vocab keeps all.

    Tokens tied with the k-th largest are kept too: which of equals goes would be arbitrary.
    """
    # BEGIN SOLUTION 1.3
    vocab = logits.shape[1]
    k = torch.where(top_k <= 0, vocab, top_k.clamp(max=vocab))
    largest = logits.topk(int(k.max()), dim=1).values
    threshold = largest.gather(1, (k - 1)[:, None])
    return logits.masked_fill(logits < threshold, NEG_INF)
    # END SOLUTION


# ANCHOR_END: apply_top_k


# ANCHOR: apply_top_p
def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches p (Holtzman et al. 2020).

    The token that crosses p is kept, so at least one always is. p = 1 keeps all. Of tokens that are
    equally likely where the set ends, as many as p needs are kept, no matter which, or all of them.
    """
    # BEGIN SOLUTION 1.4
    # Stable, so that which of equals stay does not depend on the shape of the batch.
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    probs = ordered.softmax(dim=1)
    before = probs.cumsum(dim=1) - probs
    drop = (before >= top_p[:, None]) & (top_p[:, None] < 1)
    # Rounding can put the first token's `before` a hair above zero; it stays whatever p is.
    drop[:, 0] = False
    return logits.masked_fill(drop.scatter(1, order, drop), NEG_INF)
    # END SOLUTION


# ANCHOR_END: apply_top_p


# ANCHOR: apply_min_p
def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Keep tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024)."""
    # BEGIN SOLUTION 1.5
    # p_i >= min_p * p_max is logit_i >= log(min_p) + logit_max: no softmax needed. log(0) = -inf: off.
    threshold = min_p.log() + logits.amax(dim=1)
    return logits.masked_fill(logits < threshold[:, None], NEG_INF)
    # END SOLUTION


# ANCHOR_END: apply_min_p
