"""How many threads PyTorch computes with on a CPU."""

import os
import time

import torch

from yaie.system.processor import usable_cores
from yaie.worker.warmup import Warmup, WarmupError
from yaie.worker.worker import Worker

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
LONG_STEP = 0.2
"""Seconds. A model whose steps take so long gains from every core, and a trial would delay the start."""
ROUNDS = 6
"""Steps with each number of threads, in turns. The shortest counts."""
WORTH = 1.03
"""Further threads must make a step shorter by this factor."""


def use_threads(wanted: int | None, num_ranks: int = 1) -> None:
    """Compute with so many threads from here on; None for what the environment says, else one for each
    physical core that this process may use. num_ranks: processes that share these threads.

    PyTorch looks at neither affinity nor quotas everywhere. It never gets more than it has: a caller may
    have told it.
    """
    if wanted is None:
        cores, has = usable_cores(), torch.get_num_threads()
        is_told = cores is None or told_by_environment()
        if is_told and num_ranks == 1:
            return
        wanted = has if is_told or cores is None else min(cores, has)
    torch.set_num_threads(max(1, wanted // num_ranks))


def told_by_environment() -> bool:
    """Whether a variable says how many threads compute."""
    return any(os.environ.get(name) for name in VARIABLES)


def step_seconds(worker: Worker, most: int) -> dict[int, float]:
    """What a decode step of one request takes with 1, 2, 4, ... and `most` threads; nothing for steps
    that are long, or fail.

    The steps are made up, and what they leave is overwritten. This thread has `most` threads afterwards.
    """
    run, counts = Warmup(worker), sorted({1, most} | {2**i for i in range(1, most.bit_length())})
    taken: dict[int, float] = {}

    def step(count: int) -> float:
        torch.set_num_threads(count)
        begin = time.perf_counter()
        run.decodes(1)
        return time.perf_counter() - begin

    try:
        run.prompts([1])
        if min(step(1), step(1)) > LONG_STEP:
            return {}
        for count in counts * (ROUNDS + 1):  # the first of each starts threads and fills caches
            seconds = step(count)
            taken[count] = min(seconds, taken.get(count, LONG_STEP))
    except WarmupError:  # of a learner's part, whose first request tells it better
        return {}
    finally:
        torch.set_num_threads(most)
    return taken


def worth_having(taken: dict[int, float]) -> int:
    """The number of threads, of those measured, beyond which a step gains nothing that counts."""
    best = min(taken.values())
    return min(count for count, seconds in taken.items() if seconds <= WORTH * best)
