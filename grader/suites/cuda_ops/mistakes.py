"""What usual mistakes in a layer's operations would give: for `expect_near(kinds=...)`."""

from collections.abc import Callable

import torch
from torch import Tensor

from grader.kit.cuda_work import launches_of
from grader.kit.kernels import rms_norm, rope, silu_mul, store_kv
from grader.kit.recomputed import Kinds, kept, never_written

MEAN = "The mean of the squares is over the d numbers of a row."
DIVISORS = (2, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024)
"""Threads, warps and packs, which some take for d."""
ROW = 1e-4
"""How near a sum of squares that follows from a result must be to the one that explains it."""


def norm_kinds(x: Tensor, weight: Tensor, eps: float) -> Kinds:
    """Mistakes in rms_norm of x [.., d], read before the part may write over it."""
    wide, scales = x.detach().double().clone(), weight.double()
    squares, d = wide.square().sum(dim=-1, keepdim=True), x.shape[-1]

    def by(divisor: Tensor) -> Tensor:
        return wide / divisor * scales

    kinds: dict[str, Callable[[], Tensor]] = {
        "What came out was multiplied by the weight twice.": lambda: (
            rms_norm(x, weight, eps) * scales
        ),
        "What came out was not multiplied by the weight.": lambda: (
            rms_norm(x, weight, eps) / scales
        ),
        "What came out was divided by the mean of the squares, and not by its root.": lambda: by(
            squares / d + eps
        ),
        "What came out was multiplied by the root, and not divided.": lambda: (
            wide * (squares / d + eps).sqrt() * scales
        ),
        f"What came out was divided by the root of the sum of the squares. {MEAN}": lambda: by(
            (squares + eps).sqrt()
        ),
        "eps was added after the root here, and it belongs to the mean, before the root.": lambda: (
            by((squares / d).sqrt() + eps)
        ),
        "eps was left out here, and it is added to the mean, before the root.": lambda: by(
            (squares / d).sqrt()
        ),
        "What came out are the numbers of x: nothing was divided.": kept(x),
        "Nothing was written there.": never_written,
    }
    for n in DIVISORS:
        if n != d:
            told = f"The sum of the squares was divided by {n}, and not by d = {d}. {MEAN}"
            kinds[told] = lambda n=n: by((squares / n + eps).sqrt())  # type: ignore[misc]
    return kinds


def counted_squares(got: Tensor, x: Tensor, weight: Tensor, eps: float) -> str:
    """Which of a row's squares are in the sum, if those of its first numbers alone are; else "".

    The scale of a row follows from what came out, and so does the sum."""
    if not isinstance(got, Tensor) or got.shape != x.shape:
        return ""
    rows, d = x.double().flatten(0, -2), x.shape[-1]
    scales = got.double().flatten(0, -2) / (rows * weight.double())
    found = set[int]()
    for row, each in zip(rows, scales, strict=True):
        known = each[each.isfinite()]
        if not len(known) or not bool(torch.isclose(known, known[0], rtol=ROW).all()):
            return ""
        total = (1 / known[0].square() - eps) * d
        near = torch.isclose(row.square().cumsum(dim=0), total, rtol=ROW).nonzero().flatten()
        if not len(near) or bool(row[near[1:]].any()):  # none, or more than one that may be meant
            return ""
        found.add(int(near[-1]) + 1)
    if len(found) != 1 or found == {d}:
        return ""
    return (
        f"What came out has the squares of the first {found.pop():,} of {d:,} numbers in its sum. "
    )


def fused_kinds(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Kinds, Kinds]:
    """(mistakes in the sum, mistakes in its norm) of fused_add_rms_norm, read before the part may write
    over x and residual."""
    total = x.double() + residual.double()
    sums: dict[str, Callable[[], Tensor]] = {
        "Wrong values are those that residual held before: the sum was not written over it "
        "there.": kept(residual),
        "Wrong values are those of x: residual was not added there.": kept(x),
        "The sum was written over x, and its norm over residual. It is the sum that goes on to the next "
        "layer, in residual.": lambda: rms_norm(total, weight, eps),
        "residual was added twice, or x was, there.": lambda: total + residual.double(),
    }
    one, other = x.detach().clone(), residual.detach().clone()
    norms: dict[str, Callable[[], Tensor]] = {
        **norm_kinds(total, weight, eps),
        "What came out is the norm of x alone. Its norm is what this layer reads, and it is that of the "
        "sum.": lambda: rms_norm(one, weight, eps),
        "What came out is the norm of residual as it was, and not of the sum.": lambda: rms_norm(
            other, weight, eps
        ),
        "Wrong values are those that x held before: no norm was written over it there.": kept(x),
    }
    return sums, norms


def silu_kinds(x: Tensor) -> Kinds:
    """Mistakes in silu_mul of x = [gate | up]."""
    gate, up = x.double().chunk(2, dim=-1)
    even, odd = x.double()[..., ::2], x.double()[..., 1::2]
    kinds: dict[str, Callable[[], Tensor]] = {
        "The second half of a row went through SiLU, and the first half multiplied it. A row is "
        "[gate | up]: up[i] lies d behind gate[i].": lambda: silu_mul(
            torch.cat((up, gate), dim=-1)
        ),
        "Neighbours were taken for gate and up. A row is [gate | up]: up[i] lies d behind "
        "gate[i].": lambda: silu_mul(torch.cat((even, odd), dim=-1)),
        "What came out is silu(gate), which nothing multiplied.": lambda: (
            gate / (1 + (-gate).exp())
        ),
        "What came out is gate * up: gate did not go through SiLU.": lambda: gate * up,
        "What came out is sigmoid(gate) * up: SiLU is gate * sigmoid(gate).": lambda: (
            up / (1 + (-gate).exp())
        ),
        "What came out is silu(gate) * gate: up was not read.": lambda: (
            gate.square() / (1 + (-gate).exp())
        ),
    }
    return kinds


