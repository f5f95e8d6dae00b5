"""Pools, parts and what they must hold. Shapes are tiny: every access of every thread is checked.

A part of the keys is graded before there is a combine kernel: `joined` is one, in float64.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close, note
from grader.kit.kernels import Pool, expect_near, paged_decode, paged_pool, random
from grader.kit.recomputed import Kinds
from yaie.core.batch import AttentionSpec

F32 = torch.float32
HIDDEN = "What lies in slots past a sequence's end is NaN here: it must not be read, or not count."


def some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def spec_of(dim: int, **rules: Any) -> AttentionSpec:
    return AttentionSpec(dim**-0.5, **rules)


def queries(n: int, heads: int, dim: int, seed: int = 9, dtype: torch.dtype = F32) -> Tensor:
    return random(n, heads, dim, seed=seed, dtype=dtype)


def exact_decode(q: Tensor, pool: Pool, spec: AttentionSpec) -> Tensor:
    """Attention in float64; a sequence without keys gives 0."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for i, length in enumerate(pool.seq_lens.tolist()):
        if length:
            tables, lens = pool.block_tables[i : i + 1], pool.seq_lens[i : i + 1]
            row = Pool(pool.key_blocks, pool.value_blocks, tables, lens)
            out[i] = paged_decode(q[i : i + 1], row, spec)[0]
    return out


