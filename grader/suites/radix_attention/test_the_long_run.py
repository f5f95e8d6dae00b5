"""Beyond one call and a small batch: results that stay, nothing left behind, a thousand groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from grader.kit import Mismatch, expect, note, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.radix_attention.batches import (
    HEADS,
    KV_HEADS,
    SIZE,
    SPEC,
    Case,
    CountingPool,
    Seq,
    attention_of,
    batch_of,
    expect_rows,
    lengths_of,
    make_case,
    sequences,
)
from grader.suites.radix_attention.test_plan import check_together
from solutions.radix_attention.grouping import groups_of as reference_groups_of
from yaie.core.batch import AttentionBatch, KVLayerSpec

MANY = 1050
"""Sequences or groups of a batch: no contract has a limit."""
LAST_BLOCK = 33_000

ALL = (
    "A batch has as many sequences as the scheduler put into it, and each is in a group. A sequence "
    "without one is never attended: its request gets a token of whatever lies in the output."
)
WIDE_IDS = (
    "Blocks are numbered as far as memory goes, beyond 32,767. Tables, slots and rows are indices: "
    "int64, or int32 as in the batch, and nothing narrower."
)
NO_LIMIT = (
    "A group takes all the sequences that the rule allows. MIN_GROUP is no upper limit, and "
    "there is no other."
)
ALL_GROUPS = (
    "A plan has as many groups as its batch needs. The rows of a group that is left out hold whatever "
    "was in the memory of the output."
)


@task("5.1")
def test_all_of_many_sequences_are_grouped(part: ModuleType) -> None:
    """However many sequences and query lengths a batch has, each sequence is in one group."""
    for what, lens in (
        (f"{MANY} decodes of 1 key", [(1, 1)] * MANY),
        (f"{MANY} chunks of 1, 2, 3, ... tokens", [(i + 1, i + 1) for i in range(MANY)]),
    ):
        start_script()
        note(f"list(groups_of(batch)) of {what}")
        batch = lengths_of(lens)
        found = [list(group) for group in part.grouping.groups_of(batch)]
        members = [i for group in found for i in group]
        missing = sorted(set(range(MANY)) - set(members))
        expect(
            not missing,
            f"of {what} {len(missing)} are in no group, from sequence {missing[:1]} on",
            why=ALL,
        )
        expect(len(members) == MANY, f"of {what} some are in two groups", why=ALL)
        needed = len(list(reference_groups_of(batch)))
        if len(found) > needed:
            sizes = sorted({len(group) for group in found})
            problem = f"of {what} there are {len(found)} groups, the largest of {sizes[-1]}"
            raise Mismatch(problem, str(needed), str(len(found)), NO_LIMIT)


@task("5.1")
def test_groups_of_many_calls(part: ModuleType) -> None:
    """Groups are made for their call, and nothing is left behind."""
    batches = [batch_of(sequences(*[(1, 5)] * n, (2, 2 * n))) for n in (2, 3, 4)]

    def call(batch: AttentionBatch) -> Any:
        return list(part.grouping.groups_of(batch))

    expect_results_stand([lambda batch=batch: call(batch) for batch in batches], "groups_of")  # type: ignore[misc]
    expect_keeps_nothing(lambda: call(batches[0]), "groups_of")
    start_script()
    numbers = count(2)
    note("# batches of one sequence after the other, each a token longer than the last one")
    expect_keeps_nothing(lambda: call(lengths_of([(1, next(numbers))])), "groups_of")


@task("5.2")
def test_plans_leave_nothing_behind(part: ModuleType) -> None:
    """A plan belongs to its step: the object keeps nothing of it."""
    case = make_case(sequences((1, 6), (3, 7), (1, 11)))
    attention, batch = attention_of(part, case.pool), case.batch
    expect_keeps_nothing(lambda: attention.plan(batch), "plan")
    start_script()
    longer = as_they_grow(attention)
    expect_keeps_nothing(lambda: attention.plan(next(longer)), "plan")


def as_they_grow(attention: Any) -> Iterator[AttentionBatch]:
    """Batches of one decode, each a token longer than the last one, all in block 1."""
    note("# decodes of one sequence, each a token longer than the last one")
    return (batch_of([Seq(1, keys, [1] * -(-keys // SIZE))]) for keys in count(2))


@task("5.3")
def test_outputs_of_many_calls(part: ModuleType) -> None:
    """The output of a layer is made for its call, and nothing is left behind."""
    case = make_case(sequences((1, 6), (3, 7)))
    attention = attention_of(part, case.pool)
    plan = attention.plan(case.batch)

    def run(layer: int, number: int = 0) -> Any:
        q, k, v = (x + number for x in case.qkv)
        return attention.run(layer, q, k, v, SPEC, plan)

    layers = (0, 1, 2, 0, 1)
    calls = [lambda n=n, layer=layer: run(layer, n) for n, layer in enumerate(layers)]
    expect_results_stand(calls, "run")
    expect_keeps_nothing(lambda: run(0), "run")
    start_script()
    longer = as_they_grow(attention)
    one = [x[:1] for x in case.qkv]

    def decode() -> None:
        attention.run(0, *one, SPEC, attention.plan(next(longer)))

    expect_keeps_nothing(decode, "a plan and its run")


@task("5.2")
def test_blocks_of_a_large_pool(part: ModuleType) -> None:
    """A pool has more blocks than 16 bits can number, and a table may name any of them."""
    seqs = [Seq(1, 7, [LAST_BLOCK - 1, 2]), Seq(2, 6, [LAST_BLOCK, 1])]
    layers = [KVLayerSpec(1, 2)]
    pool = CountingPool(layers, LAST_BLOCK + 1, SIZE, torch.float64, torch.device("cpu"))
    for stored in pool.blocks(0):
        stored.normal_(generator=torch.Generator().manual_seed(1))
    q, k, v = torch.randn(3, 3, 1, 2, generator=torch.Generator().manual_seed(2)).double()
    check_together(part, Case(seqs, pool, (q, k, v)), WIDE_IDS)


@task("5.3")
def test_the_types_of_the_engine(part: ModuleType) -> None:
    """The output has the dtype of q, also where that is float16 or bfloat16."""
    why = "A model computes in one dtype: what `run` makes, the mask and the output, has that of q."
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        start_script()
        case = make_case(sequences((1, 11), (1, 6), (3, 7)), dtype=dtype)
        note(f"# q, k, v and the pool in {dtype}")
        expected = case.expected()
        expect_rows(case, case.run(part), expected, why, tolerance=2e-2)


@contextmanager
def each_alone(part: ModuleType) -> Iterator[None]:
    """In the block every sequence is a group of its own, if `plan` asks `groups_of`."""
    module = getattr(part, "radix_attention", None)
    if not hasattr(module, "groups_of"):
        yield
        return
    with patch.object(module, "groups_of", lambda batch: ([i] for i in range(len(batch.kv_lens)))):
        yield


@task("5.3")
def test_all_of_many_groups_are_attended(part: ModuleType) -> None:
    """However many groups a plan has, each of them gets its output."""
    case = make_case(sequences(*[(1, 1)] * MANY))
    note(f"# {MANY} decodes of 1 key, each a group of its own: each sees its own value alone")
    with each_alone(part):
        attention = attention_of(part, case.pool)
        plan = attention.plan(case.batch)
        q, k, v = case.qkv
        out = attention.run(0, q.clone(), k.clone(), v.clone(), SPEC, plan)
    right = v.repeat_interleave(HEADS // KV_HEADS, dim=1)
    wrong = (~torch.isclose(out, right).flatten(1).all(1)).nonzero().flatten().tolist()
    expect(
        not wrong,
        f"of {MANY} rows {len(wrong)} are wrong, the first is {wrong[:1]}",
        why=ALL_GROUPS,
    )
