"""Beyond one small step: others of the same lengths, unlike layers, long texts, many requests."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_equal, note, start_script, task
from grader.kit.expect import claiming
from grader.suites.radix_attention.batches import (
    SPEC,
    Case,
    CountingPool,
    Seq,
    attention_of,
    expect_like,
    expect_rows,
    make_case,
    sequences,
    told_spec,
)
from grader.suites.radix_attention.test_plan import (
    check_plan,
    check_together,
    is_right_in_order,
)
from grader.suites.radix_attention.test_run import CountedMasks
from grader.suites.radix_attention.words import spans
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionSpec, KVLayerSpec

NAN = float("nan")
MANY = 300
"""Sequences of one length: more than the numbers of a byte."""

PREFIX_ALONE = (
    "Sequences whose tables begin with the same block, and that are equally long, have blocks of their "
    "own behind it. Each row of a group's table is that of its own sequence."
)
TABLES_TOO = (
    "The lengths are those of another step, the tables and slots are not: other requests, or the same "
    "ones after a preemption, may be as long. A plan follows from all of its batch."
)
ANY_LENGTH = (
    "A chunk may have as many queries as a step takes, and a sequence as many keys as memory holds. "
    "Each query sees all the keys up to its own."
)
SHAPES = "Layers may have other numbers of heads and other head dimensions: ask q, k and v."
STRIDES = (
    "q, k and v may be slices of one tensor, the model's fused projection, whose rows have gaps between "
    "them. Without gaps the same numbers come out right. Indexing and reshape follow the strides."
)
SEEN = (
    "Only unused slots are cleaned. The query, and what it sees, are attended as they are: by NaN in "
    "its output the engine knows that a request went wrong."
)

ONE_WRITE = (
    "`write` takes the K and V of all tokens of the batch: another call is one more in every layer of "
    "every step."
)
SEEN_BEFORE = (
    "It is the output for {spec}, with which this plan was run before. The scale, the softcap and the "
    "sinks belong to the layer that asks: only what follows from the batch, and the masks of each "
    "window, is shared through the plan."
)
CLEANED_BEFORE = (
    "The first run of this plan had no NaN. Every run gathers anew, and must clean the unused slots of "
    "what it has gathered."
)
SAME_PLAN = "`plan` has returned one and the same {what} for both batches. "


@task("5.2")
def test_a_prefix_in_common(part: ModuleType) -> None:
    """Equally long sequences that begin with the same block go on with blocks of their own."""
    tables = ([5, 2, 1], [5, 2, 3], [5, 4, 6])
    check_together(part, make_case([Seq(1, 11, table) for table in tables]), PREFIX_ALONE)


@task("5.2")
def test_the_lengths_of_another_step(part: ModuleType) -> None:
    """Two steps with the same lengths have tables and slots of their own, also side by side."""
    lens = ((1, 6), (3, 7), (1, 11))
    one, other = make_case(sequences(*lens)), make_case(sequences(*lens, first_block=9))
    if not (is_right_in_order(part, one) and is_right_in_order(part, other)):
        return
    other = Case(other.seqs, other.pool, tuple(x.flip(0) for x in other.qkv))  # type: ignore[arg-type]
    one = Case(one.seqs, other.pool, one.qkv)
    attention = attention_of(part, other.pool)
    plan = one.plan(attention, "one")
    others = other.plan(attention, "other")
    shared = "plan" if others is plan else ""
    if getattr(others, "groups", None) is getattr(plan, "groups", plan):
        shared = shared or "list of groups"
    why = SAME_PLAN.format(what=shared) * bool(shared) + TABLES_TOO
    for case, which, name in ((one, plan, "one"), (other, others, "other")):
        expected = case.expected()
        expect_rows(case, case.run_layer(attention, which, name=name), expected, why)


def far_case() -> Case:
    """Decodes of 40,000 keys and of a few, in a group; every slot without a key holds NaN."""
    size, lens = 1000, (40_000, 3, 33_000)
    seqs = [Seq(1, lens[0], list(range(1, 41))), Seq(1, lens[1], [41])]
    seqs.append(Seq(1, lens[2], list(range(74, 41, -1))))
    pool = CountingPool([KVLayerSpec(1, 2)], 75, size, torch.float64, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    for stored in pool.blocks(0):
        stored.normal_(generator=generator)
        stored[0], stored[41, 3:] = NAN, NAN
    q, k, v = torch.randn(3, 3, 1, 2, generator=generator, dtype=torch.float64)
    return Case(seqs, pool, (q, k, v))


@task("5.2")
def test_a_long_sequence_beside_short_ones(part: ModuleType) -> None:
    """Lengths and slots may be beyond 32,767, and all slots without a key are known as such."""
    note("# every slot without a key holds nan")
    check_together(part, far_case(), "")


def many_case() -> Case:
    """Decodes of 7 and of 6 keys, one group; every slot without a key holds NaN."""
    half = MANY // 2
    note(
        f"# sequences 0 to {half - 1} have 1 query and 7 keys, {half} to {MANY - 1} 1 query and 6 keys"
    )
    note("# every slot without a key holds nan")
    return make_case(sequences(*[(1, 7 - 2 * i // MANY) for i in range(MANY)]), stale=NAN)


class CountedRows(TransformerOps):
    """Operations that count the queries that are attended. calls: how many each call was given.
    queries: those, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []
        self.queries: list[Tensor] = []

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
    ) -> Tensor:
        self.calls.append(q.shape[0] * q.shape[1])
        self.queries += q.flatten(0, 1).clone()
        return super().attention(q, k, v, mask, spec)

    def told(self) -> str:
        """4 times 64"""
        runs = [(size, len(list(run))) for size, run in groupby(self.calls)]
        return ", ".join(
            f"{times} times {size}" if times > 1 else f"{size}" for size, times in runs
        )

    def left(self, count: int) -> str:
        """What `count` queries are more than those that were given."""
        rest = count - sum(self.calls)
        if rest <= 0 or not self.calls:
            return ""
        piece = " a shorter last piece" if rest < self.calls[-1] else " a piece"
        return f" The other {rest} were not attended:{piece} is missing."

    def times(self, query: Tensor) -> int:
        """How often a query was given."""
        return sum(torch.equal(query, each) for each in self.queries)