def used_parts(pool: Pool, spec: AttentionSpec, keys_per_part: int) -> list[int]:
    """How many parts of each sequence have keys."""
    lens = [int(length) for length in pool.seq_lens]
    visible = [min(length, spec.window or length) for length in lens]
    return [-(-keys // keys_per_part) for keys in visible]


def run_parts(
    part: ModuleType, q: Tensor, pool: Pool, spec: AttentionSpec, parts: int, keys_per_part: int
) -> Any:
    """`decode_parts` of the lab under test."""
    split = part.Split(parts, keys_per_part)
    rules = f"window={spec.window}, softcap={spec.softcap}"
    note(
        f"decode_parts: {some(q.shape[1], 'head')} of {q.shape[2]} on {pool.key_blocks.shape[2]}, "
        f"{q.dtype}, lens {pool.seq_lens.tolist()}, blocks of {pool.key_blocks.shape[1]}, {rules}, "
        f"parts={parts}, keys_per_part={keys_per_part}"
    )
    return part.PagedAttention().decode_parts(
        q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec, split
    )


def joined(parts: Any, used: list[int], sinks: Tensor | None = None) -> Tensor:
    """The parts of each sequence as one softmax, in float64: [n, heads, d]."""
    out = torch.zeros(*parts.acc.shape[:2], parts.acc.shape[3], dtype=torch.float64)
    for row, count in enumerate(used):
        if not count:
            continue
        acc, stats = parts.acc[row, :, :count].double(), parts.stats[row, :, :count].double()
        weight = (stats[..., 0] - stats[..., 0].amax(dim=1, keepdim=True)).exp()
        total = (weight * stats[..., 1]).sum(dim=1)
        if sinks is not None:
            total += (sinks.double() - stats[..., 0].amax(dim=1)).exp()
        out[row] = (weight[..., None] * acc).sum(dim=1) / total[:, None]
    return out


def expect_decode(
    part: ModuleType,
    q: Tensor,
    pool: Pool,
    spec: AttentionSpec,
    what: str,
    why: str,
    *,
    parts: int = 1,
    keys_per_part: int = 256,
    exact: Tensor | None = None,
    kinds: Kinds | None = None,
) -> None:
    """`decode_parts`, joined, is attention over each sequence's visible keys. kinds: mistakes in it."""
    found = run_parts(part, q, pool, spec, parts, keys_per_part)
    expect(found.acc.dtype == F32, f"{what}: parts are {found.acc.dtype}, not float32", why=why)
    used = used_parts(pool, spec, keys_per_part)
    right = exact_decode(q, pool, spec) if exact is None else exact
    got = joined(found, used).float()
    try:
        expect_near(got, right, F32, what, why=why, kinds=kinds)
    except Mismatch as error:
        # No memory is poisoned here: NaN comes of what was read, or of 0 / 0.
        error.problem = error.problem.split(": never")[0]
        if parts == 1 and (told := wrong_maximum(q, pool, spec, found.stats[:, :, 0], got, right)):
            error.why = f"{told} {error.why}"
        raise


def wrong_maximum(
    q: Tensor, pool: Pool, spec: AttentionSpec, stats: Tensor, got: Tensor, right: Tensor
) -> str:
    """Whether the maximum of the first wrong head is above all of its scores: then no key has weight.

    stats [n, heads, 2]: (maximum, sum) of the one part of each head."""
    wrong = (
        (~torch.isclose(got.double(), right.double(), rtol=1e-3, atol=1e-3)).any(dim=2).nonzero()
    )
    if not len(wrong):
        return ""  # off by less
    row, head = (int(i) for i in wrong[0])
    top, total = (float(x) for x in stats[row, head])
    if spec.window or spec.softcap or spec.sinks is not None or total != 0.0:
        return ""
    tops, group = list[float](), q.shape[1] // pool.key_blocks.shape[2]
    for each in range(q.shape[1]):
        places = [slot(pool, row, position) for position in range(int(pool.seq_lens[row]))]
        keys = [pool.key_blocks[place][each // group] for place in places]
        scores = torch.stack(keys).double() @ q[row, each].double() * spec.scale
        tops.append(float(scores.max()))
    if top <= tops[head] + 1.0:
        return ""
    others = [each for each, one in enumerate(tops) if each != head and abs(one - top) < 1e-3]
    whose = f", as head {others[0]}'s is," if others else ""
    return (
        f"The maximum of head {head} is {top:g}{whose} and its largest score is {tops[head]:g}: all of "
        "its weights are 0, and 0 / 0 is NaN."
    )


def marked(lens: list[int], kv_heads: int = 1, dim: int = 256, block_size: int = 4) -> Pool:
    """Keys of zero, so that weights are equal; the value at position p of key head h is p + 100 * h."""
    pool = paged_pool(lens, block_size=block_size, kv_heads=kv_heads, head_dim=dim)
    pool.key_blocks[~pool.key_blocks.isnan()] = 0.0
    for row, length in enumerate(lens):
        for position in range(length):
            for head in range(kv_heads):
                pool.value_blocks[slot(pool, row, position)][head] = position + 100.0 * head
    return pool


def everywhere(pool: Pool) -> Pool:
    """The same pool with keys of zero in all other slots, too, and as values 1,000 and the slot."""
    free = pool.value_blocks.isnan()
    slots = torch.arange(free[..., 0, 0].numel()).view(free.shape[:2])[..., None, None]
    pool.value_blocks[free] = (1000.0 + slots).expand(free.shape)[free]
    pool.key_blocks[pool.key_blocks.isnan()] = 0.0
    return pool


def in_one_block(count: int) -> Pool:
    """`marked` with one sequence, whose keys all lie in block 0: finding them is not in question."""
    pool = marked([count], block_size=32)
    block = int(pool.block_tables[0, 0])
    for blocks in (pool.key_blocks, pool.value_blocks):
        blocks[0] = blocks[block].clone()
    pool.block_tables[0, 0] = 0
    return pool


def slot(pool: Pool, row: int, position: int) -> tuple[int, int]:
    """Where a key lies: its block, and its place there."""
    size = pool.key_blocks.shape[1]
    return int(pool.block_tables[row, position // size]), position % size


def means(values: list[float], heads: int = 1, dim: int = 256) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None].expand(-1, heads, dim)


SLACK = 1e-5
"""How far a result in float32 may be off before it is rounded."""


RARE = 0.1
"""How many numbers may round the other way, as a share of the wrong ones that a mistake explains."""


def expect_rounded_once(got: Tensor, exact: Tensor, what: str, why: str, kinds: Kinds) -> None:
    """got is `exact` rounded to its dtype of 16 bits, to the last bit. kinds: mistakes, in float64."""
    ends = [(exact * factor).to(got.dtype) for factor in (1 - SLACK, 1 + SLACK)]
    fits = (got >= torch.minimum(*ends)) & (got <= torch.maximum(*ends))
    right = got.where(fits, exact.to(got.dtype))
    # A kind must account for what is right, too: many mistakes make some of the same numbers wrong.
    most = max(1, int(RARE * int((~fits).sum())))
    found = [
        told
        for told, compute in kinds.items()
        if int((compute().to(got.dtype) != got).sum()) <= most
    ]
    expect_close(got, right, what, rtol=0, atol=0, why=found[0] if len(found) == 1 else why)
