"""What stands around the rules, in one launch each, is what transformers' layers compute."""

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from grader.kit.triton_watch import watching
from tests.backends.states.test_state_ops import DEVICES, every_backend, ops_of

EPS = 1e-6
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Drawn:
    """Numbers of one product, cut as a layer cuts them."""

    def __init__(self, backend: str, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(3)
        self._to: Any = {"device": DEVICES[backend], "dtype": dtype}

    def cut(self, tokens: int, *sizes: int) -> tuple[Tensor, ...]:
        wide = torch.randn(tokens, sum(sizes) + 3, generator=self._generator)
        return wide.to(**self._to)[:, 3:].split(sizes, dim=1)

    def weight(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator).to(**self._to)


def near(got: Tensor, expected: Tensor) -> None:
    """To one rounding of a result, which two orders of a sum may bring about. Triton's interpreter cuts
    float32 off to bfloat16, up to three times on the way."""
    assert got.dtype == expected.dtype
    bits = {torch.float32: 2**-19, torch.bfloat16: 2**-7, torch.float16: 2**-10}[got.dtype]
    if got.dtype == torch.bfloat16:
        bits *= 1 if got.is_cuda else 3
    torch.testing.assert_close(got, expected, rtol=bits, atol=bits * 2**-6)


@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "group", "d"), [(1, 1, 16), (3, 2, 24), (16, 2, 128)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_inputs_of_the_delta_rule(
    backend: str, dtype: torch.dtype, heads: int, group: int, d: int, tokens: int
) -> None:
    drawn = Drawn(backend, dtype)
    v_heads = heads * group
    q, k, a, b = drawn.cut(tokens, heads * d, heads * d, v_heads, v_heads)
    q, k = (one.unflatten(1, (heads, d)) for one in (q, k))
    a = a * 20  # where softplus is straight, and where it is hardly above zero
    log_a, dt_bias = (drawn.weight(v_heads).float() for _ in range(2))
    got = ops_of(backend).delta_inputs(q, k, a, b, log_a, dt_bias, EPS)
    near(got[0], (qwen.l2norm(q.float()) * d**-0.5).to(dtype))
    near(got[1], qwen.l2norm(k.float()).to(dtype))
    near(got[2], -log_a.exp() * F.softplus(a.float() + dt_bias))
    near(got[3].to(dtype), b.sigmoid())
    assert got[3].dtype == torch.float32


@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "d"), [(6, 24), (32, 128), (2, 3000)])
@pytest.mark.parametrize("tokens", [1, 5])
def test_the_gated_norm_of_qwen(
    backend: str, dtype: torch.dtype, rows: int, d: int, tokens: int
) -> None:
    drawn = Drawn(backend, dtype)
    x, gate = drawn.cut(tokens, rows * d, rows * d)
    theirs = qwen.Qwen3_5RMSNormGated(d, EPS)
    theirs.weight.data = drawn.weight(d)
    x = x.unflatten(1, (rows, d))
    got = ops_of(backend).gated_norm(x, gate, theirs.weight.data, EPS)
    near(got, theirs(x, gate.unflatten(1, (rows, d))).flatten(1).detach())


@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "d"), [(1, 256), (4, 24)])
def test_the_gated_norm_of_granite(backend: str, dtype: torch.dtype, rows: int, d: int) -> None:
    drawn = Drawn(backend, dtype)
    x, gate = drawn.cut(5, rows * d, rows * d)
    theirs = granite.GraniteMoeHybridRMSNormGated(rows * d, d, EPS)
    theirs.weight.data = drawn.weight(rows * d)
    weight = theirs.weight.data.view(rows, d)
    x_rows = x.unflatten(1, (rows, d))
    got = ops_of(backend).gated_norm(x_rows, gate, weight, EPS, gate_first=True)
    near(got, theirs(x, gate).detach())


@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "d"), [(1, 16), (3, 24), (16, 256)])
def test_the_gate_of_attention_is_as_pytorch_rounds_it(
    backend: str, dtype: torch.dtype, heads: int, d: int
) -> None:
    """Queries and gates take turns, head by head, and stay where the product has put them."""
    drawn = Drawn(backend, dtype)
    x, both = drawn.cut(5, heads * d, 2 * heads * d)
    x, gate = x.unflatten(1, (heads, d)), both.unflatten(1, (2 * heads, d))[:, 1::2]
    near(ops_of(backend).sigmoid_gate(x, gate), (x * torch.sigmoid(gate)).flatten(1))


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="the interpreter is off")
def test_no_address_is_outside_of_a_tensor() -> None:
    drawn = Drawn("triton", torch.float32)
    q, k, a, b = drawn.cut(2, 72, 72, 6, 6)
    ops = ops_of("triton")
    with watching() as seen:
        heads = (one.unflatten(1, (3, 24)) for one in (q, k))
        made = ops.delta_inputs(*heads, a, b, drawn.weight(6), drawn.weight(6))
        normed = ops.gated_norm(made[0], k, drawn.weight(24), EPS)
        ops.sigmoid_gate(made[0], made[1])
    assert seen.kernels == ["delta_inputs_kernel", "gated_norm_kernel", "sigmoid_gate_kernel"]
    assert all(one.isfinite().all() for one in (*made, normed))
