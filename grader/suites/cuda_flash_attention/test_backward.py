"""Tasks 15.5 and 15.6: gradients, each kernel by itself on an exact forward pass."""

from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, note, start_script
from grader.kit.cuda_watch import orders
from grader.kit.kernels import attention_gradients, random
from grader.suites.cuda_flash_attention.bench import (
    F32,
    expect_gradients,
    expect_rounded_once,
    fine_inputs,
    gradients,
    inputs,
    one_past,
)
from grader.suites.cuda_flash_attention.mistakes import rounded_gradient_kinds
from yaie.core.batch import AttentionSpec

SUMS = (
    "weight = exp(scale * q . k - lse), and the score's gradient is weight * (grad_out . v - delta). "
    "dv sums weight * grad_out, dk gradient * q, dq gradient * k; the scale of the last two counts "
    "once, when the sums are stored."
)
KINDS = {"backward_kv": "15.5", "backward_q": "15.6"}
BOTH = [pytest.param(name, marks=pytest.mark.task(id)) for name, id in KINDS.items()]


def both(test: object) -> object:
    """The same claim for both kernels, each under its own task."""
    return pytest.mark.parametrize("which", BOTH)(test)


@both
def test_one_tile(part: ModuleType, which: str) -> None:
    """Without a mask, and with one tile of queries and keys, gradients are those of attention."""
    expect_gradients(part, which, inputs(1, 3, 5, 1, 1, 16), "3 x 5", SUMS, causal=False)


@both
def test_several_tiles(part: ModuleType, which: str) -> None:
    """Rows of several tiles are all summed, the last tile's partly missing ones not."""
    why = "Tiles that come by have 32 rows, of which the last has fewer: they add nothing."
    expect_gradients(part, which, inputs(1, 37, 70, 1, 1, 16), "37 x 70", why, causal=False)


@both
def test_heads_of_a_group(part: ModuleType, which: str) -> None:
    """Key and value heads gather the gradients of all query heads that read them."""
    why = (
        "Heads 0 and 1 read key head 0, heads 2 and 3 key head 1: sum over the group. lse and delta are "
        "[n, heads, tq], of query heads."
        if which == "backward_kv"
        else "Heads 0 and 1 read key head 0, heads 2 and 3 key head 1: keys and values of kv_head."
    )
    expect_gradients(part, which, inputs(2, 3, 4, 4, 2, 16), "4 heads on 2", why, causal=False)


@pytest.mark.task("15.6")
def test_keys_past_the_end_weigh_nothing(part: ModuleType) -> None:
    """With an lse below -88, exp(0 - lse) is infinite: a key past the end must not come to that."""
    q, k, v = inputs(1, 2, 19, 1, 1, 16)
    q[:], k[:] = 1.0, -50.0  # scores of -200 at a scale of 1/4
    why = (
        "A row past the last key is zeros, so its score is 0, its weight exp(0 + 197) is infinite, and "
        "infinity times a row of zeros is NaN: its gradient has to be set to 0."
    )
    expect_gradients(part, "backward_q", (q, k, v), "19 keys with score -200", why, causal=False)


@both
def test_masks(part: ModuleType, which: str) -> None:
    """What a query does not see has no weight, and no gradient."""
    why = "Hidden pairs count 0 in every sum, also where lse is -infinity: a query without keys."
    expect_gradients(part, which, inputs(1, 40, 40, 1, 1, 16), "causal", why)
    expect_gradients(part, which, inputs(1, 9, 4, 1, 1, 16), "queries without keys", why)
    expect_gradients(part, which, inputs(1, 40, 45, 1, 1, 16), "a window of 7", why, window=7)
    mask = torch.tensor([[True, False, True]])
    why = "Hidden pairs count 0 in every sum. A block mask is a rule without causality, too."

    def check(tq: int, tk: int) -> None:
        expect_gradients(
            part, which, inputs(1, tq, tk, 1, 1, 16), "a block mask", why, causal=False,
            block_mask=mask, mask_block=16,
        )  # fmt: skip

    check(8, 40)
    start_script()
    with one_past(check, 16, 48):  # these fill their blocks
        check(16, 48)


@both
def test_half_types(part: ModuleType, which: str) -> None:
    """Sums over many rows are float32, whatever the inputs are."""
    qkv = inputs(1, 40, 40, 1, 1, 16, torch.bfloat16)
    expect_gradients(part, which, qkv, "bfloat16", "Convert once, when you load.", causal=False)


@both
def test_scores_of_0_and_large_gradients(part: ModuleType, which: str) -> None:
    """A score of 0 is one as any other, and the gradient of a score may be large."""
    q, k, v = inputs(1, 3, 20, 1, 1, 16)
    q[:, 0] = 0.0
    v *= 64.0
    why = "What does not exist is known by its number, and not by its score. Nothing is cut off."
    what = "20 keys, one query of zeros, large values"
    expect_gradients(part, which, (q, k, v), what, why, causal=False)


@both
def test_only_the_gradients_are_rounded(part: ModuleType, which: str) -> None:
    """With 16-bit inputs weights, gradients of scores and sums are float32, to the last bit."""
    for dtype in (torch.bfloat16, torch.float16):
        qkv = fine_inputs(1, 40, 40, 1, 1, 16, dtype)
        grad_out = fine_inputs(1, 40, 1, 1, 1, 16, dtype)[0].contiguous()
        note(f"{which}: 40 queries, 40 keys, 1 head of 16, {dtype}, causal=False")
        got = gradients(part, which, grad_out, qkv, 0.3, causal=False)
        dq, dk, dv = attention_gradients(grad_out, *qkv, AttentionSpec(0.3), causal=False)
        expected = {"dq": dq} if which == "backward_q" else {"dk": dk, "dv": dv}
        found = [got] if which == "backward_q" else list(got)
        for (name, right), each in zip(expected.items(), found, strict=True):
            kinds = rounded_gradient_kinds(name, grad_out, qkv, 0.3)
            expect_rounded_once(each, right, f"{name} of 40 queries and 40 keys in {dtype}", kinds)


@both
def test_nothing_is_added_twice(part: ModuleType, which: str) -> None:
    """The same call gives the same bits: no atomics, no order that changes."""
    qkv = inputs(1, 33, 20, 2, 1, 16)
    grad_out = random(*qkv[0].shape, seed=4)
    note(f"{which}: the same arguments twice, and the threads in another order")
    first, second = (gradients(part, which, grad_out, qkv, 0.25) for _ in orders(2))
    same = all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    expect(
        same,
        "two calls with the same arguments differ",
        why="Sums have one order, without atomics.",
    )


@both
@examples(5)
@given(
    tq=st.integers(1, 40),
    tk=st.integers(1, 40),
    heads=st.sampled_from([(1, 1), (2, 1)]),
    dim=st.sampled_from([16, 80]),
    window=st.none() | st.integers(1, 12),
)
def test_any_gradients(
    part: ModuleType,
    which: str,
    tq: int,
    tk: int,
    heads: tuple[int, int],
    dim: int,
    window: int | None,
) -> None:
    """Any lengths, heads, head sizes and windows."""
    what = f"{tq} queries, {tk} keys, {heads[0]} heads of {dim} on {heads[1]}, window {window}"
    expect_gradients(part, which, inputs(1, tq, tk, *heads, dim, F32), what, SUMS, window=window)
