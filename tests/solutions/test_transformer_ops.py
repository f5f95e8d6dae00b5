"""Lab 2: the operations against transformers' modules, float64 and the definition of attention."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from solutions.transformer_ops import TransformerOps
from solutions.transformer_ops.naive import naive_attention
from yaie.core.batch import AttentionSpec

OPS = TransformerOps()


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_is_transformers(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    module = LlamaRMSNorm(64, eps=1e-5).to(dtype)
    module.weight.data = rand(64, seed=1).to(dtype)
    x = (rand(7, 64) * 30).to(dtype)
    assert torch.equal(OPS.rms_norm(x, module.weight, 1e-5), module(x))


def test_rms_norm_is_accurate() -> None:
    x, weight = rand(5, 512), rand(512, seed=1)
    exact = (
        x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    )
    assert (OPS.rms_norm(x, weight, 1e-6).double() - exact).abs().max() < 1e-5


def test_fused_add_rms_norm_is_an_addition_and_a_norm() -> None:
    x, residual, weight = rand(5, 64), rand(5, 64, seed=1), rand(64, seed=2)
    total = x + residual
    normed, new_residual = OPS.fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-5)
    assert torch.equal(new_residual, total)
    assert torch.equal(normed, OPS.rms_norm(total, weight, 1e-5))


def tables(positions: int, half: int) -> tuple[Tensor, Tensor]:
    frequencies = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return angles.cos(), angles.sin()


def test_rope_is_transformers() -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k = rand(9, 4, 32), rand(9, 2, 32, seed=1)
    cos, sin = tables(50, 16)
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 17, 48, 49])
    both = [torch.cat([table[positions]] * 2, dim=-1)[None] for table in (cos, sin)]
    theirs = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], *both)
    ours = OPS.rope(q, k, positions, cos, sin)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other[0].transpose(0, 1), atol=1e-6)


def test_rope_leaves_the_dimensions_beyond_the_rotary_ones() -> None:
    q, k = rand(3, 2, 32), rand(3, 2, 32, seed=1)
    cos, sin = tables(10, 4)
    turned, _ = OPS.rope(q, k, torch.tensor([1, 2, 3]), cos, sin)
    assert torch.equal(turned[..., 8:], q[..., 8:])
    assert not torch.equal(turned[..., :8], q[..., :8])


def test_rope_depends_on_distances_alone() -> None:
    q, k = rand(1, 1, 32), rand(1, 1, 32, seed=1)
    cos, sin = tables(100, 16)

    def score(at_q: int, at_k: int) -> float:
        turned_q, _ = OPS.rope(q, k, torch.tensor([at_q]), cos, sin)
        _, turned_k = OPS.rope(q, k, torch.tensor([at_k]), cos, sin)
        return float((turned_q * turned_k).sum())

    assert score(12, 5) == pytest.approx(score(97, 90), abs=1e-4)


def test_silu_mul_is_silu_of_the_first_half_times_the_second() -> None:
    x = rand(5, 128)
    gate, up = x[:, :64].double(), x[:, 64:].double()
    exact = gate / (1 + (-gate).exp()) * up
    assert (OPS.silu_mul(x).double() - exact).abs().max() < 1e-5


def attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: Tensor | None = None
) -> Tensor:
    """Mask and attention, as a caller joins them."""
    tq, tk = q.shape[1], k.shape[1]
    lens = torch.full((len(q),), tk) if kv_lens is None else kv_lens
    return OPS.attention(q, k, v, OPS.causal_mask(lens, tq, tk, spec.window, q.dtype), spec)


@st.composite
def attention_cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, AttentionSpec, Tensor | None]:
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 3), (4, 1), (1, 4)]))
    n, tq = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    tk = tq + draw(st.integers(0, 20))
    seed = draw(st.integers(0, 1000))
    lens = st.lists(st.integers(tq, tk), min_size=n, max_size=n)
    kv_lens = draw(st.none() | lens.map(torch.tensor))
    spec = AttentionSpec(
        scale=draw(st.sampled_from([0.1, 0.35])),
        window=draw(st.none() | st.integers(1, 12)),
        softcap=draw(st.none() | st.just(2.0)),
        sinks=draw(st.none() | st.just(rand(kv_heads * group, seed=9))),
    )
    q = rand(n, tq, kv_heads * group, 8, seed=seed)
    k, v = (rand(n, tk, kv_heads, 8, seed=seed + i) for i in (1, 2))
    return q, k, v, spec, kv_lens


@settings(max_examples=150, deadline=None, derandomize=True)
@given(attention_cases())
def test_attention_is_its_definition(
    case: tuple[Tensor, Tensor, Tensor, AttentionSpec, Tensor | None],
) -> None:
    q, k, v, spec, kv_lens = case
    exact = naive_attention(q.double(), k, v, spec, kv_lens)
    assert (attention(q, k, v, spec, kv_lens).double() - exact).abs().max() < 1e-5


@pytest.mark.parametrize("spec", [AttentionSpec(0.2), AttentionSpec(0.2, softcap=5.0)])
def test_attention_in_bfloat16_accumulates_in_float32(spec: AttentionSpec) -> None:
    q, k, v = (rand(2, 40, heads, 32, seed=heads) for heads in (4, 2, 2))
    half = [x.bfloat16() for x in (q, k, v)]
    out = attention(*half, spec)
    assert out.dtype == torch.bfloat16
    exact = naive_attention(*(x.double() for x in half), spec)
    assert (out.double() - exact).norm() / exact.norm() < 6e-3
