"""Task 22.6: a decode step of the delta rule in one kernel."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.compiled import expect_compiles, for_tasks
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import padded_apart
from grader.kit.triton_watch import Seen, watching
from grader.submission import Submission
from grader.suites.state_cache.operations import ON_DEVICE, counting
from grader.suites.state_cache.rules import (
    BF16,
    F32,
    NAMES,
    ROUNDED,
    delta,
    delta_tokens,
    drawn,
    expect_values,
)
from yaie.core.contracts.states import StateBatch

FRESH = (
    "A fresh sequence's slot still holds another sequence's state, which may be NaN: mask the load, "
    "and it gives zeros. 0 times NaN is NaN."
)
OTHERS = (
    "A sequence without tokens, and one of more than `most`, is not this kernel's: its programs end "
    "before they load or store anything."
)
ONCE = (
    "Between the tokens of a sequence the state stays in registers: it is loaded before the first and "
    "stored after the last."
)
SLOT = "Sequence i has slot slots[i] of the pool, and rows starts[i] to starts[i + 1] of the batch."
GROUP = "Value head h goes with key head h // GROUP: the heads of one group are neighbours."
TAIL = (
    "A tile has a power of two of rows and columns, a state has not: lanes past its end load 0 and "
    "store nothing."
)
STRIDES = (
    "q, k, v, log_decay and beta have gaps of their own here: each row and head is found with the "
    "strides of the tensor that it is in."
)
WIDE = "What is loaded in 16 bits is widened to float32; only what goes to out is rounded."
ONE = "One launch, of a program for each sequence, value head and block of columns."
COPIED = (
    "q, k and v are views of one product. A copy of them is one more kernel for each, in every layer of "
    "every step: the kernel takes their strides."
)
BLOCKS = (
    "A program has 8 columns at least, which are neighbours in memory. With one column each it loads "
    "single numbers, d_v apart, and keys and queries are loaded d_v times."
)
UNTOUCHED = -77.0
"""What rows of out hold before."""


def run(
    part: ModuleType, tokens: Mapping[str, Tensor], pool: Tensor, lens: list[int],
    slots: list[int], fresh: list[bool], most: int = 8, **how: Any,
) -> tuple[Tensor, Seen]:  # fmt: skip
    """out, in whose rows UNTOUCHED is left where nothing is written. tokens: [T, ...]. Bounds are too
    high."""
    note(f"delta_decode(lengths {lens}, slots {slots}, is_fresh {fresh}, most {most})")
    v = tokens["v"]
    out = torch.full(v.shape, UNTOUCHED, dtype=v.dtype)
    starts = torch.tensor([0, *lens]).cumsum(0).int()
    bounds = [max(1, 2 * length) for length in lens]
    batch = StateBatch(bounds, starts, torch.tensor(slots), torch.tensor(fresh))
    with watching(**how) as seen:
        part.decode_kernel()(out, *(tokens[name] for name in NAMES), pool, batch, most)
    return out, seen


def case(lens: list[int], num_slots: int = 5, seed: int = 0, **shape: Any) -> Any:
    """Tokens [T, ...] of float32 and a pool."""
    made = delta_tokens(1, sum(lens), seed=seed, **shape)
    tokens = {name: one[0].float() for name, one in made.items()}
    (_, v_heads, d_v), d_k = tokens["v"].shape, tokens["k"].shape[2]
    return tokens, drawn(num_slots, v_heads, d_k, d_v, seed=seed + 7, dtype=F32)


def expected(
    tokens: Mapping[str, Tensor], pool: Tensor, lens: list[int], slots: list[int],
    fresh: list[bool], most: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """out and the pool after it, float64."""
    out = torch.full(tokens["v"].shape, UNTOUCHED, dtype=torch.float64)
    after, first = pool.double().clone(), 0
    for length, slot, is_fresh in zip(lens, slots, fresh, strict=True):
        rows = slice(first, first + length)
        first += length
        if 1 <= length <= most:
            state = torch.zeros_like(after[slot]) if is_fresh else after[slot]
            own = {name: one[rows][None] for name, one in tokens.items()}
            values, states = delta(own, state[None])
            out[rows], after[slot] = values[0], states[0]
    return out, after


def unwritten(pool: Tensor, before: Tensor, after: Tensor) -> str:
    """From which column on all states are as before, if nothing else is wrong; else ""."""
    wrong = ~torch.isclose(pool.double(), after, rtol=ROUNDED, atol=ROUNDED, equal_nan=True)
    columns = wrong.flatten(0, -2).any(dim=0).nonzero().flatten().tolist()
    first, d_v = min(columns, default=0), pool.shape[-1]
    if not first or not torch.equal(
        pool[..., first:].nan_to_num(), before[..., first:].nan_to_num()
    ):
        return ""
    return (
        f"Columns {first} to {d_v - 1} of every state are as they were before: no program wrote them. "
        f"d_v is {d_v}: the blocks of columns must cover it, each with a program of its own."
    )


def check(
    part: ModuleType, tokens: Mapping[str, Tensor], pool: Tensor, lens: list[int],
    slots: list[int], fresh: list[bool], why: str, most: int = 8, **how: Any,
) -> Seen:  # fmt: skip
    right, after = expected(tokens, pool, lens, slots, fresh, most)
    before = pool.clone()
    out, seen = run(part, tokens, pool, lens, slots, fresh, most, **how)
    dtype = tokens["v"].dtype
    tolerance = ROUNDED if dtype == F32 else 2.0**-7
    why = unwritten(pool, before, after) or why
    expect_values(pool, after, "the pool afterwards", tolerance=ROUNDED, dtype=F32, why=why)
    expect_values(out, right, "out", tolerance=tolerance, dtype=dtype, why=why)
    return seen


@task("22.6")
def test_one_head_by_hand(part: ModuleType) -> None:
    """Half of the state is left, column j holds 2 * j for the key, and a quarter of the way to 10 is
    written: the query reads 1.5 * j + 2.5."""
    column = torch.arange(4.0)
    pool = torch.stack((4 * column, torch.full((4,), 8.0)))[None, None].repeat(2, 1, 1, 1)
    unit = torch.tensor([[[1.0, 0.0]]])
    tokens = {
        "q": unit,
        "k": unit.clone(),
        "v": torch.full((1, 1, 4), 10.0),
        "log_decay": torch.full((1, 1), 0.5).log(),
        "beta": torch.full((1, 1), 0.25),
    }
    out, _ = run(part, tokens, pool, [1], [1], [False])
    kinds = {
        "In every column the key finds 12, the sum over all columns: column j holds 2 * j for it.":
            2 * column - 0.5,
        "The query has read the state before the key wrote.": 2 * column,
        "The state has not decayed.": 3 * column + 2.5,
        "The state has decayed after the key wrote.": 1.5 * column + 1.25,
        "The key has found what the state held before it decayed.": column + 2.5,
        "beta is missing: the whole difference was written.": torch.full((4,), 10.0),
        "beta was multiplied with v alone: it takes a part of the difference.": torch.full((4,), 2.5),
    }  # fmt: skip
    of_out = {words: lambda x=x: x.view(1, 1, 4) for words, x in kinds.items()}
    right = (1.5 * column + 2.5).view(1, 1, 4)
    expect_values(out, right, "out", tolerance=ROUNDED, kinds=of_out)
    after = torch.stack((right.view(4), torch.full((4,), 4.0)))
    expect_values(pool[1, 0], after, "the state after it", tolerance=ROUNDED)


@task("22.6")
def test_a_token_of_each_sequence(part: ModuleType) -> None:
    """Three sequences, in slots of any order: out, and their slots of the pool."""
    lens, slots, fresh = [1, 1, 1], [3, 0, 4], [False] * 3
    tokens, pool = case(lens, group=1)
    check(part, tokens, pool, lens, slots, fresh, SLOT)


@task("22.6")
def test_heads_of_values_share_a_key(part: ModuleType) -> None:
    """Two heads of keys and six of values: three neighbours go with each."""
    lens = [1, 1]
    tokens, pool = case(lens, heads=2, group=3, seed=1)
    check(part, tokens, pool, lens, [1, 2], [False, False], GROUP)


@task("22.6")
def test_a_fresh_slot_is_not_read(part: ModuleType) -> None:
    """Two sequences begin, in slots of NaN; one goes on."""
    lens, slots = [1, 1, 1], [2, 4, 1]
    tokens, pool = case(lens, seed=2)
    pool[[2, 1]] = torch.nan
    right, after = expected(tokens, pool.nan_to_num(), lens, slots, [True, False, True], 8)
    out, seen = run(part, tokens, pool, lens, slots, [True, False, True])
    expect_values(pool, after, "the pool afterwards", tolerance=ROUNDED, why=FRESH)
    expect_values(out, right, "out", tolerance=ROUNDED, why=FRESH)
    most, got = pool[0].numel(), seen.loads(pool)
    expect(got <= most, f"{got} numbers read of the pool, where {most} do", why=FRESH)


@task("22.6")
def test_other_sequences_are_left_alone(part: ModuleType) -> None:
    """Without tokens, at the front, in between and at the end; and with more than `most`."""
    lens, slots = [0, 1, 4, 0, 3, 0], [0, 1, 2, 3, 4, 5]
    tokens, pool = case(lens, num_slots=6, seed=3)
    pool[[0, 2, 3, 5]] = torch.nan
    check(part, tokens, pool, lens, slots, [True, False, True, False, False, True], OTHERS, most=3)


@task("22.6")
def test_rows_behind_are_left_alone(part: ModuleType) -> None:
    """A batch may have more rows than its sequences have tokens, and more slots than sequences."""
    tokens, pool = case([1, 2, 3], seed=4)
    check(part, tokens, pool, [1, 2], [4, 2], [False, True], SLOT)


@task("22.6")
def test_a_state_passes_through_registers_once(part: ModuleType) -> None:
    """A sequence of five tokens reads its state once and writes it once, as one of one does."""
    lens = [5, 1]
    tokens, pool = case(lens, seed=5)
    seen = check(part, tokens, pool, lens, [0, 3], [False, False], ONCE)
    numbers = 2 * pool[0].numel()
    for what, got in (("read of", seen.loads(pool)), ("written to", seen.stores(pool))):
        expect(got <= numbers, f"{got} numbers {what} the pool, where {numbers} do", why=ONCE)


@task("22.6")
def test_sizes_that_no_tile_divides(part: ModuleType) -> None:
    """Heads of 24 by 40, of 5 by 3, and of 128 by 72, which takes several blocks of columns."""
    for d_k, d_v in ((24, 40), (5, 3), (128, 72)):
        lens = [1, 2]
        tokens, pool = case(lens, heads=1, group=2, d_k=d_k, d_v=d_v, seed=6)
        note(f"# d_k {d_k}, d_v {d_v}")
        check(part, tokens, pool, lens, [2, 0], [False, False], TAIL)


@task("22.6")
def test_each_tensor_has_its_own_strides(part: ModuleType) -> None:
    """Tokens and heads are views with gaps, and so are the slots of the pool."""
    lens = [1, 2, 1]
    tokens, pool = case(lens, seed=8)
    q, k, v = padded_apart(*(tokens[name] for name in ("q", "k", "v")))
    log_decay, beta = padded_apart(tokens["log_decay"], tokens["beta"])
    views = {"q": q, "k": k, "v": v, "log_decay": log_decay, "beta": beta}
    (apart,) = padded_apart(pool, dims=[0])
    seen = check(part, views, apart, lens, [3, 1, 0], [False, True, False], STRIDES)
    for name, view in views.items():
        expect(seen.loads(view), f"the kernel reads nothing of {name} where it lies", why=COPIED)


@task("22.6")
def test_arithmetic_is_float32(part: ModuleType) -> None:
    """q, k and v in bfloat16: out is bfloat16, and states are what float32 gives."""
    lens = [3, 1]
    tokens, pool = case(lens, seed=10)
    narrow = {
        name: one.to(BF16 if name in ("q", "k", "v") else F32) for name, one in tokens.items()
    }
    check(part, narrow, pool, lens, [1, 3], [False, False], WIDE)


@task("22.6")
def test_slots_and_rows_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a slot, or of a token, may be more than int32 holds."""
    lens = [1, 1, 1]
    tokens, pool = case(lens, num_slots=3, heads=1, group=1, seed=9)
    with far() as distant:
        check(part, tokens, distant(pool), lens, [2, 0, 1], [False, False, False], FAR_WHY)
    narrow = {
        name: one.to(BF16 if name in ("q", "k", "v") else F32) for name, one in tokens.items()
    }
    with far() as distant:
        for name in ("q", "k", "v"):
            narrow[name] = distant(narrow[name])
        check(part, narrow, pool.clone(), lens, [2, 0, 1], [False] * 3, FAR_WHY)


