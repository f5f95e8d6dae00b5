"""Who sees whom, read off the output of attention over keys that are all equal."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch
from grader.suites.radix_attention.batches import (
    DIM,
    HEADS,
    LAYERS,
    SIZE,
    SPEC,
    Case,
    Seq,
    attention_of,
    expect_like,
    make_case,
    unwritten,
)

SHORT_TABLE = (
    "Whole blocks at the end are missing: the table of a group is as wide as the longest of its "
    "sequences needs, rounded up to whole blocks."
)


def marked(seqs: list[Seq], stale: float | None = None) -> Case:
    """All keys equal, so that a query averages what it sees; the value of position p is unit vector p.

    The output of a query then says which positions it saw. Slots of a table beyond a sequence's keys
    are marked with their positions too, unless `stale` fills them.
    """
    case = make_case(seqs, stale)
    for layer in range(LAYERS):
        keys, values = (stored.flatten(0, 1) for stored in case.pool.blocks(layer))
        for seq in seqs:
            known = len(seq.blocks) * SIZE if stale is None else seq.keys - seq.queries
            for position in range(known):
                slot = seq.blocks[position // SIZE] * SIZE + position % SIZE
                keys[slot], values[slot] = 0, unit(position)
    _, k, v = case.qkv
    new = torch.cat([torch.arange(seq.keys - seq.queries, seq.keys) for seq in seqs])
    k.zero_()
    v.copy_(torch.eye(DIM, dtype=v.dtype)[new][:, None])
    # What earlier owners left in the slots of the new tokens is not theirs.
    slots = case.batch.slot_mapping
    for layer in range(LAYERS):
        for stored in case.pool.blocks(layer):
            stored.flatten(0, 1)[slots] = 0.0 if stale is None else stale
    return case


def unit(position: int) -> Tensor:
    return torch.eye(DIM, dtype=torch.float64)[position]


Fits = Callable[[set[int], set[int]], bool]
"""Whether positions that are seen, and those that should be, differ in the way that `why` tells of."""


def misses_the_last(seen: set[int], right: set[int]) -> bool:
    """All but the last."""
    return seen == right - {max(right)}


def sees_later_ones(seen: set[int], right: set[int]) -> bool:
    """The right ones, and others behind them."""
    return seen > right and min(seen - right) > max(right)


def always(seen: set[int], right: set[int]) -> bool:
    """`why` is what the contract says, whatever went wrong."""
    return True


def expect_seen(
    case: Case, out: Any, window: int | None = None, why: str = "", fits: Fits = always
) -> None:
    """Each query sees the keys up to its own position, in the window. why: told if it fits."""
    expect_like(out, case.qkv[0])
    for i, (seq, start) in enumerate(zip(case.seqs, case.starts(), strict=True)):
        for j in range(seq.queries):
            position, row = seq.keys - seq.queries + j, out[start + j]
            who = f"sequence {i}: what its query at position {position} sees"
            right = _right(position, window)
            if not row.isfinite().all():
                _explain_nan(case, out, start + j, who, f"positions {_span(right)}", why)
            for head in range(HEADS):
                try:
                    expect_average(row[head], right, who, why, fits)
                except Mismatch as mismatch:
                    if seq.queries > 1 and "weights" not in mismatch.got:
                        _tell_all(mismatch, i, seq, out[start : start + seq.queries, head], window)
                    raise


def _tell_all(mismatch: Mismatch, i: int, seq: Seq, rows: Tensor, window: int | None) -> None:
    """Of a chunk, what each of its queries sees: that tells what they have in common."""
    places = range(seq.keys - seq.queries, seq.keys)
    mismatch.problem = f"sequence {i}: what its queries at positions {_span(set(places))} see"
    mismatch.expected = ", ".join(_span(_right(place, window)) for place in places)
    mismatch.got = ", ".join(_span(_seen(row)) for row in rows)


def _right(position: int, window: int | None) -> set[int]:
    """What a query sees."""
    return set(range(max(0, position + 1 - (window or DIM)), position + 1))


def _seen(row: Tensor) -> set[int]:
    """What one head's output is made of."""
    return {int(p) for p in (row.abs() > 1e-9).nonzero().flatten()}


def what_does_harm(part: ModuleType, seqs: list[Seq], stale: float) -> str:
    """Whether `stale` in the unused slots of keys alone, or of values alone, spoils the output."""
    harm = {}
    for index, name in enumerate(("keys", "values")):
        case = marked(seqs, stale)
        for layer in range(LAYERS):
            other = case.pool.blocks(layer)[1 - index]
            other[~other.isfinite()] = 0
        attention = attention_of(part, case.pool)
        out = attention.run(0, *case.qkv, SPEC, attention.plan(case.batch))
        harm[name] = not bool(out.isfinite().all())
    if all(harm.values()):
        return f"It comes out with {stale} in the keys alone, and with {stale} in the values alone."
    does, does_not = sorted(harm, key=lambda name: not harm[name])
    if not harm[does]:
        return ""
    return (
        f"It comes out with {stale} in the unused slots of the {does} alone. With {stale} in those of "
        f"the {does_not} alone it does not."
    )


def _explain_nan(case: Case, out: Tensor, index: int, who: str, right: str, why: str) -> None:
    """NaN came out of a pool full of it; or, where the pool has none, nothing was written."""
    if all(stored.isfinite().all() for stored in case.pool.blocks(0)) and out[index].isnan().all():
        said = f"{unwritten(case, out)} {why}"
        raise Mismatch(f"{who}: row {index} of the output is NaN", right, "NaN", said)
    raise Mismatch(who, right, "NaN", why)


def _is_cut_at_a_block(seen: set[int], right: set[int]) -> bool:
    """Whether all keys from some block on are missing, and no others."""
    end = max(seen, default=-1) + 1
    return 0 < end < max(right) + 1 and end % SIZE == 0 and seen == {p for p in right if p < end}


def expect_average(row: Tensor, right: set[int], who: str, why: str, fits: Fits) -> None:
    """One head's output is the average of the values at these positions."""
    seen = _seen(row)
    if seen != right:
        if _is_cut_at_a_block(seen, right):
            why = SHORT_TABLE
        elif not fits(seen, right):
            why = ""
        raise Mismatch(who, f"positions {_span(right)}", f"positions {_span(seen)}", why)
    weight = 1 / len(right)
    if not torch.allclose(row[list(right)], torch.tensor(weight, dtype=row.dtype), rtol=1e-9):
        weights = f"with weights {[round(x, 4) for x in row[sorted(right)].tolist()]}"
        raise Mismatch(f"{who}, all keys being equal", f"weights {weight:.4g}", weights, why)


def _span(positions: set[int]) -> str:
    """0..5, or a list where some are missing."""
    if positions and positions == set(range(min(positions), max(positions) + 1)):
        return f"{min(positions)}..{max(positions)}" if len(positions) > 1 else str(min(positions))
    return str(sorted(positions)) if positions else "none"
