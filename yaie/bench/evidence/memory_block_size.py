"""What a block's size costs and what it buys, for chapter "PagedAttention". Counts only, no times.

    python -m yaie.bench.evidence.memory_block_size

The requests of `yaie bench memory` go through scheduler and cache manager without a model, for each
block size; and the four requests of the book are compared with each other.
"""

from itertools import takewhile

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.bench.workload import Lengths, draw_jobs
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import Parts, load_parts

OUT = EVIDENCE / "memory_block_size.json"
SIZES = [1, 4, 8, 16, 32, 64, 128, 256]
LENGTHS = Lengths((512, 1024), (16, 512))
NUM_REQUESTS, POOL_TOKENS, TOKEN_BUDGET, CONTEXT = 64, 1 << 18, 2048, 2048


def main() -> None:
    parts = load_parts("none")
    common, prompts = _four()
    sizes = {}
    for size in SIZES:
        filled, taken, requests, entries, contiguous = _fill(parts, size)
        sizes[str(size)] = {
            "share": filled / taken,
            "lost_slots_a_request": (taken - filled) / requests,
            "table_entries_a_request": entries / requests,
            "shared_tokens": common // size * size,
        }
        print(size, sizes[str(size)], flush=True)
    note = f"{NUM_REQUESTS} requests; {LENGTHS}; averaged over all steps; no prefix caching"
    figures = {
        "command": "python -m yaie.bench.evidence.memory_block_size",
        "workload": note,
        "sizes": sizes,
        "contiguous": {name: filled / slots for name, slots in contiguous.items()},
        "common_tokens": common,
        "prompt_tokens": prompts,
    }
    save(str(OUT), figures)


def _fill(parts: Parts, size: int) -> tuple[int, int, int, int, dict[str, int]]:
    """Summed over steps: slots that hold a token, slots taken, running requests, table entries; and
    the slots that three contiguous allocators would have taken."""
    paged_cache, part = parts["paged_cache"], parts["scheduler"]
    cache = paged_cache.KVCacheManager(paged_cache.BlockManager(POOL_TOKENS // size, size), None)
    policy = part.POLICIES["fcfs"](cache)
    scheduler = part.Scheduler(cache, policy, max_num_seqs=NUM_REQUESTS, token_budget=TOKEN_BUDGET)
    unfinished = {}
    for i, job in enumerate(draw_jobs(NUM_REQUESTS, LENGTHS, vocab=4096)):
        params = SamplingParams(max_tokens=job.num_output)
        request = Request(f"r{i}", job.prompt, params, arrival=i, max_tokens=job.num_output)
        unfinished[request] = job.num_output
        scheduler.add(request)
    filled = taken = requests = entries = 0
    contiguous = dict.fromkeys(("exact", "power_of_two", "whole_context"), 0)
    while unfinished:
        plan = scheduler.schedule()
        scheduler.advance(plan)
        for request in scheduler.update(plan, [[7] for item in plan.scheduled if item.samples]):
            if request.num_output_tokens == unfinished[request]:
                scheduler.finish(request, FinishReason.LENGTH)
                del unfinished[request]
        holding = [request for request in unfinished if request.num_computed_tokens]
        filled += sum(request.num_computed_tokens for request in holding)
        taken += cache.stats()["used_blocks"] * size
        requests += len(holding)
        entries += cache.stats()["used_blocks"]
        for request in holding:
            need = request.num_prompt_tokens + unfinished[request]
            contiguous["exact"] += need
            contiguous["power_of_two"] += 1 << (need - 1).bit_length()
            contiguous["whole_context"] += CONTEXT
    return filled, taken, requests, entries, contiguous


def _four() -> tuple[int, dict[str, int]]:
    """How many leading tokens the prompts of A to D have in common, and the length of each."""
    engine = LLMEngine(mine="none", num_blocks=64)
    ids = {name: engine.encode_chat(four.messages(name)) for name in four.QUESTIONS}
    columns = zip(*ids.values(), strict=False)
    common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return common, {name: len(tokens) for name, tokens in ids.items()}


if __name__ == "__main__":
    main()
