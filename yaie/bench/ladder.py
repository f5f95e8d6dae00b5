"""`yaie bench ladder`: what your parts are worth, one at a time and together, beside the reference."""

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from yaie.backends import decide
from yaie.bench.report import progress, save, show
from yaie.bench.workload import Job, Lengths, draw_jobs, run_jobs, spread
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError
from yaie.engine.llm_engine import LLMEngine
from yaie.engine.step.explaining import parts_in_steps
from yaie.models.loader import resolve_device
from yaie.parts import load_parts

SHARED_TOKENS = 64
WARM_UP = 8


@dataclass(slots=True)
class Rung:
    """An engine on some of the learner's parts, and what each run of it gave.

    mine: as in the configuration. cpu: seconds of processor time, which other programs of a busy machine
    hardly change. outputs: tokens of each job. failure: why it was given up.
    """

    name: str
    mine: str
    rates: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    failure: str | None = None


def run(
    config: EngineConfig, num_requests: int, lengths: Lengths, repeats: int, json: str | None
) -> None:
    """Run the same requests on every rung, in turn, `repeats` times, each time on a fresh engine.

    Raises ConfigError if no part of the learner's runs, and whatever the reference raises.
    """
    rungs = _rungs(config)
    if decide(config, resolve_device(config)).kind.name == "torch":
        # Attention of yours stands beside lab 5 of the reference, not beside C++.
        config = replace(config, backend="torch")
    reference = LLMEngine(replace(config, mine="none"))
    name, vocab_size = reference.model_name, reference.tokenizer.vocab_size
    del reference
    jobs = _jobs(num_requests, lengths, vocab_size, seed=0)
    warm_up = _jobs(min(num_requests, WARM_UP), lengths, vocab_size, seed=1)
    if config.num_blocks is None:
        config = replace(config, num_blocks=_blocks_of(jobs, config.block_size))
    _climb(config, rungs, warm_up, jobs, repeats)
    workload = (
        f"{num_requests} requests at once, every other one after a shared prefix of "
        f"{SHARED_TOKENS} tokens; {lengths}; greedy, end of sequence ignored"
    )
    columns = (
        "to first token: median over the requests; peak KV use: the most blocks in use after a step, "
        f"of {config.num_blocks}"
    )
    show(
        f"Your parts on {name}",
        ["", "output tokens/s", "to the reference", "to first token, ms", "peak KV use", "tokens"],
        [_row(rung, rungs[0]) for rung in rungs],
        [workload, columns, *_findings(rungs)],
    )
    save(json, {"workload": workload, "rungs": {r.name: _figures(r, rungs[0]) for r in rungs}})


def _rungs(config: EngineConfig) -> list[Rung]:
    parts = load_parts(config.mine, labs=decide(config, resolve_device(config)).labs)
    show_parts(parts.table())
    labs = [part.lab for part in parts_in_steps(parts)]
    if not labs:
        raise ConfigError(
            "none of your parts would run, so there is nothing to compare with the reference. Write the "
            "tasks of a lab in labs/ and grade them with `make grade`: once all have passed, its part "
            "is measured here. --mine sampler measures yours without that.",
            param="mine",
        )
    rungs = [Rung("reference", "none"), *(Rung(f"your {lab}", lab) for lab in labs)]
    return rungs if len(labs) == 1 else [*rungs, Rung("all yours", ",".join(labs))]


def _jobs(count: int, lengths: Lengths, vocab_size: int, seed: int) -> list[Job]:
    """Random requests; every other one shares a prefix with its like, which is then worth finding."""
    shared = (SHARED_TOKENS, SHARED_TOKENS)
    (prefix,) = draw_jobs(1, Lengths(shared, (1, 1)), vocab_size, seed=-1 - seed)
    jobs = draw_jobs(count, lengths, vocab_size, seed)
    for i in range(0, count, 2):
        jobs[i] = Job(prefix.prompt + jobs[i].prompt, jobs[i].num_output)
    return jobs


