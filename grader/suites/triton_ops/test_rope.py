"""Task 9.4: the rotary embedding, of q and k in one launch and in place."""

from functools import partial
from types import ModuleType

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded, padded_apart, random
from grader.kit.siblings import telling
from grader.kit.triton_watch import watching
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    STRIDES,
    WIDE,
    apart,
    copies,
    expect_mostly,
    expect_one_launch,
    expect_work,
    ours_with,
    pool,
    product,
    run,
    strides_told,
)
from grader.suites.triton_ops.turns import MASKED, told_of_turns

QUARTER = (
    torch.tensor([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]),
    torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]),
)
"""cos and sin: pair 0 turns by 0, 90 and 180 degrees at positions 0, 1 and 2, pair 1 never."""
HEADS = (
    f"{MASKED} Program t of a token has the heads of q from t * HEADS on, and those of k from "
    "t * KV_HEADS on."
)
TARGET = (
    "Source and target are one tensor in this task, and two in 9.6, each with gaps of its own: what is "
    "read lies head * source_stride behind source, what is written head * target_stride behind target."
)


def expect_turned(part: ModuleType, q: Tensor, k: Tensor, *rest: Tensor, why: str = "") -> None:
    """`rope` turns q and k, where they lie, as the definition says."""
    right, were = [kernels.rope(x, *rest) for x in (q, k)], copies(q, k)
    got, _ = run(part, "rope", q, k, *rest)
    for name, tensor, was, exact in zip("qk", (q, k), were, right, strict=True):
        with telling(partial(told_of_turns, name, tensor, was, why, *rest)):
            expect_near(tensor, exact, q.dtype, f"{name} of shape {list(tensor.shape)}", why=why)
    expect_equal([x.data_ptr() for x in got], [q.data_ptr(), k.data_ptr()], "where the results lie")


@task("9.4")
def test_halves_are_paired(part: ModuleType) -> None:
    """Dimension i turns together with dimension i + rotary_dim / 2, in place."""
    q, k = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]] * 2), torch.tensor([[[0.0, 0.0, 1.0, 0.0]]] * 2)
    before = q.clone()
    run(part, "rope", q, k, torch.tensor([0, 1]), *QUARTER)
    why = (
        "A pair is (x[0], x[2]) here, not the neighbours (x[0], x[1]). By 90 degrees (1, 3) becomes "
        "(-3, 1): the minus goes to the first half, and both halves are computed from the old ones."
    )
    right = torch.stack((before[0], torch.tensor([[-3.0, 2.0, 1.0, 4.0]])))
    expect_near(q, right, F32, "q = (1, 2, 3, 4), turned by 0 and by 90 degrees", why=why)
    right = torch.stack((torch.tensor([[0.0, 0.0, 1.0, 0.0]]), torch.tensor([[-1.0, 0, 0, 0]])))
    expect_near(k, right, F32, "k = (0, 0, 1, 0), turned by 0 and by 90 degrees", why=why)


@task("9.4")
def test_positions_pick_the_row_of_the_tables(part: ModuleType) -> None:
    """Each token is turned by its own position, which is not its place in the batch."""
    x = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]).repeat(3, 1, 1)
    why = "A flat batch holds tokens of many sequences: `positions` says where each one stands."
    expect_turned(part, x, x.clone(), torch.tensor([1, 0, 1]), *QUARTER, why=why)


@task("9.4")
def test_dimensions_beyond_the_rotary_ones_stay(part: ModuleType) -> None:
    """With rotary_dim below the head's size the rest of the head is neither read nor written."""
    q = torch.arange(1.0, 9.0).reshape(1, 1, 8)
    k = q.clone()
    _, seen = run(part, "rope", q, k, torch.tensor([1]), *QUARTER)
    why = "The tables have 2 columns, so rotary_dim is 4: (x[0], x[2]) turns, x[4] to x[7] stay."
    right = torch.tensor([[[-3.0, 2.0, 1.0, 4.0, 5.0, 6.0, 7.0, 8.0]]])
    expect_near(q, right, F32, "q of 8 dimensions with rotary_dim 4", why=why)
    expect_work(seen.loads(q), 4, "numbers read of q", "What does not turn need not move.")


@task("9.4")
def test_heads_that_no_tile_divides(part: ModuleType) -> None:
    """5 heads of q and 3 of k, beside v in one product: v stays, and so does every neighbour."""
    q, k, v = product(3, 5, 3, 6)
    value = v.clone()
    tables = kernels.rotary_tables(40, 3)
    expect_turned(part, q, k, torch.tensor([39, 0, 8]), *tables, why=HEADS)
    expect(torch.equal(v, value), "v, which lies behind k, has changed", why=HEADS)


@task("9.4")
def test_q_and_k_have_strides_of_their_own(part: ModuleType) -> None:
    """Tokens and heads of q and of k are differently far apart, and what lies between them stays."""
    q, k, _ = apart(3, 4, 3, 6)
    positions, tables = torch.tensor([8, 0, 5]), kernels.rotary_tables(9, 3)
    right = [kernels.rope(x, positions, *tables) for x in (q, k)]
    run(part, "rope", q, k, positions, *tables)
    why = f"{strides_told(q=q, k=k)}. {STRIDES} {HEADS}"
    for name, x in (("q", q), ("k", k)):
        expect_gaps_kept(name, x, why=why)
    for name, x, exact in zip("qk", (q, k), right, strict=True):
        expect_near(x, exact, F32, f"{name} of shape {list(x.shape)}", why=why)


