"""The sampler in use, with what single requests may ask for around it.

    raw logits   copied for the rows that ask for log-probabilities: those are the model's own
    biases       added
    constraints  what a grammar forbids gets -inf
    the part     draws (lab 1 or 12)
    afterwards   log-probabilities of the drawn tokens go to their requests

Where nobody asks for any of it, the part is called and nothing else happens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch
from yaie.core.contracts import Sampler
from yaie.core.request import Request
from yaie.engine.logprobs import token_logprobs

NEG_INF = float("-inf")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the rows of a batch ask for beyond their sampling parameters.

    biased: rows, token ids and biases, [k] each, or None.
    constrained: rows whose request has a matcher. told: rows that ask for log-probabilities, and the
        same on the device, [m] int64.
    """

    biased: tuple[Tensor, Tensor, Tensor] | None
    constrained: list[int]
    told: list[int]
    told_index: Tensor


@dataclass(slots=True)
class RequestBatch(SamplingBatch):
    """A SamplingBatch that knows whose rows it has.

    wishes: what these ask for beyond it; None if it is nothing.
    """

    requests: list[Request] = field(default_factory=list)
    wishes: Wishes | None = None


def wishes_of(requests: Sequence[Request], device: torch.device) -> Wishes | None:
    """What these requests ask for; None if it is nothing."""
    told = [row for row, request in enumerate(requests) if request.params.logprobs is not None]
    constrained = [row for row, request in enumerate(requests) if request.matcher is not None]
    biases = [
        (row, token, bias)
        for row, request in enumerate(requests)
        for token, bias in request.params.logit_bias
    ]
    if not (told or constrained or biases):
        return None
    biased = None
    if biases:
        rows, tokens, values = zip(*biases, strict=True)
        biased = (
            torch.tensor(rows, device=device),
            torch.tensor(tokens, device=device),
            torch.tensor(values, dtype=torch.float32, device=device),
        )
    index = torch.tensor(told, dtype=torch.int64, device=device)
    return Wishes(biased, constrained, told, index)


class RequestSampler:
    """See `yaie.core.contracts.Sampler`; takes the batches of `SamplingBatchBuilder`."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab]; returns [n] int64. Appends to `Request.logprobs`.

        A row whose matcher has failed gives -1, as one without finite logits does.
        """
        assert isinstance(batch, RequestBatch)
        requests, wishes = batch.requests, batch.wishes
        if wishes is None:
            return self._sampler.sample(logits, batch)
        raw = logits[wishes.told_index] if wishes.told else None
        _change(logits, requests, wishes)
        token_ids = self._sampler.sample(logits, batch)
        if raw is not None:
            told = [requests[row] for row in wishes.told]
            _note(raw, token_ids[wishes.told_index], told)
        return token_ids


@torch.inference_mode()
def _change(logits: Tensor, requests: list[Request], wishes: Wishes) -> None:
    """Apply biases and constraints to `logits`, in place; no other row is touched."""
    if wishes.biased is not None:
        rows, tokens, values = wishes.biased
        logits.index_put_((rows, tokens), values, accumulate=True)
    if not wishes.constrained:
        return
    width = logits.shape[1]
    allowed = torch.stack([requests[row].matcher.allowed(width) for row in wishes.constrained]).to(
        logits.device
    )
    # Added, not filled in: a row with NaN must stay one.
    forbidden = torch.zeros(allowed.shape, device=logits.device).masked_fill_(~allowed, NEG_INF)
    index = torch.tensor(wishes.constrained, device=logits.device)
    logits.index_add_(0, index, forbidden)


def _note(raw: Tensor, token_ids: Tensor, requests: list[Request]) -> None:
    """Tell each request what it drew. raw: [m, vocab], token_ids: [m], of the m that ask."""
    num_top = [request.params.logprobs or 0 for request in requests]
    entries = token_logprobs(raw, token_ids, num_top)
    for request, entry in zip(requests, entries, strict=True):
        # A static batch computes rows on that have ended; a row that failed has no token.
        if entry.token_id >= 0 and not request.is_finished:
            request.logprobs.append(entry)
