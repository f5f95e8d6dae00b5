"""Penalties, in plain PyTorch as in lab 1: few requests ask for them. Given."""

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch


def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """Make tokens that were seen less likely: first repetition, then frequency and presence.

    Repetition divides positive logits and multiplies negative ones of tokens in prompt or output
    (Keskar et al. 2019, section 4.1). Frequency and presence are subtracted, for output tokens only,
    once per occurrence and once (OpenAI's API reference).
    """
    counts = penalties.output_counts
    seen = penalties.prompt_mask | (counts > 0)
    factor = penalties.repetition[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor)
    logits = torch.where(seen, repeated, logits)
    logits = logits - penalties.frequency[:, None] * counts
    return logits - penalties.presence[:, None] * (counts > 0)
