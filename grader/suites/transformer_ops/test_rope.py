"""Task 2.3: the rotary embedding."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_equal, task
from grader.kit.layout import Reading, padded, padded_apart
from grader.suites.transformer_ops.exact import (
    WIDE,
    exact_rope,
    expect_near,
    expect_pair,
    expect_tensor,
    expect_unchanged,
    ops_of,
    random,
    rotary_tables,
)
from grader.suites.transformer_ops.misturned import misturned
from grader.suites.transformer_ops.rounded import expect_rounded_once, rounded_rotations

F32, BF16 = torch.float32, torch.bfloat16
QUARTER = (
    torch.tensor([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]),
    torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]),
)
"""cos and sin: pair 0 turns by 0, 90 and 180 degrees at positions 0, 1 and 2, pair 1 never."""


def expect_turned(
    got: Any,
    x: Tensor,
    positions: Tensor,
    tables: tuple[Tensor, Tensor],
    what: str,
    *,
    why: str = "",
    others: Mapping[str, Tensor] | None = None,
) -> None:
    """x as `exact_rope` turns it. why: said where no mistake is known that gives this. others: what
    further mistakes would give, by what is to say of each."""
    before, right = x.clone(), exact_rope(x, positions, *tables)
    inputs = Reading(
        lambda x, cos, sin: exact_rope(x, positions, cos, sin),
        {"x": x, "cos": tables[0], "sin": tables[1]},
    )
    expect_near(
        got, right, x.dtype, what, why=why, inputs=inputs,
        gives=lambda: misturned(before, positions, *tables) | dict(others or {}),
    )  # fmt: skip


@task("2.3")
def test_halves_are_paired(part: ModuleType) -> None:
    """Dimension i turns together with dimension i + rotary_dim / 2."""
    q, k = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]] * 2), torch.tensor([[[0.0, 0.0, 1.0, 0.0]]] * 2)
    got = expect_pair(
        ops_of(part).rope(q.clone(), k.clone(), torch.tensor([0, 1]), *QUARTER), "rope"
    )
    why = "A pair is (x[0], x[2]) here. By 90 degrees (1, 3) becomes (-3, 1)."
    places = torch.tensor([0, 1])
    what = "q = (1, 2, 3, 4), turned by 0 and by 90 degrees"
    expect_turned(got[0], q, places, QUARTER, what, why=why)
    what = "k = (0, 0, 1, 0), turned by 0 and by 90 degrees"
    expect_turned(got[1], k, places, QUARTER, what, why="By 90 degrees (0, 1) becomes (-1, 0).")


@task("2.3")
def test_positions_pick_the_row_of_the_tables(part: ModuleType) -> None:
    """Each token is turned by its own position, which is not its place in the batch."""
    x = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]).expand(3, 1, 4).clone()
    places = torch.tensor([1, 0, 1])
    got = expect_pair(ops_of(part).rope(x.clone(), x.clone(), places, *QUARTER), "rope")
    for name, one in zip("qk", got, strict=True):
        expect_turned(one, x, places, QUARTER, f"{name} of three tokens at positions 1, 0, 1")


@task("2.3")
def test_dimensions_beyond_the_rotary_ones_stay(part: ModuleType) -> None:
    """With rotary_dim below the head's size the rest of the head passes through."""
    q = torch.arange(1.0, 9.0).reshape(1, 1, 8)
    places = torch.tensor([1])
    got = expect_pair(ops_of(part).rope(q.clone(), q.clone(), places, *QUARTER), "rope")
    why = "The tables have 2 columns, so rotary_dim is 4: (x[0], x[2]) turns, x[4] to x[7] stay."
    expect_turned(got[0], q, places, QUARTER, "q of 8 dimensions with rotary_dim 4", why=why)


@task("2.3")
def test_every_head_turns_alike(part: ModuleType) -> None:
    """All heads of a token turn by the same angles; k may have fewer heads than q."""
    q, k = random(3, 4, 4), random(3, 2, 4, seed=1)
    positions = torch.tensor([1, 1, 0])
    got = expect_pair(ops_of(part).rope(q.clone(), k.clone(), positions, *QUARTER), "rope")
    for name, mine, x in (("q of 4 heads", got[0], q), ("k of 2 heads", got[1], k)):
        expect_turned(mine, x, positions, QUARTER, name)


