"""Every implementation of `StateOps` gives what the plain definition gives in float64."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.backends.states.cases import NOBODY, Case, Shape, make_case, shapes
from yaie.backends.cpu import build
from yaie.backends.states import make_state_ops
from yaie.backends.states.torch import TorchStateOps
from yaie.core.contracts.states import StateBatch, StateOps
from yaie.parts import load_parts

RULES = ("short_conv", "gated_delta_rule", "selective_scan")
BACKENDS = (
    "torch",
    "triton",
    pytest.param("cpu", marks=pytest.mark.skipif(bool(build.missing()), reason=build.missing())),
)
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-7}

GPU = "cuda" if torch.cuda.is_available() else "cpu"
DEVICES = {"torch": GPU, "triton": GPU, "cpu": "cpu"}

PARTS = load_parts("none", labs=["state_cache"])


def ops_of(backend: str) -> StateOps:
    return make_state_ops(backend, PARTS, torch.device(DEVICES[backend]))


every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_rule = pytest.mark.parametrize("rule", RULES)


def close(
    got: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32, times: float = 1.0
) -> None:
    """By the usual size of what is expected: where values cancel each other, errors stay."""
    usual = max(1.0, float(expected.square().mean().sqrt())) if expected.numel() else 1.0
    bits = TOLERANCE[dtype] * times
    torch.testing.assert_close(got.double(), expected, rtol=bits, atol=bits * usual)


def check(backend: str, case: Case, times: float = 1.0) -> None:
    """Values, states, and that nothing else was touched. times: of the tolerance."""
    pool = case.pool.clone()
    out = case.run(ops_of(backend), pool)
    expected, states = case.expected()
    dtype = next(iter(case.tokens.values())).dtype
    assert out.dtype == dtype
    assert out.shape == expected.shape
    close(out[: case.rows], expected[: case.rows], dtype, times)
    assert not out[case.rows :].any(), "rows of no sequence"
    slots, starts = case.batch.slots.tolist(), case.batch.starts.tolist()
    ran = [s for s, (a, b) in zip(slots, pairwise(starts), strict=True) if b > a and s != NOBODY]
    close(pool[ran], states[ran], pool.dtype, times)
    others = [slot for slot in range(len(pool)) if slot not in {*ran, NOBODY}]
    assert torch.equal(pool[others].isnan(), case.pool[others].isnan()), "slots of others"
    assert torch.equal(pool[others].nan_to_num(), case.pool[others].nan_to_num())


def test_on_a_gpu_tritons_kernels_stand_in_for_cuda_cpp() -> None:
    pytest.importorskip("triton")
    from yaie.backends.states.triton import TritonStateOps

    kinds = [type(make_state_ops("cuda", PARTS, torch.device(on))) for on in ("cuda", "cpu")]
    assert kinds == [TritonStateOps, TorchStateOps]


@every_backend
@every_rule
@settings(max_examples=12)
@given(shape=shapes(), silu=st.booleans())
def test_any_batch_gives_what_its_tokens_give_one_by_one(
    backend: str, rule: str, shape: Shape, silu: bool
) -> None:
    check(backend, make_case(rule, shape, device=DEVICES[backend], silu=silu))


@every_backend
@every_rule
@settings(max_examples=5)
@given(shape=shapes())
def test_in_bfloat16_only_inputs_and_outputs_are_rounded(
    backend: str, rule: str, shape: Shape
) -> None:
    check(backend, make_case(rule, shape, torch.bfloat16, DEVICES[backend]))


@every_backend
@every_rule
@settings(max_examples=6)
@given(data=st.data(), shape=shapes(most=3))
def test_a_sequence_may_be_cut_anywhere(
    backend: str, rule: str, data: st.DataObject, shape: Shape
) -> None:
    case = make_case(rule, shape._replace(padding=0, behind=0), device=DEVICES[backend])
    cuts = [data.draw(st.integers(0, length)) for length in shape.lens]
    ops, expected = ops_of(backend), case.expected()
    pool = case.pool.clone()
    for first, last in (([0] * len(cuts), cuts), (cuts, shape.lens)):
        some, rows = case.part(first, last)
        close(some.run(ops, pool), expected[0][rows])
    slots = case.batch.slots
    close(pool[slots], expected[1][slots])


@every_backend
@every_rule
def test_the_numbers_of_a_token_may_lie_apart(backend: str, rule: str) -> None:
    shape = Shape([3, 70, 1], [False, True, False], 0, 0, 2, 2, 16, 24, 1)
    case = make_case(rule, shape, device=DEVICES[backend])
    for tensors in (case.tokens, case.others):
        for name, one in tensors.items():
            if isinstance(one, Tensor):
                tensors[name] = torch.stack([one, torch.full_like(one, torch.nan)], dim=-1)[..., 0]
    check(backend, case)


def one_sequence(backend: str, log_decay: Tensor, beta: Tensor, keys: Tensor) -> Case:
    """Of [T, v_heads] gates and [T, 16] keys. It goes on from a state that is there."""
    (length, v_heads), device = beta.shape, DEVICES[backend]
    g = torch.Generator().manual_seed(0)
    tokens = {
        "q": torch.randn(length, 1, 16, generator=g),
        "k": F.normalize(keys, dim=-1)[:, None],
        "v": torch.randn(length, v_heads, 8, generator=g),
        "log_decay": log_decay,
        "beta": beta,
    }
    tokens = {name: one.to(device) for name, one in tokens.items()}
    starts = torch.tensor([0, length], dtype=torch.int32, device=device)
    batch = StateBatch(
        [length], starts, torch.tensor([1], device=device), torch.tensor([False], device=device)
    )
    pool = torch.randn(3, v_heads, 16, 8, generator=g).to(device)
    return Case("gated_delta_rule", tokens, {}, pool, batch, length)


@every_backend
@pytest.mark.parametrize(
    ("beta", "dtype"), [(1, torch.float32), (1, torch.bfloat16), (2, torch.float32)]
)
def test_equal_keys_without_decay_do_not_add_up_rounding_errors(
    backend: str, beta: float, dtype: torch.dtype
) -> None:
    """As a prompt that repeats one token has them. In a chunk the inverse of the system has entries of
    about one, powers of the system of more than 10^17."""
    keys = torch.randn(16, generator=torch.Generator().manual_seed(1)).expand(200, 16)
    case = one_sequence(backend, torch.zeros(200, 2), torch.full((200, 2), float(beta)), keys)
    for name in ("q", "k", "v"):
        case.tokens[name] = case.tokens[name].to(dtype)
    # A state that is reflected 200 times keeps all errors. Tensor cores multiply float32 as three TF32,
    # which loses some bits more than the interpreter's products do.
    check(backend, case, times=5 if (backend, GPU, beta) == ("triton", "cuda", 2) else 1)


@every_backend
def test_a_weak_decay_behind_strong_ones_keeps_its_digits(backend: str) -> None:
    keys = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    log_decay = torch.full((64, 1), -1e4)
    log_decay[40:] = -1e-3
    check(backend, one_sequence(backend, log_decay, torch.ones(64, 1), keys))
