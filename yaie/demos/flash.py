"""Labs 10 and 15: attention in tiles, beside the whole matrix of scores."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie.demos.shown import Row, Shown, row
from yaie.demos.tensors import difference, generator
from yaie.demos.traffic import Traffic, of_torch

TOKENS, HEADS, KV_HEADS, HEAD, WINDOW = 256, 2, 1, 32, 32
SCALE = HEAD**-0.5


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """q [1, TOKENS, HEADS, HEAD], and k and v [1, TOKENS, KV_HEADS, HEAD]."""
    numbers = generator()
    q = torch.randn(1, TOKENS, HEADS, HEAD, generator=numbers)
    k, v = (torch.randn(1, TOKENS, KV_HEADS, HEAD, generator=numbers) for _ in range(2))
    return q, k, v


def whole(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Attention with all scores at once; seen: [TOKENS, TOKENS] bool."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * SCALE
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    return (weights @ v.repeat_interleave(group, 1)).transpose(1, 2)


def masks() -> dict[str, Tensor]:
    """Which keys each query sees."""
    at = torch.arange(TOKENS)
    causal = at[None] <= at[:, None]
    return {"causal": causal, "window": causal & (at[None] > at[:, None] - WINDOW)}


def compared(
    forward: Callable[..., tuple[Tensor, Tensor]],
    counted: Callable[[Callable[[], Any]], tuple[Any, Traffic]],
    where: str,
    more: Callable[[dict[str, Traffic]], tuple[Row, ...]] = lambda _: (),
) -> Shown:
    """PyTorch beside a kernel, causal and with a window. more: rows about the kernel's traffic."""
    q, k, v = inputs()
    seen = masks()
    expected, plain = of_torch(lambda: whole(q, k, v, seen["causal"]))
    settings: dict[str, dict[str, int]] = {"causal": {}, "window": {"window": WINDOW}}
    found: dict[str, Tensor] = {}
    own: dict[str, Traffic] = {}
    for name, rules in settings.items():
        work = partial(forward, q, k, v, scale=SCALE, **rules)
        (found[name], _), own[name] = counted(work)
    right = {"causal": expected, "window": whole(q, k, v, seen["window"])}
    gaps = [f"{difference(found[name], one):.0e}" for name, one in right.items()]
    return Shown(
        f"{TOKENS} tokens, {HEADS} heads on {KV_HEADS} of {HEAD}, causal, float32, {where}.",
        ("PyTorch", "kernel", f"window of {WINDOW}"),
        (
            row("launches", plain.launches, own["causal"].launches, own["window"].launches),
            row("bytes read", plain.read, own["causal"].read, own["window"].read),
            row("bytes written", plain.written, own["causal"].written, own["window"].written),
            row(
                "largest tensor made, bytes", plain.largest, *(one.largest for one in own.values())
            ),
            row("largest difference", "", *gaps),
            *more(own),
        ),
        f"The kernel moves {own['causal'].moved:,} bytes in place of {plain.moved:,}, and reads "
        f"{1 - own['window'].read / max(1, own['causal'].read):.0%} less with a window of {WINDOW}.",
    )
