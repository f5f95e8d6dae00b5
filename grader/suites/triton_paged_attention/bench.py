"""Sequences in a pool, attention over them under supervision, and what float64 says.

Whatever a case leaves open in the pool is NaN, and what stands behind the end of a table is no block.
Queries, blocks of keys, blocks of values and tables have gaps between them, each another one.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Fault, Mismatch, expect, note, start_script, watch
from grader.kit.kernels import (
    Pool,
    expect_near,
    padded,
    padded_apart,
    paged_decode,
    paged_pool,
    paged_prefill,
    random,
)
from grader.kit.layout import index_before
from grader.kit.script import show
from grader.kit.siblings import telling
from grader.kit.triton_watch import Access, Seen, watching
from grader.suites.triton_paged_attention.helpers import listening
from grader.suites.triton_paged_attention.looked_up import explain
from grader.suites.triton_paged_attention.siblings import why_of
from grader.suites.triton_paged_attention.traced import LATEST, begin
from yaie.core.batch import AttentionSpec

MASK_WHY = (
    "The last block of a sequence is filled as far as its keys go; behind them lies what the block's "
    "last owner left, here NaN. 0 * NaN is NaN: mask the loads of keys and of values, and give the "
    "scores there -inf."
)

BEHIND_WHY = (
    "What lies behind a sequence's last key is NaN here, and 0 * NaN is NaN: mask the load of the"
)
SLOT_WHY = (
    "Position p lies in the block of table entry p // block_size, in its slot p % block_size."
)


MOST_NUMBERS = 16
"""Lengths that are listed one by one."""


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
        chunks = "" if self.queries is None else f"{_cut(self.queries)} queries of "
        block_size, heads = self.pool.key_blocks.shape[1], self.q.shape[1]
        what = f"{chunks}sequences of {_cut(self.lens)} keys, blocks of {block_size}, "
        what += f"{heads} heads on {self.kv_heads}, head size {self.q.shape[2]}"
        return ", ".join([what, f"scale={spec.scale:g}", *given])


def _cut(numbers: list[int]) -> str:
    """As a list, or the beginning of a long one."""
    if len(numbers) <= MOST_NUMBERS:
        return str(numbers)
    return f"{str(numbers[:MOST_NUMBERS])[:-1]}, ..., {len(numbers)} in all]"


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
    """Random queries, keys and values, with gaps in between."""
    pool = paged_pool(
        lens, block_size=block_size, kv_heads=kv_heads, head_dim=d, seed=seed, dtype=dtype
    )
    num_queries = len(lens) if queries is None else sum(queries)
    q = random(num_queries, kv_heads * group, d, seed=seed + 1, dtype=dtype)
    return with_gaps(Case(lens, pool, q, AttentionSpec(**{"scale": 0.25} | spec), queries))


def with_gaps(case: Case) -> Case:
    """The case in memory where queries, blocks and tables have gaps, no stride being another one's."""
    pool = case.pool
    views = padded_apart(case.q, pool.key_blocks, pool.value_blocks, dims=[0])
    q, keys, values = (x if len(x) else x.contiguous() for x in views)
    tables = padded(pool.block_tables)
    pool = replace(pool, key_blocks=keys, value_blocks=values, block_tables=tables)
    return replace(case, pool=pool, q=q)


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
    return with_gaps(replace(case, pool=replace(pool, **new), q=asked))


def attend(
    part: ModuleType, case: Case, splits: int | None = None, *, beside: bool = False
) -> tuple[Any, Seen]:
    """What the part makes of the case, and what its kernels did to memory. beside: a report shows this
    call and the one before."""
    if not beside:
        start_script()
    note(f"# {case.told()}")
    given = "" if splits is None else f"splits={splits}"
    note(f"attention = PagedAttention({given})")
    attention = watch(
        part.PagedAttention() if splits is None else part.PagedAttention(splits=splits), "attention"
    )
    pool = case.pool
    with listening(part), outside_explained(), watching(record=True) as seen:
        begin(case, seen)
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
    LATEST.is_over = True
    return out, seen


@contextmanager
def outside_explained() -> Iterator[None]:
    """For what is read outside of a table or of q."""
    try:
        yield
    except Fault as fault:
        explain(fault)
        raise


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
    what = what or f"{name} of {case.told()}"
    exact = case.exact()
    if isinstance(out, Tensor) and out.isnan().any():
        why = of_nan(case, out, seen, what, why)
    with telling(lambda: why_of(case, splits, out, exact)), nan_by_arithmetic():
        expect_near(out, exact, case.q.dtype, what, why=why.strip(), roundings=roundings)
    return seen