@task("22.6")
def test_one_launch_for_all(part: ModuleType) -> None:
    """A program for each sequence, value head and block of columns; nothing for no sequence."""
    lens = [1, 1, 1]
    tokens, pool = case(lens, heads=1, group=2, d_k=128, d_v=72, seed=11)
    _, seen = run(part, tokens, pool, lens, [0, 1, 2], [False] * 3)
    expect_equal(len(seen.launches), 1, "launches", why=ONE)
    told = f"{seen.programs} programs for 3 sequences and 2 value heads of 72 columns"
    expect(seen.programs >= 6, told, why=ONE)
    expect(seen.programs <= 6 * 9, told, why=BLOCKS)
    _, seen = run(part, tokens, pool, [], [], [])
    expect_equal(seen.programs, 0, "programs for no sequence", why=ONE)
    with counting() as counted:
        run(part, tokens, pool, lens, [0, 1, 2], [False] * 3)
    reads = ", ".join(dict.fromkeys(counted.reads))
    expect(not reads, f"delta_decode makes the host wait for the device: {reads}", why=ON_DEVICE)


@task("22.6")
@examples(8)
@given(
    st.lists(st.sampled_from([0, 1, 1, 2, 3]), min_size=1, max_size=4), st.integers(1, 2),
    st.integers(1, 2), st.integers(1, 20), st.integers(1, 20), st.integers(0, 999),
)  # fmt: skip
def test_any_step(
    part: ModuleType, lens: list[int], heads: int, group: int, d_k: int, d_v: int, seed: int
) -> None:
    """Any lengths and sizes give what the tokens give one by one."""
    lens = [*lens, 1]
    tokens, pool = case(lens, 6, seed, heads=heads, group=group, d_k=d_k, d_v=d_v)
    slots = torch.randperm(6, generator=torch.Generator().manual_seed(seed))[: len(lens)].tolist()
    fresh = [(seed >> place) % 2 == 0 for place in range(len(lens))]
    check(part, tokens, pool, lens, slots, fresh, OTHERS, most=2)


@for_tasks("22.6")
def test_the_kernel_compiles(submission: Submission, id: str) -> None:
    """The kernel compiles for a GPU too, which runs no Python."""
    expect_compiles(submission, id)
