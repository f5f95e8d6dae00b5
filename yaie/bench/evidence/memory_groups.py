"""What grouping sequences saves, for chapter "Radix attention": calls, gathered slots, and time.

python -m yaie.bench.evidence.memory_groups
"""

import random
import statistics
import time
from collections.abc import Callable
from itertools import accumulate

import torch

from solutions.radix_attention import RadixAttention
from solutions.radix_attention.grouping import groups_of
from solutions.radix_attention.naive import naive_radix_attention
from solutions.transformer_ops import TransformerOps
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec
from yaie.parts import load_parts

OUT = EVIDENCE / "memory_groups.json"
BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM = 16, 8, 4, 32  # the tutor's layer
NUM_DECODES, SHORTEST, LONGEST, CHUNK = 64, 64, 1024, 256
TIMED = {"short": (32, 128), "mixed": (64, 1024), "long": (900, 1024)}
REPEATS = 15


def main() -> None:
    torch.set_num_threads(1)  # the comparison is of calls and copies, not of how they are spread
    kv_lens = [*_lengths(SHORTEST, LONGEST), CHUNK]
    batch, _ = _batch([1] * NUM_DECODES + [CHUNK], kv_lens)
    groupings = {
        "each": [[i] for i in range(NUM_DECODES + 1)],
        "all": [list(range(NUM_DECODES)), [NUM_DECODES]],
        "grouped": list(groups_of(batch)),
    }
    needed = sum(_slots(length) for length in kv_lens)
    figures = {
        "command": "python -m yaie.bench.evidence.memory_groups",
        "workload": f"{NUM_DECODES} decodes of {SHORTEST} to {LONGEST} keys and a chunk of {CHUNK}; "
        "times are of one layer of the tutor's shape for the decodes alone, one thread",
        "needed_slots": needed,
        "groupings": {name: _count(groups, kv_lens, needed) for name, groups in groupings.items()},
        "layer_ms": {name: _time(*lengths) for name, lengths in TIMED.items()},
    }
    print(figures)
    save(str(OUT), figures)


def _lengths(shortest: int, longest: int) -> list[int]:
    """Keys of each decode, longest first, as the engine's runner sorts them."""
    rng = random.Random(0)
    return sorted((rng.randint(shortest, longest) for _ in range(NUM_DECODES)), reverse=True)


def _slots(kv_len: int) -> int:
    return -(-kv_len // BLOCK_SIZE) * BLOCK_SIZE


def _count(groups: list[list[int]], kv_lens: list[int], needed: int) -> dict[str, float]:
    gathered = sum(len(group) * max(_slots(kv_lens[i]) for i in group) for group in groups)
    return {"calls": len(groups), "slots": gathered, "padding": gathered / needed - 1}


def _batch(query_lens: list[int], kv_lens: list[int]) -> tuple[AttentionBatch, int]:
    """Every sequence in blocks of its own, scattered over the pool; and the size of the pool."""
    counts = [_slots(length) // BLOCK_SIZE for length in kv_lens]
    shuffled = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
    tables = torch.zeros(len(kv_lens), max(counts), dtype=torch.int32)
    slots, positions = [], []
    for i, own in enumerate(shuffled.split(counts)):
        tables[i, : len(own)] = own
        new = torch.arange(kv_lens[i] - query_lens[i], kv_lens[i])
        slots.append(own[new // BLOCK_SIZE] * BLOCK_SIZE + new % BLOCK_SIZE)
        positions.append(new)
    batch = AttentionBatch(
        query_lens=query_lens,
        kv_lens=kv_lens,
        query_start_loc=torch.tensor([0, *accumulate(query_lens)], dtype=torch.int32),
        seq_lens=torch.tensor(kv_lens, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=torch.cat(slots),
        positions=torch.cat(positions),
    )
    return batch, sum(counts)


def _time(shortest: int, longest: int) -> dict[str, float]:
    """Median milliseconds of one layer, grouped and one sequence at a time; they must agree."""
    batch, num_blocks = _batch([1] * NUM_DECODES, _lengths(shortest, longest))
    device = torch.device("cpu")
    pool = load_parts("none")["paged_cache"].KVPool(
        [KVLayerSpec(KV_HEADS, HEAD_DIM)], num_blocks, BLOCK_SIZE, torch.float32, device
    )
    for memory in pool.blocks(0):
        memory.normal_()
    ops, spec = TransformerOps(), AttentionSpec(HEAD_DIM**-0.5)
    total = sum(batch.query_lens)
    q = torch.randn(total, HEADS, HEAD_DIM)
    k, v = torch.randn(2, total, KV_HEADS, HEAD_DIM)
    attention = RadixAttention(pool, ops)
    plan = attention.plan(batch)

    def grouped() -> torch.Tensor:
        return attention.run(0, q, k, v, spec, plan)

    def naive() -> torch.Tensor:
        pool.write(0, k, v, batch.slot_mapping)
        return naive_radix_attention(pool, ops, 0, q, spec, batch)

    torch.testing.assert_close(grouped(), naive(), rtol=1e-4, atol=1e-4)
    times = {"grouped": _median_ms(grouped), "one_at_a_time": _median_ms(naive)}
    calls = len(list(groups_of(batch)))
    return {**times, "ratio": times["one_at_a_time"] / times["grouped"], "calls": calls}


def _median_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


if __name__ == "__main__":
    main()
