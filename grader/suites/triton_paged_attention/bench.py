"""Sequences in a pool, attention over them under supervision, and what float64 says.

Whatever a case leaves open in the pool is NaN, and what stands behind the end of a table is no block.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import expect, note, watch
from grader.kit.kernels import (
    Pool,
    expect_near,
    paged_decode,
    paged_pool,
    paged_prefill,
    random,
)
from grader.kit.script import show
from grader.kit.triton_watch import Seen, watching
from yaie.core.batch import AttentionSpec

MASK_WHY = (
    "The last block of a sequence is filled as far as its keys go; behind them lies what the block's "
    "last owner left, here NaN. 0 * NaN is NaN: mask the loads of keys and of values, and give the "
    "scores there -inf."
)


@dataclass(frozen=True, slots=True)
class Case:
    """Sequences of `lens` keys. queries: of each the number, None for a decode."""

    lens: list[int]
    pool: Pool
    q: Tensor
    spec: AttentionSpec
    queries: list[int] | None = None

    @property
    def kv_heads(self) -> int:
        return self.pool.key_blocks.shape[2]

    def exact(self) -> Tensor:
        """What comes out, in float64."""
        if self.queries is None:
            return paged_decode(self.q, self.pool, self.spec)
        return paged_prefill(self.q, self.pool, self.queries, self.spec)

    def told(self) -> str:
        spec = self.spec
        given = [f"{n}={show(getattr(spec, n))}" for n in ("window", "softcap", "sinks")]
        given = [text for text in given if not text.endswith("=None")]
        chunks = "" if self.queries is None else f"{self.queries} queries of "
        block_size, heads = self.pool.key_blocks.shape[1], self.q.shape[1]
        what = f"{chunks}sequences of {self.lens} keys, blocks of {block_size}, "
        what += f"{heads} heads on {self.kv_heads}, head size {self.q.shape[2]}"
        return ", ".join([what, f"scale={spec.scale:g}", *given])


def make_case(
    lens: list[int],
    *,
    queries: list[int] | None = None,
    block_size: int = 4,
    kv_heads: int = 1,
    group: int = 1,
    d: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    **spec: Any,
) -> Case:
    """Random queries, keys and values."""
    pool = paged_pool(
        lens, block_size=block_size, kv_heads=kv_heads, head_dim=d, seed=seed, dtype=dtype
    )
    num_queries = len(lens) if queries is None else sum(queries)
    q = random(num_queries, kv_heads * group, d, seed=seed + 1, dtype=dtype)
    return Case(lens, pool, q, AttentionSpec(**{"scale": 0.25} | spec), queries)


def filled(case: Case, *, keys: Any = None, values: Any = None, q: Any = None) -> Case:
    """The case with other numbers where keys lie.

    keys(i, p), values(i, p): at position p of sequence i, a number or a tensor [kv_heads, 1 or d]. q: a
    number or a tensor like q.
    """
    pool = case.pool
    new = {"key_blocks": pool.key_blocks.clone(), "value_blocks": pool.value_blocks.clone()}
    size = pool.key_blocks.shape[1]
    for name, number in (("key_blocks", keys), ("value_blocks", values)):
        for i, length in enumerate(case.lens):
            for p in range(length if number is not None else 0):
                new[name][pool.block_tables[i, p // size], p % size] = number(i, p)
    asked = case.q if q is None else torch.zeros_like(case.q) + q
    return replace(case, pool=replace(pool, **new), q=asked)


def attend(part: ModuleType, case: Case, splits: int | None = None) -> tuple[Any, Seen]:
    """What the part makes of the case, and what its kernels did to memory."""
    note(f"# {case.told()}")
    given = "" if splits is None else f"splits={splits}"
    note(f"attention = PagedAttention({given})")
    attention = watch(
        part.PagedAttention() if splits is None else part.PagedAttention(splits=splits), "attention"
    )
    pool = case.pool
    with watching() as seen:
        if case.queries is None:
            bound = max(case.lens, default=0)
            out = attention.decode(
                case.q,
                pool.key_blocks,
                pool.value_blocks,
                pool.block_tables,
                pool.seq_lens,
                case.spec,
                max_seq_len=bound,
            )
        else:
            starts = torch.tensor([0, *case.queries]).cumsum(0).int()
            out = attention.prefill(
                case.q,
                pool.key_blocks,
                pool.value_blocks,
                pool.block_tables,
                starts,
                pool.seq_lens,
                case.spec,
                max_query_len=max(case.queries, default=0),
            )
    return out, seen


def expect_attention(
    part: ModuleType,
    case: Case,
    splits: int | None = None,
    *,
    what: str = "",
    why: str = "",
    roundings: float = 1.0,
) -> Seen:
    """The part's result is that of float64. Returns what its kernels did."""
    out, seen = attend(part, case, splits)
    name = "prefill" if case.queries is not None else "decode"
    expect(isinstance(out, Tensor), f"{name} returns {type(out).__name__} instead of a tensor")
    expect_near(
        out, case.exact(), case.q.dtype, what or f"{name} of {case.told()}", why=why, roundings=roundings
    )  # fmt: skip
    return seen


def expect_rows(out: Any, values: list[float], what: str, why: str) -> None:
    """In dimension 0, `out` [rows, heads, d] holds these values, row by row and head by head."""
    right = torch.tensor(values, dtype=torch.float64)
    expect(isinstance(out, Tensor), f"{what}: {type(out).__name__} instead of a tensor")
    expect_near(out[..., 0].flatten(), right, out.dtype, what, why=why)


@contextmanager
def loads_by_program(tensor: Tensor) -> Iterator[Counter[tuple[Any, ...]]]:
    """Elements of a tensor that each program of a grid reads."""
    from triton.runtime.interpreter import InterpreterBuilder

    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
    before = InterpreterBuilder.create_masked_load
    count: Counter[tuple[Any, ...]] = Counter()

    def counted(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        addresses = pointers.data[mask.data]
        own = (addresses >= begin) & (addresses < end)
        count[tuple(self.grid_idx)] += int(own.sum())
        return before(self, pointers, mask, *rest)

    InterpreterBuilder.create_masked_load = counted
    try:
        yield count
    finally:
        InterpreterBuilder.create_masked_load = before
