"""What the kernels must compute, in float64: shared by the suites of labs 9 to 16.

Tensors and tolerances:
  random(*shape, seed, dtype, scale)        multiples of 1/8, exact in every dtype
  expect_near(got, exact, dtype, what)      dtype, shape and values, within a few roundings of the dtype;
                                            with reading=Reading(...), a stride that was mixed up;
                                            with kinds={...}, the mistake that gives this (recomputed.py)
  TOLERANCE[dtype]
Layout (in `layout.py`):
  padded(tensor, number, dims=, multiple=)  the same values, with NaN between the rows, and around
  padded_apart(x, residual, ...)            the same for each, no stride of one being another's
  expect_gaps_kept(what, view)              nothing was written in between
  Reading(compute, inputs)                  what an input that is misread would give
Between the products of a layer (float64 out of any dtype):
  rms_norm(x, weight, eps)                  fused_add_rms_norm(x, residual, weight, eps) -> (norm, sum)
  silu_mul(x)                               rope(x, positions, cos, sin)
  rotary_tables(positions, half) -> (cos, sin) float32
Attention, with window, softcap, sinks and a block mask:
  seen(tq, tk, causal=, window=, block_mask=, mask_block=)                       [tq, tk] bool
  attention(q, k, v, spec, causal=, block_mask=, mask_block=)                    (out, lse)
  attention_gradients(grad_out, q, k, v, spec, causal=, ...)                     (dq, dk, dv)
The pool of keys and values:
  paged_pool(lens, block_size=, kv_heads=, head_dim=, seed=, dtype=) -> Pool     blocks in no order, NaN
                                            wherever no key lies, nonsense behind the end of each table
  paged_gather(blocks, table, length)       [length, kv_heads, d], the blocks of one table in order
  paged_decode(q, pool, spec)               paged_prefill(q, pool, query_lens, spec)
  store_kv(k, v, key_blocks, value_blocks, slot_mapping) -> (keys, values)       new tensors
Sampling (in `sampling.py`):
  sampling_batch(n, temperature=, top_k=, top_p=, min_p=, seeds=, steps=)        a SamplingBatch
  probabilities(logits, batch)              [n, vocab] float64: what each token's chance must be
  gumbel_noise(seeds, steps, vocab)         [n, vocab] float64, the noise of lab 1 without its roundings

`AttentionSpec(scale, window, softcap, sinks)` is in yaie/core/batch.py.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.kit.expect import Mismatch, expect_close
from grader.kit.layout import STRIDE_WHY, Reading, explain_strides
from grader.kit.layout import expect_gaps_kept as expect_gaps_kept
from grader.kit.layout import padded as padded
from grader.kit.layout import padded_apart as padded_apart
from grader.kit.recomputed import Kinds, fitting, from_element
from grader.kit.sampling import gumbel_noise as gumbel_noise
from grader.kit.sampling import probabilities as probabilities
from grader.kit.sampling import sampling_batch as sampling_batch
from yaie.core.batch import AttentionSpec

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Relative, and absolute for values below 1: a few roundings. Triton's interpreter rounds to bfloat16 by
cutting off, which is an error of up to 2**-7 each time."""
NOWHERE = 2**30
"""A block that no pool has: what stands in a table behind a sequence's last block."""


