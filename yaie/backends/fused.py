"""Operations that one kernel does in a launch where the parts of the labs take several, in Triton.

A launch costs a few microseconds, however little it does, and what two kernels hand over goes through
memory. A part of a learner's that does one of these operations runs by itself: the backend asks for the
fused one only where all of them are the reference's, and with the same roundings it gives the same.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from yaie.backends.early import early_launch, starts_early
from yaie.core.batch import Rotation

MANY_TOKENS = 512
"""From there on a program has a whole token; below it one key head and its queries."""
MOST_HEADS = 16
"""Queries' heads of a program: more do not fit into its registers."""


@triton.jit
def norm_and_turn(x, weight, cos, sin, mask, eps, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr):
    """Heads at the pointers x [HEADS, BLOCK_HALF] (their first halves), normed and rotated: both halves.

    Rounded where two kernels would: behind the quotient, behind the weight, behind the rotation.
    """
    pairs = tl.arange(0, BLOCK_HALF)
    inside = pairs < HALF
    dtype = x.dtype.element_ty
    lower = tl.load(x, mask=mask, other=0.0).to(tl.float32)
    upper = tl.load(x + HALF, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(lower * lower + upper * upper, axis=1) / (2 * HALF)
    scale = tl.rsqrt(mean + eps)[:, None]
    gain = tl.load(weight + pairs, mask=inside, other=0.0).to(tl.float32)[None, :]
    lower = ((lower * scale).to(dtype).to(tl.float32) * gain).to(dtype).to(tl.float32)
    gain = tl.load(weight + HALF + pairs, mask=inside, other=0.0).to(tl.float32)[None, :]
    upper = ((upper * scale).to(dtype).to(tl.float32) * gain).to(dtype).to(tl.float32)
    c = tl.load(cos + pairs, mask=inside, other=0.0)[None, :]
    s = tl.load(sin + pairs, mask=inside, other=0.0)[None, :]
    return (lower * c - upper * s).to(dtype), (upper * c + lower * s).to(dtype)


@triton.jit
def norm_rope_store_kernel(
    q,
    k,
    v,
    q_weight,
    k_weight,
    positions,
    cos,
    sin,
    keys,
    values,
    slots,
    q_token_stride,
    k_token_stride,
    v_token_stride,
    block_stride,
    slot_stride,
    block_size,
    heads,
    kv_heads,
    eps,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    KEEP_K: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Program (token, tile) has the heads of q from tile * HEADS on, and those of k and v from
    tile * KV_HEADS on. A token's heads lie side by side, in q, k and v as in the pool.

    EARLY: see `early`.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    token, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    D: tl.constexpr = 2 * HALF
    pairs = tl.arange(0, BLOCK_HALF)
    row = tl.load(positions + token) * HALF
    cos += row
    sin += row
    rows = tile * HEADS + tl.arange(0, HEADS)
    mask = (rows < heads)[:, None] & (pairs < HALF)[None, :]
    at = q + token * q_token_stride + rows[:, None] * D + pairs[None, :]
    lower, upper = norm_and_turn(at, q_weight, cos, sin, mask, eps, HALF, BLOCK_HALF)
    tl.store(at, lower, mask=mask)
    tl.store(at + HALF, upper, mask=mask)

    slot = tl.load(slots + token)
    rows = tile * KV_HEADS + tl.arange(0, KV_HEADS)
    mask = (rows < kv_heads)[:, None] & (pairs < HALF)[None, :]
    inner = rows[:, None] * D + pairs[None, :]
    at = k + token * k_token_stride + inner
    lower, upper = norm_and_turn(at, k_weight, cos, sin, mask, eps, HALF, BLOCK_HALF)
    if KEEP_K:
        tl.store(at, lower, mask=mask)
        tl.store(at + HALF, upper, mask=mask)
    if slot >= 0:
        place = slot // block_size * block_stride + slot % block_size * slot_stride
        tl.store(keys + place + inner, lower, mask=mask)
        tl.store(keys + place + inner + HALF, upper, mask=mask)
        at = v + token * v_token_stride + inner
        first = tl.load(at, mask=mask, other=0.0)
        second = tl.load(at + HALF, mask=mask, other=0.0)
        tl.store(values + place + inner, first, mask=mask)
        tl.store(values + place + inner + HALF, second, mask=mask)


def norm_rope_store(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotation: Rotation,
    key_blocks: Tensor,
    value_blocks: Tensor,
    slot_mapping: Tensor,
    keep_k: bool,
    *,
    fixed: bool = False,
) -> None:
    """RMSNorm and rotation of each head of q [T, heads, d] in place, and of k [T, kv_heads, d] on its
    way to its slot; v goes there as it is. A negative slot stores nothing.

    rotation: has norms, and angles for all d dimensions. keep_k: whether k is overwritten as well;
    otherwise it stays as it was. fixed: whether programs have as many heads for any number of tokens, so
    that sums do not depend on it. As `HeadNorms.apply` and then `LayerKernels.rope_and_store`, in one
    launch in place of three. Heads and a slot's heads lie side by side.
    """
    norms = rotation.norms
    assert norms is not None
    tokens, heads, d = q.shape
    kv_heads, half = k.shape[1], d // 2
    if not tokens:
        return
    early = starts_early(q.device)
    is_many = tokens >= MANY_TOKENS and not fixed
    tiles = triton.cdiv(heads, MOST_HEADS) if is_many else kv_heads
    per_tile = triton.next_power_of_2(triton.cdiv(heads, tiles))
    norm_rope_store_kernel[(tokens, tiles)](
        q, k, v, norms.q, norms.k, rotation.positions, rotation.cos, rotation.sin,
        key_blocks, value_blocks, slot_mapping, q.stride(0), k.stride(0), v.stride(0),
        *key_blocks.stride()[:2], key_blocks.shape[1], heads, kv_heads, norms.eps,
        HALF=half, BLOCK_HALF=triton.next_power_of_2(half), HEADS=per_tile,
        KV_HEADS=triton.next_power_of_2(triton.cdiv(kv_heads, tiles)), KEEP_K=keep_k,
        num_warps=4 if per_tile > 8 else 1, EARLY=early, **early_launch(early),
    )  # fmt: skip