def store_kinds(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    tables: tuple[Tensor, Tensor],
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    why: str,
) -> tuple[Kinds, Kinds, Kinds]:
    """Mistakes in rope_and_store: in the key blocks, in the value blocks, and in q.

    why: what is said beside the fact where a token was left out."""
    q, k, v, keys, values = (x.double().clone() for x in (q, k, v, keys, values))

    def turned(x: Tensor, way: float = 1.0) -> Tensor:
        return rope(x, positions, tables[0], way * tables[1])

    def stored(k: Tensor, v: Tensor, slots: Tensor = slots) -> tuple[Tensor, Tensor]:
        return store_kv(k, v, keys, values, slots)

    half, left_out = tables[0].shape[1], f"Wrong heads of q were not turned. {why}"
    rest = torch.arange(k.shape[-1]) >= 2 * half

    def without_rest(right: Tensor, before: Tensor) -> Tensor:
        return right.where(~rest, before)

    no_zero = slots.where(slots != 0, -1)
    zero = "Slot 0 was passed over. Padding has a negative slot, -1 or any other, and slot 0 is a slot."
    left = (
        f"Dimensions from {2 * half} on are as they were in the pool. Dimensions {2 * half} to "
        f"{k.shape[-1] - 1} do not turn, and are stored all the same."
    )
    in_keys: dict[str, Callable[[], Tensor]] = {
        "Wrong keys are those of k as they came: they were not turned.": lambda: stored(k, v)[0],
        "Wrong keys were turned twice.": lambda: stored(turned(turned(k)), v)[0],
        "Wrong keys were turned the other way round.": lambda: stored(turned(k, -1.0), v)[0],
        "Wrong keys are what v holds.": lambda: stored(v, v)[0],
        f"Wrong keys are as they were: nothing was stored there. {why}": lambda: keys,
    }
    in_values: dict[str, Callable[[], Tensor]] = {
        "Wrong values were turned as k is. v has no position.": lambda: stored(k, turned(v))[1],
        "Wrong values are what k holds.": lambda: stored(k, k)[1],
        f"Wrong values are as they were: nothing was stored there. {why}": lambda: values,
    }
    in_q: dict[str, Callable[[], Tensor]] = {
        left_out: lambda: q,
        "Wrong heads of q were turned twice.": lambda: turned(turned(q)),
        "Wrong heads of q were turned the other way round.": lambda: turned(q, -1.0),
    }
    if bool((slots == 0).any()) and bool((slots < 0).any()):
        in_keys = {zero: lambda: stored(turned(k), v, no_zero)[0]}
        in_values = {zero: lambda: stored(k, v, no_zero)[1]}
    if bool((slots < 0).any()):
        told = (
            "The query of a token with a negative slot was not turned. The query of padding is computed "
            "as any other."
        )
        in_q[told] = lambda: turned(q).where((slots >= 0)[:, None, None], q)
        del in_q[left_out]
    if bool(rest.any()):
        in_keys = {left: lambda: without_rest(stored(turned(k), v)[0], keys)}
        in_values = {left: lambda: without_rest(stored(k, v)[1], values)}
    return in_keys, in_values, in_q


def without_rest_in(
    kinds: Kinds, got: Tensor, right: Tensor, half: int, again: Callable[[], object]
) -> Kinds:
    """Where only the last heads of a pool lack the dimensions that do not turn: a text that says which.

    again: makes the call once more, to see how many threads a block has along y."""
    wrong = (got.double() - right).abs()[..., 2 * half :] > ROW
    heads = wrong.transpose(0, -2).flatten(1).any(dim=1).tolist()
    first = heads.index(True) if True in heads else 0
    if len(kinds) != 1 or not first or not all(heads[first:]):
        return kinds
    told = (
        f"Dimensions {2 * half} to {got.shape[-1] - 1} of heads from {first} on are as they were in the "
        f"pool, and those of the first {first} heads are stored."
    )
    if first == launches_of(again)[0].block[1]:
        told += f" A block has {first} threads along y: the heads behind them need a loop."
    return dict.fromkeys([told], next(iter(kinds.values())))


def partial_sums(x: Tensor) -> Kinds:
    """Sums of x [blocks, threads] over some of the warps, in every thread."""
    warps = x.double().unflatten(1, (-1, 32)).sum(dim=2)
    count = warps.shape[1]

    def all_get(sums: Tensor) -> Tensor:
        return sums[:, None].expand(x.shape)

    kinds: dict[str, Callable[[], Tensor]] = {
        "Every thread got the sum of its own warp.": lambda: warps.repeat_interleave(32, dim=1),
        "Every thread got its own number.": lambda: x.double(),
    }
    for n in range(1, count):
        told = f"What the threads got is the sum of the first {n} of {count} warps."
        if n & (n - 1) == 0 and n < count < 2 * n:
            told += f" A tree that halves {count} leaves one out: their number need not be even."
        kinds[told] = lambda n=n: all_get(warps[:, :n].sum(dim=1))  # type: ignore[misc]
        if n > 1:
            told = f"What the threads got is the sum of the last {n} of {count} warps."
            kinds[told] = lambda n=n: all_get(warps[:, -n:].sum(dim=1))  # type: ignore[misc]
    return kinds
