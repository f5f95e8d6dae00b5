"""A worker around a model of one attention layer, control's side of it in few words, and a naive oracle
that draws a request's tokens one by one without pool, batch or seats."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from solutions.cuda_graphs import ToHost
from solutions.paged_cache import KVPool
from solutions.radix_attention import RadixAttention
from solutions.sampler import Sampler
from solutions.speculative import accepted
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import (
    AttentionSpec,
    KVLayerSpec,
    PenaltyBatch,
    SamplingBatch,
    ScheduledRequest,
)
from yaie.core.contracts import Attend
from yaie.core.contracts import Worker as AnyWorker
from yaie.core.logprobs import TokenLogprob
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.core.step import Extras, Fault, NewSeats, StepInput, StepMasks, StepResult
from yaie.engine.asks import READ, of
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask, Vocabulary
from yaie.engine.asks.logprobs import by_row
from yaie.engine.step.encoder import new_seats
from yaie.models.adapter import ModelAdapter
from yaie.worker.graphs import device_for
from yaie.worker.worker import Worker

VOCAB, WIDTH = 24, 8
BLOCK, MAX_LEN, NUM_SEATS = 4, 64, 5
MAX_BLOCKS = MAX_LEN // BLOCK
CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=0)


class TinyAdapter(ModelAdapter):
    """Each token attends to all before it, in double precision: how a batch is cut changes no draw.

    fails: raise instead of computing.
    """

    def __init__(self) -> None:
        config = SimpleNamespace(vocab_size=VOCAB)
        super().__init__(config, TransformerOps(), torch.float64, CPU, MAX_LEN)
        self.kv_layers = [KVLayerSpec(1, WIDTH)]
        generator = torch.Generator().manual_seed(0)

        def weight(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self.embedding = weight(VOCAB, WIDTH)
        self.places = weight(MAX_LEN, WIDTH)
        # Flat enough for noise, penalties and history to matter.
        self.head = 0.3 * weight(WIDTH, VOCAB)
        self.fails = False

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter`."""
        if self.fails:
            raise RuntimeError("this model is out of order")
        hidden = F.embedding(token_ids, self.embedding) + 0.3 * self.places[positions]
        heads = hidden[:, None]
        return hidden + 2 * attend(0, heads, heads, heads, AttentionSpec(WIDTH**-0.5))[:, 0]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `ModelAdapter`."""
        return (hidden @ self.head).float()


def dense_logits(adapter: ModelAdapter, token_ids: Sequence[int]) -> Tensor:
    """[len, vocab] float32, with attention written out."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
        scores = (q[:, 0] @ k[:, 0].T) * spec.scale
        future = torch.ones(scores.shape).triu(1).bool()
        return (scores.masked_fill(future, float("-inf")).softmax(1) @ v[:, 0])[:, None]

    positions = torch.arange(len(token_ids))
    return adapter.logits(adapter.forward(torch.tensor(token_ids), positions, attend))


def naive_tokens(request: Request, count: int, adapter: ModelAdapter | None = None) -> list[int]:
    """The first tokens of a request's output, each drawn alone from the whole sequence."""
    adapter = adapter or TinyAdapter()
    tokens = request.token_ids[: request.num_prompt_tokens]
    for _ in range(count):
        logits = dense_logits(adapter, tokens)[-1:]
        for token, bias in request.params.logit_bias:
            logits[0, token] += bias
        tokens.append(int(Sampler().sample(logits, naive_batch(request, tokens))))
    return tokens[request.num_prompt_tokens :]


