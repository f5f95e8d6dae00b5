"""`yaie bench bookkeeping`: what scheduler, block tables and radix tree cost a step on the host."""

import random
import statistics
import time

from yaie.cli.bench.report import progress, save, show
from yaie.cli.bench.workload import spread
from yaie.cli.console import show_parts
from yaie.core.contracts import KVCacheManager, Scheduler
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.parts import PLAIN_LABS, Parts, load_parts

BLOCK_SIZE = 16
PROMPT_TOKENS = 256
MAX_TOKENS = 1 << 20  # never reached: the same requests run from the first step to the last


def run(
    running: list[int],
    waiting: list[int],
    cached: list[int],
    steps: int,
    policy: str,
    mine: str,
    json: str | None,
) -> None:
    """Time schedule + update of a step in which every running request decodes one token."""
    parts = load_parts(mine, labs=PLAIN_LABS)
    show_parts(parts.table())
    rows, figures = [], []
    with progress() as bar:
        cases = [(r, w, c) for r in running for w in waiting for c in cached]
        for case in bar.track(cases, description="measuring"):
            times = _measure(parts, policy, *case, steps)
            rows.append((*case, spread(times), f"{statistics.median(times) / case[0] * 1e3:.2f}"))
            figures.append({"running": case[0], "waiting": case[1], "cached": case[2], "ms": times})
    columns = ["running", "waiting", "cached prefixes", "ms a step", "us a request"]
    note = (
        f"decodes after prompts of {PROMPT_TOKENS} tokens, policy {policy}, median of {steps} steps"
    )
    show("Bookkeeping", columns, rows, [note])
    save(json, {"workload": note, "cases": figures})


def _measure(
    parts: Parts, policy: str, running: int, waiting: int, cached: int, steps: int
) -> list[float]:
    """Milliseconds of each of `steps` steps."""
    scheduler, cache = build(parts, policy, running, cached, steps)
    rng = random.Random(0)
    fill_tree(scheduler, cache, cached, rng)
    for arrival in range(running + waiting):
        prompt = [rng.randrange(1000) for _ in range(PROMPT_TOKENS)]
        scheduler.add(_request(f"r{arrival}", prompt, arrival))
    while scheduler.num_running < running:
        step(scheduler)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step(scheduler)
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def build(
    parts: Parts, policy: str, running: int, cached: int, steps: int
) -> tuple[Scheduler, KVCacheManager]:
    """A scheduler with seats for `running` requests, on a pool with room for everything."""
    blocks_each = -(-(PROMPT_TOKENS + steps + 64) // BLOCK_SIZE)
    paged_cache = parts["paged_cache"]
    blocks = paged_cache.BlockManager(running * blocks_each + 2 * cached + 16, BLOCK_SIZE)
    cache = paged_cache.KVCacheManager(blocks, parts["radix_tree"].RadixTree(BLOCK_SIZE))
    part = parts["scheduler"]
    scheduler = part.Scheduler(
        cache, part.POLICIES[policy](cache), max_num_seqs=running, token_budget=8192
    )
    return scheduler, cache


def fill_tree(scheduler: Scheduler, cache: KVCacheManager, count: int, rng: random.Random) -> None:
    """Leave `count` prefixes of two blocks in the tree, as finished requests would."""
    for i in range(count):
        tokens = [rng.randrange(1000) for _ in range(2 * BLOCK_SIZE + 1)]
        request = _request(f"cached{i}", tokens, i)
        cache.admit(request)
        cache.allocate(request, 2 * BLOCK_SIZE)
        request.num_computed_tokens = 2 * BLOCK_SIZE
        cache.free(request)


def step(scheduler: Scheduler) -> None:
    """One step in which the model would say token 7 everywhere."""
    plan = scheduler.schedule()
    scheduler.update(plan, [7] * sum(item.samples for item in plan.scheduled))


def _request(request_id: str, token_ids: list[int], arrival: int) -> Request:
    params = SamplingParams(max_tokens=MAX_TOKENS)
    return Request(request_id, token_ids, params, arrival=arrival, max_tokens=MAX_TOKENS)