@task("2.3")
def test_every_tensor_has_strides_of_its_own(part: ModuleType) -> None:
    """q, k, the positions and the tables may all be slices, each with gaps of its own."""
    q, k = padded_apart(random(3, 2, 6), random(3, 2, 6, seed=1))
    cos, sin = padded_apart(*rotary_tables(9, 2))
    positions = padded(torch.tensor([8, 2, 5]), dims=(0,))
    rest = {"positions": positions, "cos": cos, "sin": sin}
    inputs = {"q": q, "k": k, **rest}
    before = {"q": q.clone(), "k": k.clone()}

    def turned_q(q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return exact_rope(q, positions, cos, sin)

    def turned_k(q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return exact_rope(k, positions, cos, sin)

    cases = [(turned(**inputs), Reading(turned, inputs)) for turned in (turned_q, turned_k)]
    got = expect_pair(ops_of(part).rope(q, k, positions, cos, sin), "rope")
    for name, mine, (right, reading) in zip("qk", got, cases, strict=True):
        expect_near(mine, right, F32, f"{name}, a slice", reading=reading)
    why = "Only fused_add_rms_norm may reuse the memory of what it is given."
    now = {"q": q, "k": k}
    expect_unchanged(why, **{name: (x, before[name]) for name, x in now.items()})


@task("2.3")
def test_slices_of_a_fused_projection(part: ModuleType) -> None:
    """q and k may be slices of one larger tensor, with gaps in memory."""
    qkv = random(3, 4 * 4)
    q, k = qkv[:, :8].reshape(3, 2, 4), qkv[:, 8:12].reshape(3, 1, 4)
    cos, sin = rotary_tables(9, 2)
    positions = torch.tensor([8, 2, 5])
    right = exact_rope(q, positions, cos, sin), exact_rope(k, positions, cos, sin)
    got = expect_pair(ops_of(part).rope(q, k, positions, cos, sin), "rope")
    expect_near(got[0], right[0], F32, "q, a slice of qkv")
    expect_near(got[1], right[1], F32, "k, a slice of qkv")


@task("2.3")
def test_tables_and_positions_stay(part: ModuleType) -> None:
    """The tables and the positions are as before: every layer turns by the same ones."""
    (cos, sin), positions = rotary_tables(9, 2), torch.tensor([8, 2])
    before = cos.clone(), sin.clone(), positions.clone()
    ops_of(part).rope(random(2, 2, 4), random(2, 1, 4, seed=1), positions, cos, sin)
    why = "They belong to the model and to the batch, and the next layer reads them again."
    now = cos, sin, positions
    names = ("cos", "sin", "positions")
    expect_unchanged(why, **{n: (a, b) for n, a, b in zip(names, now, before, strict=True)})


@task("2.3")
def test_rope_rounds_once(part: ModuleType) -> None:
    """In bfloat16 the rotation is computed in float32 and rounded once, at the end."""
    q, (cos, sin) = random(64, 4, 32).bfloat16(), rotary_tables(500, 16)
    positions = torch.arange(64) * 7
    got = expect_pair(ops_of(part).rope(q.clone(), q.clone(), positions, cos, sin), "rope")[0]
    expect_tensor(got, BF16, "q")
    right = exact_rope(q, positions, cos, sin)
    expect_equal(list(got.shape), list(right.shape), "the shape of q")
    why = f"bfloat16 has 8 bits: a cos of it is off by up to 0.4%, at every layer again. {WIDE}"
    gives = rounded_rotations(q, cos[positions], sin[positions])
    expect_rounded_once(got, right, "q", why, gives)


@st.composite
def rotations(draw: st.DrawFn) -> tuple[torch.Tensor, ...]:
    """(q, k, positions, cos, sin)."""
    tokens, heads, kv_heads = (draw(st.integers(1, 3)) for _ in range(3))
    half, rest, seed = draw(st.integers(1, 4)), draw(st.integers(0, 3)), draw(st.integers(0, 99))
    positions = draw(st.lists(st.integers(0, 29), min_size=tokens, max_size=tokens))
    q = random(tokens, heads, 2 * half + rest, seed=seed)
    k = random(tokens, kv_heads, 2 * half + rest, seed=seed + 1)
    return q, k, torch.tensor(positions), *rotary_tables(30, half)


@task("2.3")
@examples(60)
@given(rotations())
def test_any_rotation(part: ModuleType, case: tuple[torch.Tensor, ...]) -> None:
    """Any q and k turn as their definition says, pair by pair."""
    q, k, positions, cos, sin = case
    got = expect_pair(ops_of(part).rope(q.clone(), k.clone(), positions, cos, sin), "rope")
    for name, mine, x in (("q", got[0], q), ("k", got[1], k)):
        what = f"{name} at positions {positions.tolist()} with rotary_dim {2 * cos.shape[1]}"
        expect_turned(mine, x, positions, (cos, sin), what)