@task("5.2")
def test_many_sequences_are_planned(part: ModuleType) -> None:
    """However many sequences a group has, the plan has the rows, tables and unused slots of all."""
    check_plan(part, many_case(), "")


@task("5.3")
def test_many_sequences_are_attended(part: ModuleType) -> None:
    """However many sequences a group has, each of them gets its output."""
    case = many_case()
    expected = case.expected()
    ops = CountedRows()
    attention = attention_of(part, case.pool, ops)
    out = case.run_layer(attention, case.plan(attention))
    expect_like(out, expected)
    wrong = (~torch.isclose(out, expected, rtol=1e-9, atol=1e-9).flatten(1).all(1)).nonzero()
    if len(wrong):
        rows, given = wrong.flatten().tolist(), f"`attention` was given {ops.told()} queries."
        problem = f"of {MANY} rows of the output {len(rows)} are wrong: {spans(rows)}"
        expect(False, problem, why=given + ops.left(MANY))


@task("5.3")
def test_long_texts(part: ModuleType) -> None:
    """A chunk of 70 queries and a decode with 1,500 keys see all their keys."""
    case = make_case(sequences((70, 200), (1, 1500), (1, 9)), size=16)
    expected = case.expected()
    expect_rows(case, case.run(part), expected, ANY_LENGTH)


SINKS = torch.tensor([0.5, 0.0, 2.0, -2.0])
KINDS = (
    AttentionSpec(0.3),
    AttentionSpec(1.0),
    AttentionSpec(0.3, softcap=2.0),
    AttentionSpec(0.3, sinks=SINKS),
    AttentionSpec(0.3, sinks=SINKS.flip(0)),
)


@task("5.3")
def test_layers_of_many_kinds(part: ModuleType) -> None:
    """One plan serves layers with other scales, softcaps and sinks, each by its own."""
    case = make_case(sequences((1, 9), (1, 6), (3, 7)), NAN, torch.float32)
    note("# every slot without a key holds nan")
    attention = attention_of(part, case.pool)
    plan = case.plan(attention)
    before: list[tuple[AttentionSpec, Tensor]] = []
    for spec in KINDS:
        expected = case.expected(0, spec)
        out = case.run_layer(attention, plan, 0, spec)
        expect_like(out, expected)
        was = [told_spec(old) for old, given in before if torch.allclose(out, given, atol=2e-5)]
        why = SEEN_BEFORE.format(spec=was[0]) if was else ""
        if before and not bool(out.isfinite().all()):
            with claiming("Each run of a plan cleans what it has gathered."):
                expect_rows(case, out, expected, CLEANED_BEFORE, 2e-5, 0, spec)
        expect_rows(case, out, expected, why, 2e-5, 0, spec)
        before.append((spec, expected))


@task("5.3")
def test_layers_of_other_shapes(part: ModuleType) -> None:
    """Layers may have other numbers of heads and other head dimensions than the first."""
    layers = [KVLayerSpec(2, 8), KVLayerSpec(1, 4)]
    case = make_case(sequences((1, 9), (1, 6), (3, 7)))
    blocks, size = case.pool.num_blocks, case.pool.block_size
    pool = CountingPool(layers, blocks, size, torch.float64, torch.device("cpu"))
    attention, generator = attention_of(part, pool), torch.Generator().manual_seed(1)
    plan = attention.plan(case.batch)
    for layer, kind in enumerate(layers):
        for stored in pool.blocks(layer):
            stored.normal_(generator=generator)
        shapes = ((4, kind.head_dim), *[(kind.num_kv_heads, kind.head_dim)] * 2)
        q, k, v = (torch.randn(5, *s, generator=generator, dtype=torch.float64) for s in shapes)
        here = Case(case.seqs, pool, (q, k, v))
        note(f"# layer {layer}: q {list(q.shape)}, k and v {list(k.shape)}")
        expected = here.expected(layer)
        out = here.run_layer(attention, plan, layer)
        expect_equal(
            list(out.shape), list(q.shape), f"the shape of layer {layer}'s output", why=SHAPES
        )
        expect_rows(here, out, expected, SHAPES, layer=layer)