def random(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> Tensor:
    """Normal numbers times `scale`, rounded to multiples of 1/8: a report can show them."""
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return ((numbers * scale * 8).round() / 8).to(dtype)


def expect_near(
    got: Any,
    exact: Tensor,
    dtype: torch.dtype,
    what: str,
    *,
    why: str = "",
    roundings: float = 1.0,
    reading: Reading | None = None,
    kinds: Kinds | None = None,
) -> None:
    """`got` is of this dtype and close to `exact`. roundings: multiplies the tolerance.

    reading: if values differ, and are what comes of an input that was read with a stride that is not its
    own, this is what the message says. kinds: mistakes; the one that gives these values takes the place
    of `why`.
    """
    if isinstance(got, Tensor) and got.dtype != dtype:
        raise Mismatch(f"{what}: wrong dtype", str(dtype), str(got.dtype), why)
    tolerance = TOLERANCE[dtype] * roundings
    try:
        _expect_numbers(got, exact, what, why)
        expect_close(got, exact.double(), what, rtol=tolerance, atol=tolerance, why=why)
    except Mismatch as mismatch:
        if not isinstance(got, Tensor) or got.shape != exact.shape:
            raise
        if fits := fitting(got, exact, kinds or {}, tolerance):
            mismatch.problem, mismatch.why = mismatch.problem.split(": never")[0], fits
        if place := from_element(got, exact, tolerance):
            mismatch.problem = f"{mismatch.problem}, {place}"
        if fits or reading is None:
            raise
        if not (told := explain_strides(got, exact, reading, tolerance=tolerance)):
            raise
        problem = f"{mismatch.problem.split(': never')[0]}: {told}"
        raise Mismatch(problem, mismatch.expected, mismatch.got, STRIDE_WHY) from None


def _expect_numbers(got: Any, exact: Tensor, what: str, why: str) -> None:
    if isinstance(got, Tensor) and got.isnan().any() and not exact.isnan().any():
        lost = int(got.isnan().sum())
        index = got.isnan().nonzero()[0].tolist()
        raise Mismatch(
            f"{what}: {lost} of {got.numel()} values are NaN, the first at {index}: "
            "never written, or made of what must not be read",
            why=why,
        )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x**2) + eps) * weight over the last dimension."""
    wide = x.double()
    return wide / (wide.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight.double()


def fused_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The norm of the sum, after the sum was rounded to the residual's dtype; and that sum."""
    total = (x.double() + residual.double()).to(residual.dtype).double()
    return rms_norm(total, weight, eps), total


def silu_mul(x: Tensor) -> Tensor:
    """silu(gate) * up for x = [gate | up]."""
    gate, up = x.double().chunk(2, dim=-1)
    return gate / (1 + (-gate).exp()) * up


def rotary_tables(positions: int, half: int, base: float = 100.0) -> tuple[Tensor, Tensor]:
    """cos and sin [positions, half], float32."""
    frequencies = base ** (-torch.arange(half).double() / half)
    angles = torch.outer(torch.arange(positions).double(), frequencies)
    return angles.cos().float(), angles.sin().float()


