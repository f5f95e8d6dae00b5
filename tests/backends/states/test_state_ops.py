"""Every implementation of `StateOps` gives what the plain definition gives in float64."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from solutions import state_cache
from tests.backends.states.cases import NOBODY, Case, Shape, make_case, shapes
from yaie.backends.states import make_state_ops
from yaie.core.contracts.states import StateBatch

RULES = ("short_conv", "gated_delta_rule", "selective_scan")
BACKENDS = ("torch",)
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-7}

every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_rule = pytest.mark.parametrize("rule", RULES)


def close(got: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    """By the usual size of what is expected: where values cancel each other, errors stay."""
    usual = max(1.0, float(expected.square().mean().sqrt())) if expected.numel() else 1.0
    bits = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), expected, rtol=bits, atol=bits * usual)


def check(backend: str, case: Case) -> None:
    """Values, states, and that nothing else was touched."""
    pool = case.pool.clone()
    out = case.run(make_state_ops(backend, state_cache), pool)
    expected, states = case.expected()
    dtype = next(iter(case.tokens.values())).dtype
    assert out.dtype == dtype
    assert out.shape == expected.shape
    close(out[: case.rows], expected[: case.rows], dtype)
    assert not out[case.rows :].any(), "rows of no sequence"
    slots, starts = case.batch.slots.tolist(), case.batch.starts.tolist()
    ran = [s for s, (a, b) in zip(slots, pairwise(starts), strict=True) if b > a and s != NOBODY]
    close(pool[ran], states[ran], pool.dtype)
    others = [slot for slot in range(len(pool)) if slot not in {*ran, NOBODY}]
    assert torch.equal(pool[others].isnan(), case.pool[others].isnan()), "slots of others"
    assert torch.equal(pool[others].nan_to_num(), case.pool[others].nan_to_num())


@every_backend
@every_rule
@settings(max_examples=20)
@given(shape=shapes(), silu=st.booleans())
def test_any_batch_gives_what_its_tokens_give_one_by_one(
    backend: str, rule: str, shape: Shape, silu: bool
) -> None:
    check(backend, make_case(rule, shape, silu=silu))


@every_backend
@every_rule
@settings(max_examples=8)
@given(shape=shapes())
def test_in_bfloat16_only_inputs_and_outputs_are_rounded(
    backend: str, rule: str, shape: Shape
) -> None:
    check(backend, make_case(rule, shape, torch.bfloat16))


@every_backend
@every_rule
@settings(max_examples=12)
@given(data=st.data(), shape=shapes(most=3))
def test_a_sequence_may_be_cut_anywhere(
    backend: str, rule: str, data: st.DataObject, shape: Shape
) -> None:
    case = make_case(rule, shape._replace(padding=0, behind=0))
    cuts = [data.draw(st.integers(0, length)) for length in shape.lens]
    ops, expected = make_state_ops(backend, state_cache), case.expected()
    pool = case.pool.clone()
    for first, last in (([0] * len(cuts), cuts), (cuts, shape.lens)):
        some, rows = case.part(first, last)
        close(some.run(ops, pool), expected[0][rows])
    slots = case.batch.slots
    close(pool[slots], expected[1][slots])


@every_backend
def test_equal_keys_without_decay_do_not_add_up_rounding_errors(backend: str) -> None:
    """As a prompt that repeats one token has them. In a chunk the inverse of the system has entries of
    about one, its powers of more than 10^17."""
    g = torch.Generator().manual_seed(0)
    key = torch.nn.functional.normalize(torch.randn(1, 1, 16, generator=g), dim=-1)
    tokens = {
        "q": torch.randn(200, 1, 16, generator=g),
        "k": key.expand(200, 1, 16),
        "v": torch.randn(200, 2, 8, generator=g),
        "log_decay": torch.zeros(200, 2),
        "beta": torch.tensor([1.0, 2.0]).expand(200, 2),
    }
    batch = StateBatch(
        [200], torch.tensor([0, 200]).int(), torch.tensor([1]), torch.tensor([False])
    )
    pool = torch.randn(3, 2, 16, 8, generator=g)
    check(backend, Case("gated_delta_rule", tokens, {}, pool, batch, 200))


@every_backend
def test_a_weak_decay_behind_strong_ones_keeps_its_digits(backend: str) -> None:
    g = torch.Generator().manual_seed(1)
    log_decay = torch.full((64, 1), -1e4)
    log_decay[60:] = -1e-3
    tokens = {
        "q": torch.randn(64, 1, 16, generator=g),
        "k": torch.nn.functional.normalize(torch.randn(64, 1, 16, generator=g), dim=-1),
        "v": torch.randn(64, 1, 16, generator=g),
        "log_decay": log_decay,
        "beta": torch.ones(64, 1),
    }
    batch = StateBatch([64], torch.tensor([0, 64]).int(), torch.tensor([0]), torch.tensor([True]))
    pool = torch.full((2, 1, 16, 16), torch.nan)
    case = Case("gated_delta_rule", tokens, {}, pool, batch, 64)
    check(backend, case)
