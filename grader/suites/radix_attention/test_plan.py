"""Task 5.2: what the layers of a step share is worked out once, for every sequence of the batch."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.anew import WELL, anew, retold
from grader.kit.apart import expect_unchanged
from grader.kit.poison import poisoned
from grader.submission import told
from grader.suites.radix_attention.batches import (
    SIZE,
    SPEC,
    Case,
    attention_of,
    expect_rows,
    make_case,
    sequences,
    with_prefix_of,
)
from grader.suites.radix_attention.planning import PlanningSeen, UnseenMasks
from grader.suites.radix_attention.plans import PROMISES, WrongField, wrong_field
from solutions.radix_attention import RadixAttention
from solutions.transformer_ops import TransformerOps

ROWS = (
    "The queries of a group may be anywhere in the flat batch, and in another order than in the "
    "group: each output goes back to the row that its query came from."
)

Check = Callable[[ModuleType, Case, str], None]

IN_ORDER_TOO = (
    "Side by side and the longest first they are wrong too, so it is not their order. It is the plan: "
    "the reference's `run` goes wrong by it as well."
)


def is_right_in_order(part: ModuleType, case: Case) -> bool:
    """Whether the sequences are attended rightly where order does not matter. If not, and the plan is
    as it should be, task 5.3 tells.

    That is one by one, and with equals side by side, the longest first.
    """
    orders = [[i] for i in range(len(case.seqs))]
    orders.append(sorted(range(len(case.seqs)), key=lambda i: (case.seqs[i][0], -case.seqs[i][1])))
    for order in orders:
        some = case.of(order)
        try:
            attention, expected = attention_of(part, some.pool), some.expected()
            plan = attention.plan(some.batch)
            with poisoned():
                out = attention.run(0, *some.qkv, SPEC, plan)
            if not torch.allclose(out, expected, rtol=1e-9, atol=1e-9):
                return False
        except NotImplementedError:
            raise
        except Exception:  # noqa: BLE001, whatever a part raises
            return False
    return True


def plans_wrongly(part: ModuleType, case: Case) -> bool:
    """Whether the reference's `run` goes wrong by the part's plan, which is made as the stub says."""
    mine = case.of(list(range(len(case.seqs))))
    expected = mine.expected()
    given = getattr(getattr(part, "radix_attention", None), "AttentionPlan", ())
    try:
        plan = attention_of(part, mine.pool).plan(mine.batch)
        if not isinstance(plan, given):
            return False
        with poisoned():
            out = RadixAttention(mine.pool, TransformerOps()).run(0, *mine.qkv, SPEC, plan)
    except NotImplementedError:
        raise
    except Exception:  # noqa: BLE001, whatever comes of such a plan
        return True
    return not torch.allclose(out, expected, rtol=1e-9, atol=1e-9)


def check_together(part: ModuleType, case: Case, why: str = ROWS) -> None:
    """Sequences that are attended rightly in one order are so in another; and where they are not in
    the one either, that is not due to the plan."""
    _checked(_check, part, case, why)


def check_plan(part: ModuleType, case: Case, why: str) -> None:
    """The reference's `run` goes well by the part's plan, if that is made as the stub says."""

    def check(part: ModuleType, case: Case, why: str) -> None:
        if plans_wrongly(part, case):
            mine = case.of(list(range(len(case.seqs))))
            expect_rows(mine, mine.run(part), mine.expected(), why)

    _checked(check, part, case, why)


def _checked(check: Check, part: ModuleType, case: Case, why: str) -> None:
    """Make the check; what fails is explained by what was kept, or by a field of the plan. why: said
    where no field shows more."""
    try:
        check(part, case, why)
    except NotImplementedError:
        raise
    except Exception as error:
        is_order = isinstance(error, Mismatch) and error.why.endswith(why)
        explained = retold(error, lambda: check(anew(part), case, why))
        is_kept = isinstance(explained, Mismatch) and explained.why == WELL
        if (explained is error or is_kept) and (field := wrong_field(part, case)):
            explained = _with_field(explained, field, why * is_order, WELL * is_kept)
        if explained is error:
            raise
        raise explained from error.__cause__ or error


def _check(part: ModuleType, case: Case, why: str) -> None:
    mine = case.of(list(range(len(case.seqs))))  # a check can be made twice
    expected = mine.expected()
    if is_right_in_order(part, mine):
        expect_rows(mine, mine.run(part), expected, why)
    elif plans_wrongly(part, mine):
        expect_rows(mine, mine.run(part), expected, IN_ORDER_TOO)


def _with_field(error: Exception, field: WrongField, before: str, after: str) -> Mismatch:
    """The failure with the field of the plan that is wrong. before, after: what else explains it."""
    ends = error.problem if isinstance(error, Mismatch) else told(error)
    why = " ".join(filter(None, (field.why or before or PROMISES[field.name], after)))
    problem = f"{field.problem}. What comes of it: {ends}"
    explained = Mismatch(problem, field.expected, field.got, why)
    explained.is_retold = True  # type: ignore[attr-defined]
    return explained


@task("5.2")
def test_equals_that_are_no_neighbours(part: ModuleType) -> None:
    """Two decodes with a prompt chunk between them each get the output of their own query."""
    check_together(part, make_case(sequences((1, 6), (3, 7), (1, 6))))


@task("5.2")
def test_a_short_sequence_before_a_long_one(part: ModuleType) -> None:
    """The order in a group is no order in the batch: the short decode comes first in one, last in the
    other."""
    check_together(part, make_case(sequences((1, 3), (1, 11), (1, 7))))


@task("5.2")
def test_chunks_that_are_no_neighbours(part: ModuleType) -> None:
    """Two chunks of one length with a decode between them: each of their queries finds its row."""
    check_together(part, make_case(sequences((2, 5), (1, 6), (2, 9))))


@task("5.2")
def test_neighbours_in_another_order(part: ModuleType) -> None:
    """Four sequences side by side that their group takes in another order: 0, 2, 1, 3."""
    why = (
        "Sorted by length these are 0, 2, 1, 3. They begin with the first and end with the last, and "
        "are no slice all the same: a slice has the order of the batch. Rows, tables and lengths must "
        "all be in the group's order."
    )
    for queries in (1, 2):
        lens = [(queries, keys) for keys in (11, 4, 7, 3)]
        check_together(part, make_case(sequences(*lens)), why)


@task("5.2")
def test_each_group_has_its_own_unused_slots(part: ModuleType) -> None:
    """The slots behind the keys of each sequence are unused, to the width of the group."""
    for lens in (((1, 6), (1, 3)), ((2, 9), (1, 2), (2, 5)), ((1, 13), (3, 4), (1, 1))):
        start_script()
        case = make_case(sequences(*lens), stale=float("nan"))
        note("# every slot without a key holds nan")
        check_together(part, case)


@task("5.2")
def test_only_the_blocks_needed_are_gathered(part: ModuleType) -> None:
    """A group gathers the blocks of its longest sequence for each, not the whole width of the tables."""
    for keys, blocks in ((5, 2), (8, 2), (9, 3)):
        start_script()
        case = make_case(sequences((6, 80), *[(1, keys)] * 6))
        case.run(part)
        gathered, needed = case.pool.blocks_gathered, 20 + 6 * blocks
        if gathered > needed:
            raise Mismatch(
                "more blocks are gathered than the keys lie in",
                f"at most {needed}: 20 for the chunk, {blocks} for each of six decodes",
                f"{gathered}: {_told_gathers(case.pool.gathers)}",
                "The tables of a batch are as wide as its longest needs; a decode of "
                f"{keys} keys needs {blocks} blocks of {SIZE} slots.",
            )


def _told_gathers(gathers: dict[tuple[int, ...], int]) -> str:
    """a table of 20 blocks for 1 sequence, a table of 3 blocks for each of 6 sequences"""
    return ", ".join(
        f"a table of {shape[-1]} blocks for {'each of ' * (shape[0] > 1)}{shape[0]} "
        f"sequence{'s' * (shape[0] > 1)}{f', {times} times' * (times > 1)}"
        for shape, times in gathers.items()
    )


@task("5.2")
def test_the_batch_is_left_alone(part: ModuleType) -> None:
    """plan and run leave the tensors of the batch as they were: the engine goes on with them."""
    for lens in (((1, 6), (3, 7), (1, 11), (1, 3)), ((1, 1), (2, 2), (3, 7))):
        start_script()
        expect_batch_kept(part, make_case(sequences(*lens)))


def expect_batch_kept(part: ModuleType, case: Case) -> None:
    """By a plan and one layer."""
    batch = case.batch
    names = ("query_start_loc", "seq_lens", "block_tables", "slot_mapping", "positions")
    before = {name: getattr(batch, name).clone() for name in names}
    attention = attention_of(part, case.pool)
    case.run_layer(attention, case.plan(attention, batch=batch))
    for name in names:
        expect_equal(
            getattr(batch, name).tolist(), before[name].tolist(), f"batch.{name} afterwards",
            why="An index with a slice is a view: changed in place it changes the batch's own tensor.",
        )  # fmt: skip
    expect_unchanged(batch.query_lens, case.batch.query_lens, "batch.query_lens")
    expect_unchanged(batch.kv_lens, case.batch.kv_lens, "batch.kv_lens")


@task("5.2")
def test_a_plan_stands_by_itself(part: ModuleType) -> None:
    """run goes by the plan that it is given, not by the one made last."""
    case, other = make_case(sequences((1, 6), (3, 7))), make_case(sequences((1, 5), (3, 8)))
    expected = case.expected()
    if not is_right_in_order(part, case):
        return
    attention = attention_of(part, case.pool)
    plan = case.plan(attention)
    other.plan(attention, "another")
    out = case.run_layer(attention, plan)
    why = "What a step shares belongs in the plan; kept on the object, the next plan overwrites it."
    expect_rows(case, out, expected, why)


@task("5.2")
def test_layers_do_not_plan_again(part: ModuleType) -> None:
    """From the second layer on run only writes, gathers and attends: every index is in the plan."""
    for lens in (((1, 6), (3, 7), (1, 11)), ((1, 6),)):
        start_script()
        expect_no_planning(part, make_case(sequences(*lens)))


def expect_no_planning(part: ModuleType, case: Case) -> None:
    """In the second layer of a plan."""
    seen = PlanningSeen()
    attention = attention_of(part, case.pool, UnseenMasks(seen))
    plan = case.plan(attention)
    case.run_layer(attention, plan, layer=0)
    with seen:
        case.run_layer(attention, plan, layer=1)
    note(f"# in the second layer: {', '.join(seen.names) or 'no planning'}")
    expect(
        not seen.names,
        f"the second layer makes index tensors, or fetches numbers from one, {len(seen.names)} times: "
        f"{', '.join(sorted(set(seen.names)))}",
        why=lists_in(plan)
        + "A model has dozens of layers with the same indices. Work them out in plan, once a step: on "
        "a GPU each of these calls is a copy to or from the device that the layer waits for.",
    )


def lists_in(plan: Any) -> str:
    """Which fields of a plan's groups are lists, of which each layer makes a tensor."""
    names = {
        name
        for group in getattr(plan, "groups", None) or ()
        for name in PROMISES
        if isinstance(getattr(group, name, None), list)
    }
    if not names:
        return ""
    told = " and ".join(f"`{name}`" for name in sorted(names))
    verb = "is a list" if len(names) == 1 else "are lists"
    return f"{told} of the plan's groups {verb}: each layer makes a tensor of it. "


@st.composite
def any_cases(draw: st.DrawFn) -> Case:
    """Sequences in any order, some behind one prefix, over a pool of any block size, of any blocks."""
    size = draw(st.sampled_from([SIZE, SIZE, 1, 3, 16]))
    lens = draw(
        st.lists(
            st.tuples(st.sampled_from([1, 1, 2, 5]), st.integers(0, 14)), min_size=1, max_size=7
        )
    )
    lens = [(queries, queries + before) for queries, before in lens]
    seqs = sequences(*lens, first_block=draw(st.integers(0, 1)), size=size)
    if draw(st.booleans()):
        longest = max(seqs, key=lambda seq: seq.keys - seq.queries)
        seqs = [with_prefix_of(longest, seq, size) for seq in seqs]
    padding = draw(st.sampled_from([0, max(block for seq in seqs for block in seq.blocks)]))
    return make_case(draw(st.permutations(seqs)), size=size, padding=padding)


@task("5.2")
@examples(40)
@given(case=any_cases())
def test_any_batch_is_its_sequences(part: ModuleType, case: Case) -> None:
    """In any batch, in any order, over any pool, every sequence gets what it gets alone."""
    check_together(part, case)