def naive_batch(request: Request, tokens: list[int]) -> SamplingBatch:
    """The row of one request that has these tokens."""
    params, prompt = request.params, tokens[: request.num_prompt_tokens]
    output = tokens[request.num_prompt_tokens :]
    return SamplingBatch(
        temperature=torch.tensor([params.temperature]),
        top_k=torch.tensor([max(0, params.top_k)]),
        top_p=torch.tensor([params.top_p]),
        min_p=torch.tensor([params.min_p]),
        seeds=torch.tensor([request.seed]),
        steps=torch.tensor([len(output)]),
        all_greedy=params.temperature == 0,
        any_top_k=params.top_k > 0,
        any_top_p=params.top_p < 1,
        any_min_p=params.min_p > 0,
        penalties=PenaltyBatch(
            torch.tensor([params.presence_penalty]),
            torch.tensor([params.frequency_penalty]),
            torch.tensor([params.repetition_penalty]),
            torch.tensor([[float(output.count(token)) for token in range(VOCAB)]]),
            torch.tensor([[token in prompt for token in range(VOCAB)]]),
        ),
    )


@dataclass(frozen=True, slots=True)
class Share:
    """A row of a step, its drafts counted in `num_tokens`."""

    seat: int
    start: int
    num_tokens: int
    samples: bool = True
    drafts: tuple[int, ...] = ()


def step_of(*shares: Share, number: int = 0, new: NewSeats | None = None, **more: Any) -> StepInput:
    """These rows as a StepInput."""
    step = StepInput(
        step=number,
        seats=ints([share.seat for share in shares]),
        starts=ints([share.start for share in shares]),
        num_tokens=ints([share.num_tokens for share in shares]),
        samples=np.array([share.samples for share in shares], dtype=np.bool_),
        new=new,
        **more,
    )
    if any(share.drafts for share in shares):
        step.drafts = ints([token for share in shares for token in share.drafts])
        step.num_drafts = ints([len(share.drafts) for share in shares])
    return step


def new_of(requests: Mapping[int, Request]) -> NewSeats:
    """Requests by seat, as they enter."""
    return new_seats(list(requests.values()), ints(list(requests)), Vocabulary(VOCAB))


def asked(shares: Sequence[Share], requests: Mapping[int, Request]) -> Extras:
    """What the requests of these rows, by seat, ask for in a step."""
    asking: dict[Ask, list[tuple[int, ScheduledRequest]]] = {}
    for row, share in enumerate(shares):
        request = requests[share.seat]
        item = ScheduledRequest(request, share.start, share.num_tokens, [], share.samples)
        for ask in of(request, READ):
            if ask.wants(item):
                asking.setdefault(ask, []).append((row, item))
    return {ask.name: ask.ask(own) for ask, own in asking.items()}


def logprobs_of(result: StepResult, name: str = "logprobs") -> dict[int, list[TokenLogprob]]:
    """What a result tells of drawn tokens, or by another name, by row."""
    return by_row(result.extras.get(name))


def scattered_tables() -> np.ndarray:
    """[NUM_SEATS, MAX_BLOCKS]: every block of the pool, in no order."""
    order = np.random.default_rng(0).permutation(NUM_SEATS * MAX_BLOCKS)
    return order.astype(np.int32).reshape(NUM_SEATS, MAX_BLOCKS)


def tables_as_sent() -> dict[str, np.ndarray]:
    """The fields of a StepInput that bring `scattered_tables`."""
    seats, columns = np.indices((NUM_SEATS, MAX_BLOCKS), dtype=np.int32)
    blocks = scattered_tables().flatten()
    return {
        "table_seats": seats.flatten(),
        "table_columns": columns.flatten(),
        "table_blocks": blocks,
    }


def make_worker(adapter: ModelAdapter | None = None, sampler: Any = None) -> Worker:
    """A worker with a pool that holds every seat at full length."""
    adapter = adapter or TinyAdapter()
    pool = KVPool(adapter.kv_layers, NUM_SEATS * MAX_BLOCKS, BLOCK, torch.float64, CPU)
    return Worker(
        adapter,
        RadixAttention(pool, TransformerOps()),
        pool,
        sampler or Sampler(),
        CPU,
        num_seats=NUM_SEATS,
        max_model_len=MAX_LEN,
        explain=lambda error: Fault(str(error), where=type(error).__name__),
        to_host=lambda tensor: ToHost(tensor, device_for(CPU)),
        accepted=accepted,
    )


