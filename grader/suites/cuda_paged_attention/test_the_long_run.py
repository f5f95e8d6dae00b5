"""Task 16.3 beyond one plan: contexts of a million keys, and nothing that is left behind."""

import itertools
from types import ModuleType

import torch

from grader.kit import expect, start_script, task
from grader.kit.cuda_work import blamed
from grader.kit.kernels import Pool, expect_near
from grader.kit.memory import expect_keeps_nothing
from grader.kit.work import count_lines
from grader.suites.cuda_paged_attention.bench import (
    F32,
    joined,
    marked,
    queries,
    run_parts,
    spec_of,
)
from grader.suites.cuda_paged_attention.test_plan import WAVES, expect_plan


@task("16.3")
def test_parts_of_a_long_context(part: ModuleType) -> None:
    """Parts and windows may begin past 2**15, and every key still belongs to one part."""
    length, window, size = 33_000, 32_900, 256
    pool = marked([2 * size], dim=16, block_size=size)
    zeros, ones = (int(block) for block in pool.block_tables[0, :2])
    pool.value_blocks[zeros], pool.value_blocks[ones] = 0.0, 1.0
    blocks = -(-length // size)
    table = torch.full((1, blocks), zeros, dtype=torch.int32)
    table[0, -1] = ones
    last = length - (blocks - 1) * size
    pool = Pool(
        pool.key_blocks, pool.value_blocks, table, torch.tensor([length], dtype=torch.int32)
    )
    spec = spec_of(16, window=window)
    why = "Numbers of keys are int: 16 bits end at 32,767, and contexts do not."
    with blamed("out_of_bounds", why):
        found = run_parts(part, queries(1, 1, 16), pool, spec, 9, 4096)
    what = f"{window:,} of {length:,} keys of zero, of which the last {last} have the value 1"
    got = joined(found, [9]).float() * window
    expect_near(
        got, torch.full((1, 1, 16), float(last)), F32, f"{what}: their sum", why=why, roundings=10
    )


@task("16.3")
def test_plans_of_many_calls(part: ModuleType) -> None:
    """A plan is made for its call, of contexts of any length, and is not kept."""
    for rows, keys in ((8, 1_000_000), (300, 300), (8, 4_097)):
        expect_plan(part, rows, keys, 132, f"{WAVES[0].upper()}{WAVES[1:]}.")
    start_script()
    expect_keeps_nothing(lambda: part.plan_split(8, 16_384, 528), "plan_split")
    lengths = itertools.count(16_384)

    def two_plans() -> None:
        for _ in range(2):
            part.plan_split(8, next(lengths), 528)

    expect_keeps_nothing(two_plans, "plan_split, of a key more in each call,")


@task("16.3")
def test_a_plan_is_made_quickly(part: ModuleType) -> None:
    """What a plan costs goes by the parts that may be, not by the keys: each layer asks in each step."""
    rows, keys, slots = 8, 32_768, 528
    lines = count_lines(lambda: part.plan_split(rows, keys, slots))
    expect(
        lines <= keys,
        f"plan_split({rows}, {keys:,}, {slots}) runs {lines:,} lines of Python",
        why=f"Between 8 and {keys // 64} parts are possible here, as a part has 64 to 4,096 keys: what "
        "looks at more plans than that looks at those that are not allowed. A decode makes a plan in "
        "each layer, and waits for it.",
    )
