"""What a pool that is too small costs, for chapter "The scheduler". Counts only, no times.

    python -m yaie.bench.evidence.time_preemption_counts

Sixteen requests without a model, prompts of 64 tokens, outputs of 64 to 256, blocks of 16. In pools of
several sizes: steps, preemptions, tokens computed more than once, blocks moved to the host and back.
"""

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.workload import Lengths, draw_jobs
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.parts import Parts, load_parts

OUT = EVIDENCE / "time_preemption_counts.json"
NUM_REQUESTS, BLOCK_SIZE = 16, 16
LENGTHS = Lengths((64, 64), (64, 256))
POOLS = (256, 160, 96, 64)  # blocks


def main() -> None:
    parts = load_parts("none")
    pools: dict[str, dict[str, dict[str, int]]] = {}
    for num_blocks in POOLS:
        pools[str(num_blocks)] = {
            "recompute": _play(parts, num_blocks, swap=False, watermark=0),
            "swap": _play(parts, num_blocks, swap=True, watermark=0),
            "watermark": _play(parts, num_blocks, swap=False, watermark=num_blocks // 8),
        }
        print(num_blocks, pools[str(num_blocks)], flush=True)
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_preemption_counts",
            "workload": f"{NUM_REQUESTS} requests at once; {LENGTHS}; blocks of {BLOCK_SIZE}; "
            "no prefix caching; the watermark is an eighth of the pool",
            "pools": pools,
        },
    )


def _play(parts: Parts, num_blocks: int, *, swap: bool, watermark: int) -> dict[str, int]:
    paged_cache, part = parts["paged_cache"], parts["scheduler"]
    blocks = paged_cache.BlockManager(num_blocks, BLOCK_SIZE, 1024 if swap else 0)
    cache = paged_cache.KVCacheManager(blocks, None)
    policy = part.POLICIES["fcfs"](cache)
    scheduler = part.Scheduler(
        cache, policy, max_num_seqs=NUM_REQUESTS, token_budget=512, swap=swap, watermark=watermark
    )
    unfinished = set()
    for number, job in enumerate(draw_jobs(NUM_REQUESTS, LENGTHS, vocab=4096)):
        request = Request(
            f"r{number}", job.prompt, SamplingParams(), arrival=number, max_tokens=job.num_output
        )
        unfinished.add(request)
        scheduler.add(request)
    needed = sum(len(request.token_ids) + request.max_tokens - 1 for request in unfinished)
    steps = preemptions = computed = moved = 0
    while unfinished:
        plan = scheduler.schedule()
        steps += 1
        preemptions += len(plan.preempted)
        computed += plan.num_tokens
        moved += len(plan.swap_out) + len(plan.swap_in)
        scheduler.advance(plan)
        for request in scheduler.update(plan, [[7] for item in plan.scheduled if item.samples]):
            if request.num_output_tokens == request.max_tokens:
                scheduler.finish(request, FinishReason.LENGTH)
                unfinished.remove(request)
    return {
        "steps": steps,
        "preemptions": preemptions,
        "again": computed - needed,
        "moved": moved,
    }


if __name__ == "__main__":
    main()
