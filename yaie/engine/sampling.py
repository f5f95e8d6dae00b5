"""Sampling parameters of a batch's requests, as tensors."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch, SamplingBatch
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.request_sampler import RequestBatch, wishes_of


class SamplingBatchBuilder:
    """Makes a SamplingBatch; in a run of steps over the same requests only `steps` is new."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._requests: list[Request] = []
        self._batch: RequestBatch | None = None
        self._seen: WeakKeyDictionary[Request, TokenCounts] = WeakKeyDictionary()

    def build(self, requests: Sequence[Request]) -> SamplingBatch:
        """The parameters of `requests`, row by row."""
        if self._batch is None or self._requests != requests:
            self._requests = list(requests)
            self._batch = self._parameters(requests)
        self._batch.steps = self._tensor(
            [request.num_output_tokens for request in requests], torch.int64
        )
        if any(request.params.has_penalties for request in requests):
            self._batch.penalties = self._penalties(requests)
        return self._batch

    def _tensor(self, values: list[float] | list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)

    def _column(self, requests: Sequence[Request], name: str) -> Tensor:
        return self._tensor([getattr(request.params, name) for request in requests], torch.float32)

    def _parameters(self, requests: Sequence[Request]) -> RequestBatch:
        def any_has(name: str, off: float) -> bool:
            return any(getattr(request.params, name) != off for request in requests)

        return RequestBatch(
            temperature=self._column(requests, "temperature"),
            # More than the vocabulary is all of it, and may be more than 64 bits hold.
            top_k=self._tensor(
                [min(max(0, r.params.top_k), self._vocab_size) for r in requests], torch.int64
            ),
            top_p=self._column(requests, "top_p"),
            min_p=self._column(requests, "min_p"),
            seeds=self._tensor([request.seed for request in requests], torch.int64),
            steps=self._tensor([], torch.int64),
            all_greedy=all(request.params.is_greedy for request in requests),
            any_top_k=any(request.params.top_k > 0 for request in requests),
            any_top_p=any_has("top_p", 1.0),
            any_min_p=any_has("min_p", 0.0),
            requests=list(requests),
            wishes=wishes_of(requests, self._device),
        )

    def _penalties(self, requests: Sequence[Request]) -> PenaltyBatch:
        counts = [self._counts(request) for request in requests]
        return PenaltyBatch(
            presence=self._column(requests, "presence_penalty"),
            frequency=self._column(requests, "frequency_penalty"),
            repetition=self._column(requests, "repetition_penalty"),
            output_counts=torch.stack([count.output for count in counts]),
            prompt_mask=torch.stack([count.prompt for count in counts]),
        )

    def _counts(self, request: Request) -> "TokenCounts":
        counts = self._seen.get(request)
        if counts is None:
            counts = self._seen[request] = TokenCounts(request, self._vocab_size, self._device)
        counts.update(request)
        return counts


class TokenCounts:
    """Which tokens a request's prompt holds and how often its output holds each, kept up to date.

    params without penalties keep all of it zero: such a row costs memory but changes nothing.
    """

    def __init__(self, request: Request, vocab_size: int, device: torch.device) -> None:
        self.prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        self.output = torch.zeros(vocab_size, dtype=torch.float32, device=device)
        self._counted = request.num_prompt_tokens
        prompt = request.token_ids[: request.num_prompt_tokens]
        self.prompt[torch.tensor(prompt, device=device)] = True

    def update(self, request: Request) -> None:
        """Count the tokens generated since the last call."""
        new = request.token_ids[self._counted :]
        self._counted += len(new)
        index = torch.tensor(new, dtype=torch.int64, device=self.output.device)
        self.output.index_add_(0, index, torch.ones_like(index, dtype=torch.float32))


def resolve_seed(params: SamplingParams, engine_seed: int, arrival: int, index: int) -> int:
    """The seed of a request's draws, 63 bits: its own, or one made from the engine's and its arrival.

    Of `n` siblings each gets another one, so choice `index` of a seeded request is repeatable too.
    """
    base = params.seed if params.seed is not None else engine_seed + arrival * 0xBF58476D1CE4E5B9
    return (base + index * 0x9E3779B97F4A7C15) & (2**63 - 1)