def rope(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, d] turned to `positions`: pair (i, i + half) by the angle of its position."""
    half = cos.shape[1]
    out = x.double().clone()
    c, s = (table.double()[positions.long()][:, None] for table in (cos, sin))
    first, second = x.double()[..., :half], x.double()[..., half : 2 * half]
    out[..., :half] = first * c - second * s
    out[..., half : 2 * half] = second * c + first * s
    return out


def seen(
    tq: int,
    tk: int,
    *,
    causal: bool = True,
    window: int | None = None,
    block_mask: Tensor | None = None,
    mask_block: int = 128,
) -> Tensor:
    """Which of tk keys each of tq queries sees; query j stands at position tk - tq + j."""
    position = torch.arange(tk - tq, tk)[:, None]
    key = torch.arange(tk)[None, :]
    mask = torch.ones(tq, tk, dtype=torch.bool)
    if causal:
        mask &= key <= position
    if window is not None:
        mask &= key > position - window
    if block_mask is not None:
        rows, columns = torch.arange(tq) // mask_block, torch.arange(tk) // mask_block
        mask &= block_mask[rows][:, columns]
    return mask


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    *,
    causal: bool = True,
    block_mask: Tensor | None = None,
    mask_block: int = 128,
) -> tuple[Tensor, Tensor]:
    """q [n, tq, heads, d], k and v [n, tk, kv_heads, d]: (out like q, lse [n, heads, tq]), float64.

    A query without a key gives 0, and -inf as its lse (a sink's logit, if there are sinks).
    """
    tq, heads, tk = q.shape[1], q.shape[2], k.shape[1]
    group = heads // k.shape[2]
    keys, values = (x.double().repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("nqhd,nkhd->nhqk", q.double(), keys) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    visible = seen(
        tq, tk, causal=causal, window=spec.window, block_mask=block_mask, mask_block=mask_block
    )
    scores = scores.masked_fill(~visible, -math.inf)
    highest = scores.detach().amax(dim=-1)
    sinks = torch.full((1, heads, 1), -math.inf, dtype=torch.float64)
    if spec.sinks is not None:
        sinks = spec.sinks.double()[None, :, None]
    highest = torch.maximum(highest, sinks)
    highest = highest.masked_fill(highest == -math.inf, 0.0)
    weights = (scores - highest[..., None]).exp()
    total = weights.sum(dim=-1) + (sinks - highest).exp()
    # Nothing seen, nothing divided: without this a gradient would be NaN, not 0.
    divisor = total.masked_fill(total == 0, 1.0)
    out = torch.einsum("nhqk,nkhd->nqhd", weights / divisor[..., None], values)
    return out, highest + total.log()


def attention_gradients(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    *,
    causal: bool = True,
    block_mask: Tensor | None = None,
    mask_block: int = 128,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) in float64, by differentiating `attention`."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    out, _ = attention(q, k, v, spec, causal=causal, block_mask=block_mask, mask_block=mask_block)
    # Of a sum: given the gradient of a tensor, PyTorch imports SymPy, for half a second.
    dq, dk, dv = torch.autograd.grad((out * grad_out.double()).sum(), (q, k, v))
    return dq, dk, dv


@dataclass(frozen=True, slots=True)
class Pool:
    """Keys and values of n sequences in blocks. block_tables, seq_lens: int32, as kernels get them."""

    key_blocks: Tensor
    value_blocks: Tensor
    block_tables: Tensor
    seq_lens: Tensor


def paged_pool(
    lens: list[int],
    *,
    block_size: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Pool:
    """A pool with sequences of `lens` keys, in blocks that are scattered over it."""
    counts = [-(-length // block_size) for length in lens]
    num_blocks = sum(counts) + 2
    shape = (num_blocks, block_size, kv_heads, head_dim)
    keys, values = (torch.full(shape, math.nan, dtype=dtype) for _ in range(2))
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed)).tolist()
    tables = torch.full((len(lens), max(counts, default=0) + 1), NOWHERE, dtype=torch.int32)
    for row, (length, count) in enumerate(zip(lens, counts, strict=True)):
        blocks = [order.pop() for _ in range(count)]
        tables[row, :count] = torch.tensor(blocks, dtype=torch.int32)
        for position in range(length):
            place = blocks[position // block_size], position % block_size
            for half, pool in enumerate((keys, values)):
                name = seed + 7919 * (2 * position + half) + 104_729 * row
                pool[place] = random(kv_heads, head_dim, seed=name, dtype=dtype)
    return Pool(keys, values, tables, torch.tensor(lens, dtype=torch.int32))


def paged_gather(blocks: Tensor, table: Tensor, length: int) -> Tensor:
    """The first `length` slots of one table's blocks, in order: [length, ...]."""
    size = blocks.shape[1]
    return blocks[table[: -(-length // size)].long()].flatten(0, 1)[:length]


def paged_decode(q: Tensor, pool: Pool, spec: AttentionSpec) -> Tensor:
    """One query for each sequence, at its last position: q [n, heads, d]. float64, like q."""
    return paged_prefill(q, pool, [1] * len(q), spec)


def paged_prefill(q: Tensor, pool: Pool, query_lens: list[int], spec: AttentionSpec) -> Tensor:
    """The last `query_lens` positions of each sequence, one after the other: q [T, heads, d]."""
    parts = []
    for row, queries in enumerate(q.split(query_lens)):
        length = int(pool.seq_lens[row])
        k, v = (
            paged_gather(blocks, pool.block_tables[row], length)[None]
            for blocks in (pool.key_blocks, pool.value_blocks)
        )
        parts.append(attention(queries[None], k, v, spec)[0][0])
    return torch.cat(parts) if parts else q.double()


def store_kv(
    k: Tensor, v: Tensor, key_blocks: Tensor, value_blocks: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """Copies of the blocks in which k, v [T, kv_heads, d] lie in their slots."""
    stored = key_blocks.clone(), value_blocks.clone()
    size = key_blocks.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            for new, blocks in zip((k, v), stored, strict=True):
                blocks[slot // size, slot % size] = new[token]
    return stored
