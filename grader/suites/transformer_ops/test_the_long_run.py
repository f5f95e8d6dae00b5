"""Beyond one call: results that stay, nothing that is left behind, and numbers with all their digits."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import quietly, start_script, task
from grader.kit.layout import Reading
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.transformer_ops.exact import (
    exact_rope,
    expect_attention,
    expect_near,
    expect_pair,
    ops_of,
    random,
    rotary_tables,
)
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionSpec

F32 = torch.float32


def full(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers with all the digits of float32: those of fewer digits survive a narrower type."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def check(part: ModuleType, call: Callable[[Any, int], Any], what: str) -> None:
    """call: computes with the operations that it is given, on inputs of its own, which a number tells
    apart."""
    watched = ops_of(part)
    expect_results_stand([partial(call, watched, number) for number in range(1, 7)], what)
    start_script()
    expect_keeps_nothing(partial(call, quietly(watched), 1), what)


@task("2.1")
def test_norms_of_many_calls(part: ModuleType) -> None:
    """A result of rms_norm is made for its call, and nothing is left behind."""
    check(part, lambda ops, n: ops.rms_norm(random(1, 3, seed=n), random(3), 1e-5), "rms_norm")


@task("2.2")
def test_fused_norms_of_many_calls(part: ModuleType) -> None:
    """Both results are made for their call or are its own inputs, and nothing is left behind."""

    def call(ops: Any, number: int) -> Any:
        x, residual = full(2, 4, seed=number), full(2, 4, seed=number + 9)
        return ops.fused_add_rms_norm(x, residual, full(4), 1e-5)

    check(part, call, "fused_add_rms_norm")


@task("2.3")
def test_rotations_of_many_calls(part: ModuleType) -> None:
    """Turned q and k are made for their call, and nothing is left behind."""
    tables = rotary_tables(8, 2)

    def call(ops: Any, number: int) -> Any:
        q, k = full(2, 2, 6, seed=number), full(2, 1, 6, seed=number + 9)
        return ops.rope(q, k, torch.tensor([number, 0]), *tables)

    check(part, call, "rope")


@task("2.3")
def test_rotations_keep_their_digits(part: ModuleType) -> None:
    """In float32 a rotation is as exact as float32."""
    q, k, positions = full(3, 2, 6), full(3, 1, 6, seed=1), torch.tensor([2, 7, 5])
    tables = rotary_tables(8, 3)
    got = expect_pair(ops_of(part).rope(q.clone(), k.clone(), positions, *tables), "rope")
    for name, one, x in zip(("q", "k"), got, (q, k), strict=True):
        inputs = Reading(
            lambda x, cos, sin: exact_rope(x, positions, cos, sin),
            {"x": x, "cos": tables[0], "sin": tables[1]},
        )
        right = exact_rope(x, positions, *tables)
        expect_near(one, right, F32, f"{name} in float32", inputs=inputs)


@task("2.4")
def test_gates_of_many_calls(part: ModuleType) -> None:
    """A result of silu_mul is made for its call, and nothing is left behind."""
    check(part, lambda ops, number: ops.silu_mul(full(2, 8, seed=number)), "silu_mul")


@task("2.5")
def test_masks_of_many_calls(part: ModuleType) -> None:
    """A mask is made for its call, and nothing is left behind."""

    def call(ops: Any, number: int) -> Any:
        return ops.causal_mask(torch.tensor([number + 1, 2]), 2, 5, None, F32)

    check(part, call, "causal_mask")


@task("2.6")
def test_attention_of_many_calls(part: ModuleType) -> None:
    """A result of attention is made for its call, and nothing is left behind."""
    spec = AttentionSpec(0.5)
    mask = TransformerOps().causal_mask(torch.tensor([3]), 2, 3, None, F32)

    def call(ops: Any, number: int) -> Any:
        q, k, v = (full(1, n, 2, 4, seed=number + n) for n in (2, 3, 3))
        return ops.attention(q, k, v, mask, spec)

    check(part, call, "attention")


@task("2.7")
def test_capped_scores_keep_their_digits(part: ModuleType) -> None:
    """In float32 scores under a cap, and sinks beside them, are as exact as float32."""
    q, k, v = full(1, 3, 2, 8), full(1, 6, 1, 8, seed=1), full(1, 6, 1, 8, seed=2)
    for spec in (
        AttentionSpec(0.35, softcap=4.0),
        AttentionSpec(0.35, sinks=torch.tensor([0.3, -1.1])),
    ):
        start_script()
        expect_attention(part, q, k, v, spec, [6], what="attention in float32")
