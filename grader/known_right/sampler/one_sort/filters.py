"""Other right filters: by rank, from the small end, and on probabilities.

They count how many tokens are better instead of looking for the k-th, sum up what is to go instead of
what is to stay, and take a power instead of choosing between two cases.
"""

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch

NEG_INF = float("-inf")


def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """Repetition by a power that has the logit's sign, then the two subtractions at once."""
    generated = penalties.output_counts > 0
    exponent = -logits.sign() * (generated | penalties.prompt_mask)
    logits = logits * penalties.repetition[:, None] ** exponent
    each, once = penalties.frequency[:, None], penalties.presence[:, None]
    return logits - torch.where(generated, each * penalties.output_counts + once, 0.0)


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """In float64, where even 1e38 / 1e-45 is finite, down to log-probabilities."""
    divisor = temperature.double()
    divisor[divisor == 0] = 1.0
    return (logits.double() / divisor[:, None]).log_softmax(dim=-1).float()


def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """A token stays if fewer than k are better."""
    vocab = logits.shape[-1]
    better = vocab - torch.searchsorted(logits.sort(dim=-1).values, logits, right=True)
    stays = (better < top_k[:, None]) | (top_k[:, None] <= 0)
    return torch.where(stays, logits, NEG_INF)


def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """From the least likely token on, tokens go as long as 1 - p is not exceeded."""
    ascending, order = logits.sort(dim=-1)
    goes = ascending.softmax(dim=-1).cumsum(dim=-1) <= (1 - top_p)[:, None]
    goes[top_p == 1] = False
    goes[:, -1] = False
    place = order.argsort(dim=-1)
    return torch.where(goes.gather(1, place), NEG_INF, logits)


def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """On probabilities, as the definition reads."""
    probs = logits.softmax(dim=-1)
    floor = min_p[:, None] * probs.amax(dim=-1, keepdim=True)
    return torch.where(probs >= floor, logits, NEG_INF)
