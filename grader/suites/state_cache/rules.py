"""What layers with a state compute, token by token in float64, and what usual mistakes would give."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close
from grader.kit.script import show

F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
EXACT, ROUNDED = 1e-9, 3e-5
"""How far a result may be off, relative and absolute: computed in float64, and in float32."""
PRECISION = "That is float32's precision: compute in the states' dtype, which is float64 here."

Kinds = Mapping[str, Callable[[], Tensor]]


def expect_values(
    got: Any,
    exact: Tensor,
    what: str,
    *,
    tolerance: float = EXACT,
    dtype: torch.dtype | None = None,
    why: str = "",
    kinds: Kinds | None = None,
) -> None:
    """Shape, dtype if one is given, and values. kinds: mistakes; the one that gives these values takes
    the place of `why`. A wrong dtype is told alone."""
    expect(isinstance(got, Tensor), f"{what}: {show(got)} is no tensor", why=why)
    if dtype is not None and got.dtype != dtype:
        raise Mismatch(f"{what}: wrong dtype", str(dtype), str(got.dtype))
    if got.shape == exact.shape and bool((got.isnan() & ~exact.isnan()).any()):
        index = (got.isnan() & ~exact.isnan()).nonzero()[0].tolist()
        why = _why(got, exact, kinds, tolerance) or why
        raise Mismatch(f"{what}: NaN, first at {index}", "a number", "NaN", why)
    try:
        expect_close(got, exact.double(), what, rtol=tolerance, atol=tolerance, why=why)
    except Mismatch as mismatch:
        mismatch.why = _why(got, exact, kinds, tolerance) or mismatch.why
        if 0.0 < tolerance < 1e-6 and _is_close_in_float32(got, exact):
            mismatch.why = PRECISION
        raise


def _why(got: Tensor, exact: Tensor, kinds: Kinds | None, tolerance: float) -> str:
    """The one kind that gives all values, the right ones among them; "" if none does, or several."""
    if not kinds or got.shape != exact.shape:
        return ""
    near = max(tolerance, 1e-6) if tolerance else 0.0
    found = [told for told, compute in kinds.items() if _gives(compute, got, near)]
    return found[0] if len(found) == 1 else ""


def _gives(compute: Callable[[], Tensor], got: Tensor, near: float) -> bool:
    with suppress(Exception):  # what a mistake makes of sizes may fail in any way
        values = compute().double().expand(got.shape)
        return torch.allclose(got.double(), values, rtol=near, atol=near, equal_nan=True)
    return False


def _is_close_in_float32(got: Tensor, exact: Tensor) -> bool:
    if got.shape != exact.shape:
        return False
    return torch.allclose(got.double(), exact.double(), rtol=1e-5, atol=1e-5, equal_nan=True)


def expect_pair(got: Any, what: str) -> tuple[Any, Any]:
    """The two tensors that a function returns."""
    is_pair = isinstance(got, tuple | list) and len(got) == 2
    expect(is_pair, f"{what} returned {show(got)}, not two tensors")
    return got[0], got[1]


@contextmanager
def keeping(tensors: Mapping[str, Tensor], why: str) -> Iterator[None]:
    """What is done inside changes none of these."""
    before = {name: one.clone() for name, one in tensors.items()}
    yield
    for name, one in tensors.items():
        expect_values(one, before[name], f"{name} after the call", tolerance=0.0, why=why)


def drawn(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, tails: Tensor, lens: list[int], silu: bool
) -> tuple[Tensor, Tensor]:
    """What comes of tokens [sum of lens, channels], and the tails after them."""
    x, weight, tails = x.double(), weight.double(), tails.double()
    outs, after = [], []
    starts = [0]
    for length in lens:
        starts.append(starts[-1] + length)
    for (first, end), tail in zip(pairwise(starts), tails, strict=True):
        inputs = torch.cat([tail, x[first:end].t()], dim=1)
        for place in range(weight.shape[1] - 1, inputs.shape[1]):
            window = inputs[:, place - weight.shape[1] + 1 : place + 1]
            total = (window * weight).sum(1)
            total = total if bias is None else total + bias.double()
            outs.append(total * total.sigmoid() if silu else total)
        after.append(inputs[:, inputs.shape[1] - weight.shape[1] + 1 :])
    out = torch.stack(outs) if outs else x[:0]
    return out, torch.stack(after)


def delta(tokens: Mapping[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """What comes of [n, C] tokens, and the states after them. tokens: q, k, v, log_decay, beta."""
    q, k, v, log_decay, beta = (tokens[name].double() for name in NAMES)
    group = v.shape[2] // k.shape[2]
    state, outs = states.double().clone(), []
    for t in range(v.shape[1]):
        query, key = (one[:, t].repeat_interleave(group, 1) for one in (q, k))
        state = state * log_decay[:, t].exp()[..., None, None]
        found = torch.einsum("nhkv,nhk->nhv", state, key)
        change = beta[:, t][..., None] * (v[:, t] - found)
        state = state + torch.einsum("nhk,nhv->nhkv", key, change)
        outs.append(torch.einsum("nhkv,nhk->nhv", state, query))
    return torch.stack(outs, 1) if outs else v, state


NAMES = ("q", "k", "v", "log_decay", "beta")


def delta_tokens(
    n: int,
    length: int,
    heads: int = 2,
    group: int = 2,
    d_k: int = 8,
    d_v: int = 6,
    *,
    seed: int = 0,
    dtype: torch.dtype = F64,
) -> dict[str, Tensor]:
    """Tokens [n, length] as a layer has them: keys of length 1, decays from nothing to nearly all."""
    wide = heads * group
    generator = torch.Generator().manual_seed(seed)
    decay = torch.tensor([0.0, 1e-3, 0.1, 0.7, 3.0], dtype=F64)
    rate = torch.tensor([0.0, 0.3, 0.9, 1.0, 1.7], dtype=F64)

    def chosen(values: Tensor) -> Tensor:
        index = torch.randint(len(values), (n, length, wide), generator=generator)
        return values[index]

    keys = torch.nn.functional.normalize(drawn(n, length, heads, d_k, seed=seed + 1), dim=-1)
    return {
        "q": drawn(n, length, heads, d_k, seed=seed + 2).to(dtype),
        "k": keys.to(dtype),
        "v": drawn(n, length, wide, d_v, seed=seed + 3).to(dtype),
        "log_decay": -chosen(decay),
        "beta": chosen(rate),
    }


def at(tokens: Mapping[str, Tensor], place: Any) -> dict[str, Tensor]:
    """Of [n, C] tokens those at a place, or from a slice."""
    return {name: one[:, place] for name, one in tokens.items()}


def states_of(tokens: Mapping[str, Tensor], seed: int = 9, dtype: torch.dtype = F64) -> Tensor:
    """States that such tokens go on from."""
    n, _, heads, d_v = tokens["v"].shape
    return drawn(n, heads, tokens["k"].shape[-1], d_v, seed=seed, dtype=dtype)