def of_nan(case: Case, out: Tensor, seen: Seen, what: str, why: str) -> str:
    """Raises if NaN was read, or if something was never written. Otherwise `why`, if it fits."""
    expect_no_empty_slot_read(case, seen, what)
    expect_written(out, seen, what, why)
    expect_only_written_is_read(case, seen, what, why)
    computed = "All was written, and only keys and values that are there were read: it is computed."
    return computed if why in ("", MASK_WHY) else why


@contextmanager
def nan_by_arithmetic() -> Iterator[None]:
    """For results that were written, of numbers that may be read: a NaN among them was computed."""
    try:
        yield
    except Mismatch as error:
        error.problem = error.problem.split(": never written")[0]
        raise


def expect_the_value_itself(part: ModuleType, splits: int) -> None:
    """A sequence of one key gives that key's value, to the last bit."""
    case = make_case([1, 1], block_size=16)
    out, _ = attend(part, case, splits)
    off = float((out.double() - case.exact()).abs().max())
    expect(
        off == 0.0,
        f"decode of one key with splits={splits} is off by {off:.2g} from the key's value",
        why="The only key weighs exp2(0) = 1, and the value divided by 1 is the value: add nothing to "
        "the sum of weights. Where no key was seen, divide by another number than 0.",
    )


def expect_no_empty_slot_read(case: Case, seen: Seen, what: str) -> None:
    """No program has read a slot of the pool in which no key lies: NaN is there."""
    for name, blocks in (("keys", case.pool.key_blocks), ("values", case.pool.value_blocks)):
        for access in seen.accesses:
            if access.deed != "reads" or access.origin.begin != blocks.data_ptr():
                continue
            offsets = torch.from_numpy(access.elements.astype("int64"))
            last = int(offsets.max()) + 1 if len(offsets) else 0
            numbers = blocks.as_strided((last,), (1,))[offsets]
            if bool(numbers.isnan().any()):
                offset = int(offsets[numbers.isnan()][0])
                block, rest = divmod(offset, blocks.stride(0))
                place = f"slot {rest // blocks.stride(1)} of block {block} of the {name}"
                who = f"program {access.program} of {access.kernel}"
                told = f"{what}: {who} reads {place}, where no key lies"
                if position := _unread(case, seen, blocks):
                    raise Mismatch(f"{told}; no program reads {position}", why=SLOT_WHY)
                raise Mismatch(told, why=_behind(case, access.program) or f"{BEHIND_WHY} {name}.")


def _behind(case: Case, program: tuple[int, ...]) -> str:
    """Of a program of a decode whether it was given more keys than its sequence has."""
    found = LATEST.programs.get(program)
    if case.queries is not None or found is None or program[2] >= len(case.lens):
        return ""
    length = case.lens[program[2]]
    for start, end in (*found.unmasked, *found.masked):
        if end > length:
            return (
                f"attend_keys gets the keys {start} to {end - 1}; the sequence has {length} keys."
            )
    return ""


