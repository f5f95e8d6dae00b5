"""A step's work on the host: the engine as it is, around a model that computes nothing."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from yaie.backends.base import Backend
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.contracts import Attend, KVCacheManager, Scheduler
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.build import build
from yaie.engine.machine import Machine
from yaie.models.adapter import ModelAdapter
from yaie.models.loader import LoadedModel
from yaie.models.tokenizer import Tokenizer
from yaie.models.tutor import TUTOR_PATH
from yaie.models.whole import Whole

BLOCK_SIZE = 16
PROMPT_TOKENS = 256
MAX_TOKENS = 1 << 20  # never reached: the same requests run from the first step to the last
TOKEN_BUDGET = 8192
VOCAB, HIDDEN = 64, 8
WARM_UP = 8


@dataclass(frozen=True, slots=True)
class Case:
    """How many requests run, how many wait behind them, and how many prefixes the tree holds."""

    running: int
    waiting: int
    cached: int


class StubAdapter(ModelAdapter):
    """Hidden states of zeros, and one fixed row of logits for all.

    seconds: that a forward pass takes, without the GIL, as on a device. spent: by all passes so far.
    """

    def __init__(self, max_length: int) -> None:
        # Nothing of a checkpoint: the base class would ask for its configuration.
        self.kv_layers = [KVLayerSpec(num_kv_heads=1, head_dim=HIDDEN)]
        self.vocab_size, self.max_length, self.shard = VOCAB, max_length, Whole()
        self.dtype, self.device = torch.float32, torch.device("cpu")
        self.seconds = self.spent = 0.0
        row = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
        # Greedy draws leave logits as they are, so the same rows do for every step.
        self._logits = row.repeat(TOKEN_BUDGET, 1)
        self._hidden = torch.zeros(TOKEN_BUDGET, HIDDEN)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter`."""
        begin = time.perf_counter()
        if self.seconds:
            time.sleep(self.seconds)
        self.spent += time.perf_counter() - begin
        return self._hidden[: len(token_ids)]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `ModelAdapter`."""
        return self._logits[: len(hidden)]


def time_scheduling(backend: Backend, policy: str, case: Case, steps: int) -> list[float]:
    """Milliseconds of each step's schedule, advance and update, with nothing in between."""
    parts = backend.parts
    paged_cache, part = parts["paged_cache"], parts["scheduler"]
    blocks = paged_cache.BlockManager(_num_blocks(case, steps), BLOCK_SIZE)
    cache = paged_cache.KVCacheManager(blocks, parts["radix_tree"].RadixTree(BLOCK_SIZE))
    scheduler: Scheduler = part.Scheduler(
        cache, part.POLICIES[policy](cache), max_num_seqs=case.running, token_budget=TOKEN_BUDGET
    )
    rng = random.Random(0)
    fill_tree(cache, case.cached, rng)
    for request in _requests(case, rng):
        scheduler.add(request)
    while scheduler.num_running < case.running:
        _move_on(scheduler)
    return [_ms(lambda: _move_on(scheduler)) for _ in range(steps)]


def _move_on(scheduler: Scheduler) -> None:
    """One step in which the model would say token 7 everywhere."""
    plan = scheduler.schedule()
    scheduler.advance(plan)
    scheduler.update(plan, [[7] for item in plan.scheduled if item.samples])


def time_steps(config: EngineConfig, backend: Backend, case: Case, steps: int) -> list[float]:
    """Milliseconds of each whole step in lab 7's order, one after the other."""
    with _machine(replace(config, overlap="off"), backend, case, steps) as (machine, _):
        return [_ms(machine.core.step) for _ in range(steps)]


def time_overlapped(
    config: EngineConfig, backend: Backend, case: Case, steps: int, forward_seconds: float
) -> list[float]:
    """Milliseconds that a step of the overlapped loop takes beyond its forward pass, step by step.

    forward_seconds: of each pass. Where control takes less, what is left is the critical path: what the
    worker does on the host before and after a pass, and how it is handed steps and results.
    """
    with _machine(replace(config, overlap="on"), backend, case, steps) as (machine, adapter):
        adapter.seconds = forward_seconds
        for _ in range(2):  # those in flight were sent without it
            machine.core.step()
        times = []
        for _ in range(steps):
            before = adapter.spent
            took = _ms(machine.core.step)
            times.append(took - 1e3 * (adapter.spent - before))
        return times


@contextmanager
def _machine(
    config: EngineConfig, backend: Backend, case: Case, steps: int
) -> Iterator[tuple[Machine, StubAdapter]]:
    """The engine around the stub, once every running request decodes.

    On one thread of PyTorch's: its operations are as small as launches, and several would wait for each
    other.
    """
    adapter = StubAdapter(_longest(steps))
    config = replace(
        config,
        num_blocks=_num_blocks(case, steps),
        block_size=BLOCK_SIZE,
        max_num_seqs=case.running,
        token_budget=TOKEN_BUDGET,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    machine = build(config, backend, _model(adapter))
    try:
        rng = random.Random(0)
        fill_tree(machine.cache, case.cached, rng)
        for request in _requests(case, rng):
            machine.core.add_request(request)
        while machine.scheduler.num_running < case.running:
            machine.core.step()
        for _ in range(WARM_UP):
            machine.core.step()
        yield machine, adapter
    finally:
        machine.worker.close()
        torch.set_num_threads(threads)


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.load(TUTOR_PATH)


def _model(adapter: StubAdapter) -> LoadedModel:
    return LoadedModel(
        adapter=adapter,
        tokenizer=_tokenizer(),
        name="stub",
        architecture="Stub",
        eos_token_ids=frozenset(),
        sampling_defaults={},
        folder=TUTOR_PATH,
        model_type="stub",
        max_length=adapter.max_length,
        dtype=adapter.dtype,
        device=adapter.device,
        num_parameters=0,
        weight_bytes=0,
    )


def _longest(steps: int) -> int:
    return PROMPT_TOKENS + steps + 64


def _num_blocks(case: Case, steps: int) -> int:
    """Room for everything, and for the share that admission keeps free."""
    needed = case.running * -(-_longest(steps) // BLOCK_SIZE) + 2 * case.cached
    return int(1.1 * needed) + 16


def fill_tree(cache: KVCacheManager, count: int, rng: random.Random) -> None:
    """Leave `count` prefixes of two blocks in the tree, as finished requests would."""
    for number in range(count):
        request = _request(f"cached{number}", _draw(rng, 2 * BLOCK_SIZE + 1), number)
        cache.admit(request)
        cache.allocate(request, 2 * BLOCK_SIZE)
        request.num_computed_tokens = 2 * BLOCK_SIZE
        cache.free(request)


def _requests(case: Case, rng: random.Random) -> Iterator[Request]:
    for number in range(case.running + case.waiting):
        yield _request(f"r{number}", _draw(rng, PROMPT_TOKENS), number)


def _request(request_id: str, token_ids: list[int], arrival: int) -> Request:
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    return Request(request_id, token_ids, params, arrival=arrival, max_tokens=MAX_TOKENS)


def _draw(rng: random.Random, count: int) -> list[int]:
    return rng.choices(range(VOCAB), k=count)


def _ms(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)
