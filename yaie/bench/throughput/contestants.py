"""Who runs a workload, and how they take turns: our engine here, peers in processes of their own."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import torch
from rich.progress import Progress

from yaie.bench.workload import Job, raise_if_failed, with_room
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.system.gc_tuning import freeze_heap

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Run:
    """Requests queued at once and run to the end. outputs: what was generated; a peer keeps its own.
    hit_rate: share of the prompts' tokens that came from the prefix cache."""

    seconds: float
    output_tokens: int
    outputs: list[list[int]] = field(default_factory=list)
    hit_rate: float = 0.0

    @property
    def rate(self) -> float:
        """Useful output tokens per second."""
        return self.output_tokens / self.seconds


class Runner(Protocol):
    """Carries out the run with this number; warm: with what the runs before it left in the cache."""

    def __call__(self, number: int, warm: bool = False) -> Run: ...


class Contestant(Protocol):
    """One way to carry out the same runs. name: in the table and in the file."""

    name: str

    def opened(self) -> AbstractContextManager[Runner]:
        """Ready to run, until the end of the context; then what it held is free again."""
        ...


@dataclass(slots=True)
class Ours:
    """Our engine in this process. look: called with the engine once it is loaded."""

    name: str
    config: EngineConfig
    runs: Sequence[Sequence[Job]]
    temperature: float = 0.0
    look: Callable[[LLMEngine], None] = lambda _: None

    @contextmanager
    def opened(self) -> Iterator[Runner]:
        """See `Contestant`."""
        held = [LLMEngine(self.config)]  # in nobody's name: what is taken out of here is gone
        freeze_heap()  # as a server does
        try:
            self.look(held[0])
            yield lambda number, warm=False: run_at_once(
                held[0], self.runs[number], self.temperature, warm
            )
        finally:
            held.pop().close()
            free_memory()


def with_engine(config: EngineConfig, use: Callable[[LLMEngine], Result]) -> Result:
    """What `use` makes of an engine that is gone afterwards."""
    engine = LLMEngine(config)
    freeze_heap()
    try:
        return use(engine)
    finally:
        engine.close()
        del engine
        free_memory()


def free_memory() -> None:
    """Give back what nobody holds, on a GPU too: the next engine takes most of what is free."""
    gc.unfreeze()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_at_once(
    engine: LLMEngine, jobs: Sequence[Job], temperature: float, warm: bool = False
) -> Run:
    """Queue every job and step to the end, with nothing cached before unless `warm`.

    Nothing is noted on the way, as in an application that wants the answers. Raises YaieError if a
    request fails or is short of a token.
    """
    if not warm:
        engine.reset_prefix_cache()
    before = engine.stats()
    begin = time.perf_counter()
    requests = [
        engine.add_request(
            job.prompt,
            SamplingParams(temperature=temperature, max_tokens=job.num_output, ignore_eos=True),
        )[0]
        for job in jobs
    ]
    while engine.has_work:
        for output in engine.step():
            if output.finish_reason is not None:
                raise_if_failed(output)
    seconds = time.perf_counter() - begin
    outputs = [request.output_token_ids for request in requests]
    check_lengths(jobs, [len(output) for output in outputs])
    after = engine.stats()
    cached, prompt = (after[name] - before[name] for name in ("cached_tokens", "prompt_tokens"))
    return Run(seconds, sum(map(len, outputs)), outputs, cached / prompt)


def check_lengths(jobs: Sequence[Job], lengths: Sequence[int]) -> None:
    """Raise YaieError unless every job got the tokens that it asked for."""
    for number, (job, length) in enumerate(zip(jobs, lengths, strict=True)):
        if length != job.num_output:
            raise YaieError(f"request {number} got {length} tokens instead of {job.num_output}")


def prepared(config: EngineConfig, num_requests: int) -> EngineConfig:
    """The configuration as given, with room in the queue, and in a CPU's KV pool, for the workload."""
    return with_room(replace(config, max_waiting=max(config.max_waiting, num_requests)))


def race(
    contestants: Sequence[Contestant], num_runs: int, bar: Progress, *, in_turn: bool
) -> dict[str, list[Run]]:
    """Every run of every contestant.

    in_turn: all are loaded, and each run is carried out by one after the other, so that a drift of the
    machine meets all alike. Otherwise each has the machine to itself: two engines that each take most
    of a GPU's memory do not fit.
    """
    runs: dict[str, list[Run]] = {one.name: [] for one in contestants}
    task = bar.add_task("", total=num_runs * len(contestants))
    for group in [list(contestants)] if in_turn else [[one] for one in contestants]:
        with ExitStack() as stack:
            runners = {}
            for one in group:
                bar.update(task, description=f"starting {one.name}")
                runners[one.name] = stack.enter_context(one.opened())
            for number in range(num_runs):
                for name, runner in runners.items():
                    bar.update(task, description=name)
                    runs[name].append(runner(number))
                    bar.advance(task)
            runners.clear()
    return runs