Masks = Callable[[StepInput], StepMasks]


class Rig:
    """A worker, and what control knows of its seats.

    requests: by seat; they gain what is drawn. computed: by seat, how many tokens have K and V.
    """

    def __init__(self, worker: AnyWorker | None = None) -> None:
        self.worker: AnyWorker = worker or make_worker()
        self.requests: dict[int, Request] = {}
        self.computed: dict[int, int] = {}
        self.num_steps = 0

    def step(
        self,
        *seats: int,
        enter: Mapping[int, Request] | None = None,
        most: int = MAX_LEN,
        drafts: Mapping[int, Sequence[int]] | None = None,
        masks: Masks | None = None,
    ) -> StepResult:
        """One step of these seats, all known ones by default: each computes what it lacks.

        enter: requests that take seats. most: tokens of a seat. drafts: by seat.
        """
        step = self.plan(*seats, enter=enter, most=most, drafts=drafts)
        step.masked = masks is not None
        handle = self.worker.execute(step)
        if masks is not None:
            handle.mask(masks(step))
        result = handle.result()
        self._take(step, result)
        return result

    def plan(
        self,
        *seats: int,
        enter: Mapping[int, Request] | None = None,
        most: int = MAX_LEN,
        drafts: Mapping[int, Sequence[int]] | None = None,
    ) -> StepInput:
        """The StepInput of `step`, not yet sent."""
        self.requests |= enter or {}
        self.computed |= dict.fromkeys(enter or {}, 0)
        drafts = drafts or {}
        shares = [
            self._share(seat, most, tuple(drafts.get(seat, ()))) for seat in seats or self.requests
        ]
        shares.sort(key=lambda share: share.num_tokens > 1)
        more = tables_as_sent() if self.num_steps == 0 else {}
        self.num_steps += 1
        new = new_of(enter) if enter else None
        more["extras"] = asked(shares, self.requests)
        return step_of(*shares, number=self.num_steps - 1, new=new, **more)

    def _share(self, seat: int, most: int, drafts: tuple[int, ...]) -> Share:
        missing = len(self.requests[seat].token_ids) - self.computed[seat]
        samples = missing <= most
        count = missing + len(drafts) if samples else most
        return Share(seat, self.computed[seat], count, samples, drafts if samples else ())

    def _take(self, step: StepInput, result: StepResult) -> None:
        """As `Scheduler.update` does."""
        drawn = iter(result.token_ids)
        counts = step.num_drafts.tolist() or [0] * len(step.seats)
        for row, seat in enumerate(step.seats.tolist()):
            new = next(drawn, []) if step.samples[row] else []
            self.requests[seat].token_ids += new
            promised = int(step.samples[row]) + counts[row]
            self.computed[seat] += int(step.num_tokens[row]) - promised + len(new)

    def output(self, seat: int) -> list[int]:
        """What the request of a seat has drawn."""
        return self.requests[seat].output_token_ids


def request_of(prompt: Sequence[int], seed: int = 0, **params: Any) -> Request:
    """A request, greedy unless it gives a temperature."""
    params = {"temperature": 0.0} | params
    return Request(f"r{seed}", list(prompt), SamplingParams(**params), seed=seed)


MIXED = [
    {"temperature": 0.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.8, "frequency_penalty": 1.5, "presence_penalty": 0.5},
    {"temperature": 1.3, "top_k": 6, "repetition_penalty": 1.7},
    {"temperature": 0.7, "min_p": 0.05, "logit_bias": ((3, 2.0), (5, -100.0))},
]
"""Sampling parameters of a batch in which no two rows want the same."""


def mixed_requests() -> dict[int, Request]:
    """One for each seat, with prompts of several lengths."""
    rng = np.random.default_rng(1)
    return {
        seat: request_of(rng.integers(0, VOCAB, 1 + 5 * seat).tolist(), seat, **MIXED[seat])
        for seat in range(NUM_SEATS)
    }