def _unread(case: Case, seen: Seen, blocks: Tensor) -> str:
    """The first key of a decode that no program reads, "" if there is none."""
    if case.queries is not None or case.spec.window is not None:
        return ""
    done: set[int] = set()
    for access in seen.accesses:
        if access.deed == "reads" and access.origin.begin == blocks.data_ptr():
            done.update(access.elements.tolist())
    size = blocks.shape[1]
    for row, length in enumerate(case.lens):
        for p in range(length):
            block = int(case.pool.block_tables[row, p // size])
            if block * blocks.stride(0) + p % size * blocks.stride(1) not in done:
                where = f"where position {p} of sequence {row} lies"
                return f"slot {p % size} of block {block}, {where}"
    return ""


def expect_written(out: Tensor, seen: Seen, what: str, why: str) -> None:
    """Each number of `out` was written by some program, if any was."""
    done: set[int] = set()
    for access in seen.accesses:
        if access.deed != "reads" and access.origin.begin == out.data_ptr():
            done.update(access.elements.tolist())
    lost = sorted(set(range(out.numel())) - done)
    if done and lost and out.is_contiguous():
        index = index_before(lost[0], out.shape, out.stride())
        problem = f"{what}: {len(lost)} of {out.numel()} numbers are written by no program"
        raise Mismatch(f"{problem}, the first at {index}", why=why)


def expect_only_written_is_read(case: Case, seen: Seen, what: str, why: str) -> None:
    """Of what the kernels leave to one another, no program has read a number that none has written."""
    written: dict[tuple[int, int], set[int]] = {}
    for access in seen.accesses:
        place = access.origin.begin, access.origin.end
        if access.deed != "reads":
            written.setdefault(place, set()).update(access.elements.tolist())
        elif place in written and (lost := set(access.elements.tolist()) - written[place]):
            index = index_before(min(lost), access.origin.shape, access.origin.stride)
            who = f"program {access.program} of {access.kernel}"
            raise Mismatch(
                f"{what}: {who} reads {index} of {access.argument}, which no program has written",
                why=why,
            )


def expect_read_once(case: Case, seen: Seen, why: str) -> None:
    """Each number of a key and of a value is read once by all programs together."""
    for name, blocks in (("keys", case.pool.key_blocks), ("values", case.pool.value_blocks)):
        reads = [
            access
            for access in seen.accesses
            if access.deed == "reads" and access.origin.begin == blocks.data_ptr()
        ]
        right = sum(case.lens) * blocks.shape[2] * blocks.shape[3]
        if (got := sum(len(access.elements) for access in reads)) == right:
            continue
        by_line: Counter[str] = Counter()
        for access in reads:
            by_line[f"line {access.line} of {os.path.basename(access.file)}"] += len(
                access.elements
            )
        told = ", ".join(f"{line} reads {count}" for line, count in by_line.items() if count)
        raise Mismatch(
            f"{got} numbers of the {name} are read, where there are {right}: {told}",
            why=f"{why}{_second_pass(reads)}" if got > right else "",
        )


def _second_pass(reads: list[Access]) -> str:
    """Whether a program reads tiles again after it has read the last one."""
    order: dict[Any, list[frozenset[int]]] = {}
    for access in reads:
        tiles = order.setdefault(access.program, [])
        tiles.append(frozenset(access.elements.tolist()))
    for tiles in order.values():
        different = list(dict.fromkeys(tiles))
        last = tiles.index(different[-1])
        if len(different) > 1 and different[0] in tiles[last:]:
            return " One pass over the keys is enough: the softmax is taken online, tile by tile."
    return ""


def expect_own_entries_read(case: Case, seen: Seen) -> None:
    """No program looks up an entry of a table behind the block of the sequence's last key."""
    tables, size = case.pool.block_tables, case.pool.key_blocks.shape[1]
    for access in seen.accesses:
        if access.origin.begin != tables.data_ptr():
            continue
        for row, entry in {divmod(int(at), tables.stride(0)) for at in access.elements}:
            expect(
                entry * size < case.lens[row],
                f"entry {entry} of table {row} is looked up, whose sequence has {case.lens[row]} keys "
                f"in blocks of {size}",
                why="A lane whose position is the number of keys is behind them: mask it, too.",
            )


def expect_rows(
    part: ModuleType,
    case: Case,
    values: list[float],
    what: str,
    why: str,
    splits: int | None = None,
    *,
    first: int = 0,
    siblings: bool = True,
) -> tuple[Tensor, Seen]:
    """In dimension 0, what the part makes of the case, [rows, heads, d], holds these values, row by row
    and head by head. first: the row that they begin with. siblings: whether `why_of` knows better than
    `why`; not where several mistakes give the same."""
    out, seen = attend(part, case, splits)
    right = torch.tensor(values, dtype=torch.float64)
    expect(isinstance(out, Tensor), f"{what}: {type(out).__name__} instead of a tensor")
    if out.isnan().any():
        why = of_nan(case, out, seen, what, why)
    told = partial(why_of, case, splits, out) if siblings else (lambda exact: "")
    with telling(lambda: told(case.exact())), nan_by_arithmetic():
        expect_near(out[first:, ..., 0].flatten(), right, out.dtype, what, why=why)
    return out, seen


@contextmanager
def loads_by_program(tensor: Tensor) -> Iterator[Counter[tuple[Any, ...]]]:
    """Elements of a tensor that each program of a grid reads."""
    from triton.runtime.interpreter import InterpreterBuilder

    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin, end = tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
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