def _blocks_of(jobs: Sequence[Job], block_size: int) -> int:
    """Enough for all of them at once if none shared anything."""
    return sum(-(-(len(job.prompt) + job.num_output) // block_size) for job in jobs)


def _climb(
    config: EngineConfig,
    rungs: Sequence[Rung],
    warm_up: Sequence[Job],
    jobs: Sequence[Job],
    repeats: int,
) -> None:
    """Measure the rungs in turn: a drift of the machine then meets all alike."""
    with progress() as bar:
        task = bar.add_task("warming up", total=repeats * len(rungs))
        # Once in full: oneDNN compiles a kernel for each number of rows, once in a process.
        _measure(config, Rung("warming up", "none"), warm_up, jobs)
        for _ in range(repeats):
            for rung in rungs:
                bar.update(task, description=rung.name)
                if rung.failure is None:
                    _measure(config, rung, warm_up, jobs)
                bar.advance(task)


def _measure(config: EngineConfig, rung: Rung, warm_up: Sequence[Job], jobs: Sequence[Job]) -> None:
    gc.collect()  # the engine before this one: two pools may not fit
    peak = 0.0

    def look() -> None:
        nonlocal peak
        peak = max(peak, engine.stats()["kv_usage"])

    try:
        engine = LLMEngine(replace(config, mine=rung.mine))
        run_jobs(engine, warm_up)
        begin = time.process_time()
        trace = run_jobs(engine, jobs, after_step=look)
        cpu = time.process_time() - begin
    except YaieError as error:
        if rung.mine == "none":
            raise
        rung.failure = error.message
        return
    rung.rates.append(trace.tokens_per_second)
    rung.firsts.append(1e3 * statistics.median(trace.first))
    rung.peaks.append(peak)
    rung.cpu.append(cpu)
    rung.outputs = trace.outputs


def _ratios(rung: Rung, reference: Rung) -> list[float]:
    """Throughput to the reference's of the same round."""
    return [ours / theirs for ours, theirs in zip(rung.rates, reference.rates, strict=False)]


def _differing(rung: Rung, reference: Rung) -> list[tuple[int, int]]:
    """(job, position of the first token that differs) of each answer that is not the reference's."""
    found = []
    for job, (ours, theirs) in enumerate(zip(rung.outputs, reference.outputs, strict=False)):
        if ours != theirs:
            same = (a == b for a, b in zip(ours, theirs, strict=False))
            found.append((job, next((i for i, equal in enumerate(same) if not equal), len(ours))))
    return found


def _row(rung: Rung, reference: Rung) -> tuple[str, ...]:
    if rung.failure is not None:
        return rung.name, "failed", "", "", "", ""
    differing = len(_differing(rung, reference))
    return (
        rung.name,
        spread(rung.rates),
        "1" if rung is reference else spread(_ratios(rung, reference)),
        spread(rung.firsts),
        f"{statistics.median(rung.peaks):.1%}",
        f"{differing} of {len(rung.outputs)} answers differ" if differing else "the same",
    )


def _findings(rungs: Sequence[Rung]) -> list[str]:
    """What a learner has to know beyond the figures: who failed, and who computed something else."""
    reference, *yours = rungs
    found = []
    for rung in yours:
        if rung.failure is not None:
            found.append(f"{rung.name}: {rung.failure}")
        elif differing := _differing(rung, reference):
            job, position = differing[0]
            found.append(
                f"{rung.name}: {len(differing)} of {len(rung.outputs)} answers differ from the "
                f"reference's; that to request {job + 1} from output token {position + 1} on"
            )
    return found or ["every rung generated exactly the reference's tokens"]


def _figures(rung: Rung, reference: Rung) -> dict[str, Any]:
    return {
        "mine": rung.mine,
        "tokens_per_second": rung.rates,
        "ratio": _ratios(rung, reference),
        "first_token_ms": rung.firsts,
        "cpu_seconds": rung.cpu,
        "peak_kv_usage": rung.peaks,
        "answers": len(rung.outputs),
        "differing": [{"request": job, "token": at} for job, at in _differing(rung, reference)],
        "failure": rung.failure,
    }
