"""`yaie bench throughput`: useful output tokens per second, beside static batching."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from yaie.bench.report import progress, save, show
from yaie.bench.workload import Job, Lengths, draw_jobs, run_jobs, spread, with_room
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.llm_engine import LLMEngine

BATCH_SIZES = (8, 16, 32, 64)
OUR_WARM_UP, THEIR_WARM_UP = 64, 8
Measure = Callable[[Sequence[Job]], float]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the workload; `measure` returns useful output tokens per second.

    warm_up: how many jobs run before anything counts. Ours take more: oneDNN compiles a kernel for each
    number of rows that it meets, once in the life of a server.
    """

    name: str
    measure: Measure
    warm_up: int


def run(
    config: EngineConfig,
    num_requests: int,
    lengths: Lengths,
    against: str,
    repeats: int,
    json: str | None,
) -> None:
    """Run every contestant `repeats` times, in turn, and print medians and the ratio to the best peer.

    Raises ConfigError if `against` is unknown or the lengths do not fit the model.
    """
    if against not in ("transformers", "static", "nothing"):
        raise ConfigError("--against must be transformers, static or nothing", param="against")
    config = replace(with_room(config), prefix_caching=False)
    engine = LLMEngine(config)
    show_parts(engine.parts)
    jobs = draw_jobs(num_requests, lengths, engine.tokenizer.vocab_size)
    contestants = [_ours(config, engine)]
    contestants += _peers(config, engine, against)
    rates = _measure(contestants, jobs, repeats)

    peers = [contestant.name for contestant in contestants[1:]]
    notes = [f"{num_requests} requests at once; {lengths}; greedy, end of sequence ignored"]
    figures: dict[str, Any] = {"workload": notes[0], "tokens_per_second": rates}
    if peers:
        best = max(peers, key=lambda name: statistics.median(rates[name]))
        ratios = [
            ours / theirs for ours, theirs in zip(rates[_name(config)], rates[best], strict=True)
        ]
        figures["ratio"] = {"to": best, "values": ratios}
        notes.append(f"ratio to {best}: {spread(ratios)}")
    rows = [(name, spread(values)) for name, values in rates.items()]
    show(f"Throughput of {engine.model_name}", ["", "useful output tokens/s"], rows, notes)
    save(json, figures)


def _name(config: EngineConfig) -> str:
    return f"YAIE, {config.batching} batching, up to {config.max_num_seqs} at once"


def _ours(config: EngineConfig, engine: LLMEngine) -> Contestant:
    def measure(jobs: Sequence[Job]) -> float:
        return run_jobs(engine, jobs).tokens_per_second

    return Contestant(_name(config), measure, OUR_WARM_UP)


def _peers(config: EngineConfig, engine: LLMEngine, against: str) -> list[Contestant]:
    if against == "nothing":
        return []
    if against == "static":
        static = replace(config, batching="static")
        return [_ours(static, LLMEngine(static))]
    generate = _Transformers(config, engine)
    return [
        Contestant(
            f"transformers generate, static batches of {size}",
            generate.with_batch(size),
            THEIR_WARM_UP,
        )
        for size in BATCH_SIZES
    ]


def _measure(
    contestants: Sequence[Contestant], jobs: Sequence[Job], repeats: int
) -> dict[str, list[float]]:
    """Rates of each contestant, run in turn: a drift of the machine then meets all alike."""
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    with progress() as bar:
        task = bar.add_task("", total=(repeats + 1) * len(contestants))
        for contestant in contestants:
            bar.update(task, description=f"warming up: {contestant.name}", advance=1)
            contestant.measure(jobs[: contestant.warm_up])
        for _ in range(repeats):
            for contestant in contestants:
                bar.update(task, description=contestant.name)
                rates[contestant.name].append(contestant.measure(jobs))
                bar.advance(task)
    return rates


class _Transformers:
    """The peer: `generate` on left-padded batches, each running until its longest output is done."""

    def __init__(self, config: EngineConfig, engine: LLMEngine) -> None:
        from transformers import AutoModelForCausalLM

        from yaie.models.hub import resolve_model

        folder, _ = resolve_model(config.model, config.revision, False)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=engine.model.dtype)
        self._model = model.to(engine.model.device).eval()

    def with_batch(self, size: int) -> Measure:
        """A measure that takes `size` requests at a time, in order of arrival."""

        def measure(jobs: Sequence[Job]) -> float:
            begin = time.perf_counter()
            for start in range(0, len(jobs), size):
                self._generate(jobs[start : start + size])
            return sum(job.num_output for job in jobs) / (time.perf_counter() - begin)

        return measure

    @torch.inference_mode()
    def _generate(self, jobs: Sequence[Job]) -> None:
        width = max(len(job.prompt) for job in jobs)
        ids = torch.zeros(len(jobs), width, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, job in enumerate(jobs):
            ids[row, width - len(job.prompt) :] = torch.tensor(job.prompt)
            mask[row, width - len(job.prompt) :] = 1
        tokens = max(job.num_output for job in jobs)
        self._model.generate(
            ids.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            do_sample=False,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