@task("5.3")
def test_windows_in_turns(part: ModuleType) -> None:
    """Where layers with a window and layers without take turns, each mask is still made once."""
    case, ops = make_case(sequences((1, 6), (3, 7))), CountedMasks()
    attention = attention_of(part, case.pool, ops)
    plan = case.plan(attention)
    windows = [replace(SPEC, window=window) for window in (None, 3)]
    for layer, spec in enumerate(windows):
        case.run_layer(attention, plan, layer, spec)
    made = ops.made
    for layer, spec in enumerate(windows):
        case.run_layer(attention, plan, layer, spec)
        why = (
            "A plan may hold a mask for each window: the first layer that has the window makes it."
        )
        what = f"masks made by a layer with window {spec.window}, as an earlier one had"
        expect_equal(ops.made - made, 0, what, why=why)


@task("5.3")
def test_slices_of_a_fused_projection(part: ModuleType) -> None:
    """q, k and v may be slices of one tensor, with gaps in memory between their rows."""
    case = make_case(sequences((1, 6), (3, 7), (2, 2)))
    expected = case.expected()
    dense = case.of(list(range(len(case.seqs)))).run(part)
    fused = torch.cat([x.flatten(1) for x in case.qkv], dim=1)
    sizes = [x[0].numel() for x in case.qkv]
    parts = zip(fused.split(sizes, dim=1), case.qkv, strict=True)
    q, k, v = (part.unflatten(1, x.shape[1:]) for part, x in parts)
    attention = attention_of(part, case.pool)
    plan = case.plan(attention)
    note(f"# q, k and v are slices of one tensor: row strides {q.stride(0)}, not {sizes}")
    note("out = attention.run(0, q, k, v, spec, plan)")
    is_dense_right = torch.allclose(dense, expected, rtol=1e-9, atol=1e-9)
    out = attention.run(0, q, k, v, SPEC, plan)
    expect_rows(case, out, expected, STRIDES * is_dense_right)


def with_nan(case: Case) -> Iterator[tuple[str, Case, int]]:
    """The case of two queries with one number NaN, where that is, and the first row that sees it."""
    for where, name in enumerate("qkv"):
        here = case.of([0])
        here.qkv[where][1, 0, 0] = NAN
        yield f"row 1 of {name}", here, 1
    for index, name in enumerate(("key", "value")):
        here = case.of([0])
        here.pool.blocks(0)[index][case.seqs[0].blocks[0], 1, 0, 0] = NAN
        yield f"the stored {name} of position 1", here, 0


@task("5.3")
def test_what_is_seen_is_not_made_finite(part: ModuleType) -> None:
    """NaN in a query, or in a key or value that it sees, comes out as NaN."""
    for where, case, first in with_nan(make_case(sequences((2, 7)))):
        start_script()
        note(f"# a nan in {where}")
        expected = case.expected()
        out = case.run(part)
        stored = _stored(case, where)
        for row in range(first, len(out)):
            lost = expected[row].isnan() & ~out[row].isnan()
            expect(
                not bool(lost.any()),
                f"a NaN in {where} is lost: the query at position {case.position(row)} sees it, and "
                f"{int(lost.sum())} of its {lost.numel()} numbers that should be NaN are not",
                why=f"{stored}{SEEN}",
            )


def _stored(case: Case, where: str) -> str:
    """Whether the NaN of a new key or value reached the pool."""
    which = {"row 1 of k": 0, "row 1 of v": 1}.get(where)
    if which is None:
        return ""
    slot = case.batch.slot_mapping[1]
    if bool(case.pool.blocks(0)[which].flatten(0, 1)[slot].isnan().any()):
        return "The pool holds the NaN: it was lost after the gather. "
    return "The pool does not hold the NaN: it was lost before the write. "


@task("5.3")
def test_a_layer_does_nothing_twice(part: ModuleType) -> None:
    """A layer writes its new keys and values in one call, and attends to each query once."""
    case, ops = make_case(sequences((1, 11), (1, 6), (3, 7))), CountedRows()
    attention = attention_of(part, case.pool, ops)
    case.run_layer(attention, case.plan(attention))
    writes, tokens = case.pool.writes, len(case.batch.positions)
    if writes > 1:
        raise Mismatch("calls of the pool's `write` in a layer", "1", str(writes), ONE_WRITE)
    if sum(ops.calls) > tokens:
        what = "queries that `attention` is given in a layer"
        got = f"{sum(ops.calls)}: {' + '.join(map(str, ops.calls))}"
        times = [ops.times(query) for query in case.qkv[0]]
        rows = [row for row, number in enumerate(times) if number > 1]
        often = f"given {times[rows[0]]} times" if rows else ""
        which = "Each query" if len(rows) == tokens else f"Of the batch's queries row {spans(rows)}"
        why = f"{which} is {often}." if rows and len({times[row] for row in rows}) == 1 else ""
        raise Mismatch(what, f"at most the {tokens} of the batch", got, why)
