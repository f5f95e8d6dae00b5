"""What stands around the rules in a layer, in one launch each. PyTorch takes a dozen, and in a decode
step of a few sequences each takes about as long as the rule itself."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def softplus(x):
    """log(1 + e^x), of which PyTorch says x above 20. Also where 1 + e^x is rounded to 1."""
    e = tl.exp(tl.minimum(x, 20.0))
    u = 1.0 + e
    small = tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))
    return tl.where(x > 20.0, x, small)


@triton.jit
def unit_heads(to, x, mask, length, eps):
    """Heads [heads, d] at the pointers x, each scaled to this length."""
    wide = tl.load(x, mask=mask, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(wide * wide, axis=1) + eps) * length
    tl.store(to, (wide * factor[:, None]).to(to.dtype.element_ty), mask=mask)


@triton.jit
def delta_inputs_kernel(
    q_out, k_out, log_decay, beta, q, k, a, b, log_a, dt_bias, q_stride, q_head, k_stride, k_head,
    a_stride, b_stride, length, eps, HEADS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr, GATES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (tile, token): TILE heads of q and of k, and the gates of the heads that go with them.

    EARLY: see `yaie.backends.early`.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    tile, token = tl.program_id(0), tl.program_id(1).to(tl.int64)
    head = tile * TILE + tl.arange(0, TILE)
    of_d = tl.arange(0, BLOCK_D)
    mask = (head < HEADS)[:, None] & (of_d < D)[None, :]
    to = token * (HEADS * D) + head[:, None] * D + of_d[None, :]
    at = q + token * q_stride + head[:, None] * q_head + of_d[None, :]
    unit_heads(q_out + to, at, mask, length, eps)
    at = k + token * k_stride + head[:, None] * k_head + of_d[None, :]
    unit_heads(k_out + to, at, mask, 1.0, eps)

    local = tl.arange(0, GATES)
    gate = tile * (TILE * GROUP) + local
    mask = (local < TILE * GROUP) & (gate < HEADS * GROUP)
    x = tl.load(a + token * a_stride + gate, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(dt_bias + gate, mask=mask, other=0.0)
    rate = tl.exp(tl.load(log_a + gate, mask=mask, other=0.0))
    to = token * (HEADS * GROUP) + gate
    tl.store(log_decay + to, -rate * softplus(x), mask=mask)
    x = tl.load(b + token * b_stride + gate, mask=mask, other=0.0)
    chance = (1.0 / (1.0 + tl.exp(-x.to(tl.float32)))).to(b.dtype.element_ty)
    tl.store(beta + to, chance.to(tl.float32), mask=mask)


@triton.jit
def gated_norm_kernel(
    out, x, gate, weight, x_stride, x_row, gate_stride, weight_row, eps, ROWS: tl.constexpr,
    D: tl.constexpr, BLOCK_D: tl.constexpr, TILE: tl.constexpr, GATE_FIRST: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Program (tile, token): TILE rows of x [token, ROWS, D]. Rounded behind the quotient, the weight
    and a gate that comes last. EARLY: as above."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(1).to(tl.int64)
    row, of_d = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, BLOCK_D)
    mask = (row < ROWS)[:, None] & (of_d < D)[None, :]
    inner = row[:, None] * D + of_d[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    at = x + token * x_stride + row[:, None] * x_row + of_d[None, :]
    value = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    raw = tl.load(gate + token * gate_stride + inner, mask=mask, other=0.0).to(tl.float32)
    factor = raw / (1.0 + tl.exp(-raw))
    if GATE_FIRST:
        value *= factor
    scale = tl.rsqrt(tl.sum(value * value, axis=1) / D + eps)
    at = weight + row[:, None] * weight_row + of_d[None, :]
    gain = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    value = (value * scale[:, None]).to(dtype).to(tl.float32) * gain
    if not GATE_FIRST:
        value = value.to(dtype).to(tl.float32) * factor
    tl.store(out + token * (ROWS * D) + inner, value.to(dtype), mask=mask)


@triton.jit
def sigmoid_gate_kernel(
    out, x, gate, x_stride, x_head, gate_stride, gate_head, HEADS: tl.constexpr, D: tl.constexpr,
    BLOCK_D: tl.constexpr, TILE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (tile, token): TILE heads of x. EARLY: as above."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(1).to(tl.int64)
    head, of_d = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, BLOCK_D)
    mask = (head < HEADS)[:, None] & (of_d < D)[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    at = x + token * x_stride + head[:, None] * x_head + of_d[None, :]
    value = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    at = gate + token * gate_stride + head[:, None] * gate_head + of_d[None, :]
    raw = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    share = (1.0 / (1.0 + tl.exp(-raw))).to(dtype).to(tl.float32)
    to = out + token * (HEADS * D) + head[:, None] * D + of_d[None, :]
    tl.store(to, (value * share).to(dtype), mask=mask)