@task("9.4")
def test_tokens_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a token may be more than int32 holds, in q and in k."""
    positions, tables = torch.tensor([8, 0, 5]), kernels.rotary_tables(9, 3)
    with far() as apart:
        q, k = (apart(random(3, heads, 6, seed=heads, dtype=F16)) for heads in (4, 2))
        expect_turned(part, q, k, positions, *tables, why=FAR_WHY)


@task("9.4")
def test_many_heads(part: ModuleType) -> None:
    """40 heads of q on 9 of k, more than one tile of each, for few tokens and for many."""
    for tokens in (2, 5):
        q, k = random(tokens, 40, 4), random(tokens, 9, 4, seed=1)
        positions = torch.arange(1, tokens + 1)
        expect_turned(part, q, k, positions, *kernels.rotary_tables(6, 2), why=HEADS)


@task("9.4")
def test_heads_turn_on_their_way_elsewhere(part: ModuleType) -> None:
    """turn_heads reads with the strides of its source and writes with those of its target."""
    q, k, v = apart(3, 4, 2, 8)
    pool_of = [padded(blocks, 4) for blocks in pool(3, 4, 2, 8)]
    positions, tables = torch.tensor([8, 0, 3]), kernels.rotary_tables(9, 3)
    slots, turned = torch.tensor([11, 0, 5]), kernels.rope(k, positions, *tables)
    right = kernels.store_kv(turned, v, pool_of[0].double(), pool_of[1].double(), slots)
    with ours_with(part, "turn_heads") as ours:
        if ours is None:
            return  # another design: task 9.6 grades how it turns what it stores
        with watching(why=TARGET):
            ours.rope_and_store(q, k, v, positions, *tables, *pool_of, slots)
    expect_near(
        pool_of[0], right[0], F32, "keys that turn_heads has turned into a pool", why=TARGET
    )
    expect_gaps_kept("the pool", pool_of[0], why=TARGET)


@task("9.4")
def test_rope_is_one_launch(part: ModuleType) -> None:
    """q and k are turned in one launch, and each number is read and written once."""
    q, k, _ = product(3, 4, 2, 8)
    _, seen = run(part, "rope", q, k, torch.tensor([0, 1, 2]), *kernels.rotary_tables(3, 4))
    why = "At batch 1 a launch costs more than the rotation: programs of one grid can do q or k."
    expect_one_launch(seen, "rope", why)
    once = "What is turned in place is read once and written once."
    for name, x in (("q", q), ("k", k)):
        expect_work(seen.loads(x), x.numel(), f"numbers read of {name}", once)
        expect_work(seen.stores(x), x.numel(), f"numbers written to {name}", once)


@task("9.4")
def test_heads_share_their_angles(part: ModuleType) -> None:
    """A program turns several heads of a token, and reads the token's angles once for them."""
    q, k = random(2, 16, 8), random(2, 4, 8, seed=1)
    cos, sin = kernels.rotary_tables(9, 4)
    _, seen = run(part, "rope", q, k, torch.tensor([8, 3]), cos, sin)
    why = (
        "All heads of a token turn by the same angles, which are float32, as many bytes as a head of "
        "bfloat16: read anew for each head, they are as much traffic as the head itself."
    )
    expect_work(seen.loads(cos), 2 * 20 * 4 // 2, "cosines read for 2 tokens of 20 heads", why)


@task("9.4")
def test_rope_rounds_once(part: ModuleType) -> None:
    """In float16 the rotation is computed in float32 and rounded once, at the end."""
    q, (cos, sin) = random(4, 4, 32, dtype=F16), kernels.rotary_tables(500, 16)
    positions = torch.tensor([7, 100, 499, 0])
    right = kernels.rope(q, positions, cos, sin).to(F16)
    run(part, "rope", q, q.clone(), positions, cos, sin)
    why = f"float16 has 11 bits: a cos of it is off by up to 0.05%, at every layer again. {WIDE}"
    expect_mostly(q, right, "q are the exact ones rounded to float16", why)


@st.composite
def rotations(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """(q, k, positions, cos, sin)."""
    tokens, heads, kv_heads = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
    )
    half, rest, seed = draw(st.integers(1, 6)), draw(st.integers(0, 3)), draw(st.integers(0, 99))
    positions = draw(st.lists(st.integers(0, 29), min_size=tokens, max_size=tokens))
    q = random(tokens, heads, 2 * half + rest, seed=seed)
    k = random(tokens, kv_heads, 2 * half + rest, seed=seed + 1)
    return *padded_apart(q, k), torch.tensor(positions), *kernels.rotary_tables(30, half)


@task("9.4")
@examples(10)
@drawn(rotations())
def test_any_rotation(part: ModuleType, case: tuple[Tensor, ...]) -> None:
    """Any q and k turn as their definition says, pair by pair."""
    expect_turned(part, *case)
