# Lab 1, your part: tasks 1.1, 1.2, 1.3, 1.4, 1.5. The rest is given.
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
    # TODO 1.1: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "sampler task 1.1: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: apply_penalties


# ANCHOR: apply_temperature
def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide each row by its temperature; rows at 0 (greedy) by 1.

    The largest logit becomes 0 first, which changes no probability: however small the temperature, the
    others can then only fall to -inf, and nothing overflows to +inf.
    """
    # TODO 1.2: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "sampler task 1.2: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: apply_temperature


# ANCHOR: apply_top_k
def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """Keep each row's k largest logits; k <= 0 or k >= vocab keeps all.

    Tokens tied with the k-th largest are kept too: which of equals goes would be arbitrary.
    """
    # TODO 1.3: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "sampler task 1.3: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: apply_top_k


# ANCHOR: apply_top_p
def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches p (Holtzman et al. 2020).

    The token that crosses p is kept, so at least one always is. p = 1 keeps all. Of tokens that are
    equally likely where the set ends, as many as p needs are kept, no matter which, or all of them.
    """
    # TODO 1.4: your code here (the reference: 6 lines).
    raise NotImplementedError(
        "sampler task 1.4: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: apply_top_p


# ANCHOR: apply_min_p
def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Keep tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024)."""
    # TODO 1.5: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "sampler task 1.5: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: apply_min_p
