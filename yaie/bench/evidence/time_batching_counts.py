"""What continuous batching can gain over static batching, for chapter "Continuous batching". No times.

    python -m yaie.bench.evidence.time_batching_counts

By arithmetic: the longest of a batch over the mean, for three distributions of output lengths. By
running both schedulers without a model: the steps that the workloads of the performance page take.
"""

from fractions import Fraction
from typing import Any

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.workload import Job, Lengths, draw_jobs
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.parts import Parts, load_parts

OUT = EVIDENCE / "time_batching_counts.json"
BATCHES = (4, 8, 16, 32, 48, 64)
NUM_ROWS, NUM_BLOCKS = 16, 4096
FOUR = (30, 34, 22, 57)  # answer tokens of requests A to D
ROUNDS = 40
WORKLOADS = {
    "uniform": Lengths((4, 16), (16, 256)),
    "geometric": Lengths((4, 32), (16, 256), 48.0),
}


def main() -> None:
    parts = load_parts("none")
    limits = {str(size): _limits(size) for size in BATCHES}
    steps = {}
    for name, lengths in WORKLOADS.items():
        steps[name] = _both(parts, draw_jobs(512, lengths, vocab=4096), NUM_ROWS)
        print(name, steps[name], flush=True)
    four = [Job([1], length) for length in FOUR]
    repeated = _both(parts, four * ROUNDS, len(four))
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_batching_counts",
            "workload": f"512 requests, {NUM_ROWS} at once; requests A to D, {ROUNDS} times, 4 at once",
            "limits": limits,
            "steps": steps,
            "four": _four() | {"repeated": repeated},
        },
    )


def _limits(size: int) -> dict[str, float]:
    """E[longest of `size`] / mean: how many times the steps a full engine saves, for long queues."""
    uniform = {length: Fraction(1, 241) for length in range(16, 257)}
    capped = _geometric(48, 256)
    return {
        "uniform_from_0": 2 * size / (size + 1),
        "uniform_16_256": _longest_over_mean(uniform, size),
        "geometric": _longest_over_mean(_geometric(48, 4000), size),
        "geometric_48_256": _longest_over_mean(capped, size),
    }


def _geometric(mean: int, most: int) -> dict[int, float]:
    """Chances of 1..most, what is longer counted as `most`."""
    go_on = 1 - 1 / mean
    chances = {length: go_on ** (length - 1) / mean for length in range(1, most)}
    return chances | {most: go_on ** (most - 1)}


def _longest_over_mean(chances: dict[int, Any], size: int) -> float:
    below, expected_longest = 0.0, 0.0
    for length, chance in sorted(chances.items()):
        upto = below + float(chance)
        expected_longest += length * (upto**size - below**size)
        below = upto
    return expected_longest / sum(length * float(chance) for length, chance in chances.items())


def _four() -> dict[str, float]:
    """The one static batch of A to D: its rows, and those in which nobody's token is computed."""
    rows, useful = max(FOUR) * len(FOUR), sum(FOUR)
    return {"steps": max(FOUR), "rows": rows, "useful": useful, "share": useful / rows}


def _both(parts: Parts, jobs: list[Job], num_rows: int) -> dict[str, float]:
    part = parts["scheduler"]
    static = _steps(parts, part.StaticScheduler, jobs, num_rows)
    continuous = _steps(parts, part.Scheduler, jobs, num_rows)
    return {"static": static, "continuous": continuous, "ratio": static / continuous}


def _steps(parts: Parts, kind: Any, jobs: list[Job], num_rows: int) -> int:
    """How many steps a scheduler needs until every job has its output."""
    paged_cache, part = parts["paged_cache"], parts["scheduler"]
    cache = paged_cache.KVCacheManager(paged_cache.BlockManager(NUM_BLOCKS, 16), None)
    scheduler = kind(cache, part.POLICIES["fcfs"](cache), max_num_seqs=num_rows, token_budget=2048)
    unfinished = set()
    for number, job in enumerate(jobs):
        request = Request(
            f"r{number}", job.prompt[:], SamplingParams(), arrival=number, max_tokens=job.num_output
        )
        unfinished.add(request)
        scheduler.add(request)
    steps = 0
    while unfinished:
        plan = scheduler.schedule()
        steps += 1
        scheduler.advance(plan)
        for request in scheduler.update(plan, [[7] for item in plan.scheduled if item.samples]):
            if request.num_output_tokens == request.max_tokens:
                scheduler.finish(request, FinishReason.LENGTH)
                unfinished.remove(request)
    return steps


if __name__ == "__main__":
    main()
