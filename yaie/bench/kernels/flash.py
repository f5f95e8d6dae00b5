"""Causal attention of whole prompts, forward and backward. Labs 10 and 15."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

from yaie.bench.kernels.case import Case, Problem, Run, part, randn
from yaie.bench.kernels.libraries import FA3, FLASHINFER, fa3_prompt, flashinfer_prompt
from yaie.parts import Parts

HEADS, KV_HEADS, DIM = 32, 8, 128
SCALE = DIM**-0.5
CHECKED = 128


def cases() -> list[Case]:
    """32 query heads on 8 key heads of 128. A product of half of all queries and keys counts 2 a pair
    and dimension; forward has two of them, backward five."""
    found = []
    for length, forward, backward in ((8192, "420", "290"), (16384, "", "")):
        pairs = length * length / 2 * DIM * HEADS
        size = f"{HEADS}x{length}x{DIM}"
        label = f"{HEADS} heads x {length:,} x {DIM}"
        found.append(
            Case(
                "flash_forward",
                size,
                label,
                "TFLOP/s",
                4 * pairs,
                partial(_forward, length),
                forward,
            )
        )
        if backward:
            run = partial(_backward, length)
            found.append(Case("flash_backward", size, label, "TFLOP/s", 10 * pairs, run, backward))
    return found


def _make(length: int) -> tuple[Tensor, Tensor, Tensor]:
    kv = (1, length, KV_HEADS, DIM)
    return randn(1, length, HEADS, DIM), randn(*kv), randn(*kv)


def _for_torch(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As SDPA takes them, [n, heads, t, d], with the key heads repeated: not all of it knows groups."""
    group = HEADS // KV_HEADS
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    return q, k, v


def _sdpa(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Run]:
    """SDPA by one of its kernels, on its own layout of the same tensors."""

    def make() -> Run:
        inputs = _for_torch(q, k, v)

        def run(*_: Any) -> Tensor:
            with sdpa_kernel(backend):
                out = attend(*inputs, is_causal=True, scale=SCALE)
            return out.transpose(1, 2)

        return run

    return make


def _forward(length: int, parts: Parts) -> Problem:
    q, k, v = _make(length)

    def ours(lab: str) -> Callable[[], Run]:
        def make() -> Run:
            forward = part(parts, lab, "FlashAttention")().forward
            return lambda *qkv: forward(*qkv, scale=SCALE, causal=True)[0]

        return make

    return Problem(
        sets=[(q, k, v)],
        runs={
            "triton": ours("triton_flash_attention"),
            "cuda": ours("cuda_flash_attention"),
            "sdpa flash": _sdpa(SDPBackend.FLASH_ATTENTION, q, k, v),
            "sdpa cudnn": _sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v),
            **{name: flashinfer_prompt(name.split()[1], SCALE) for name in FLASHINFER},
            FA3: fa3_prompt(SCALE),
        },
        picked=lambda out: [_checked(out[0])],
        expected=lambda q, k, v: [_attention_in_float64(q[0], k[0], v[0])],
    )


def _checked(x: Tensor) -> Tensor:
    """First and last queries of the first and the last head: [2 * CHECKED, 2, d] of [t, heads, d]."""
    rows = torch.cat([x[:CHECKED], x[-CHECKED:]])
    return torch.stack([rows[:, 0], rows[:, -1]], dim=1)


def _attention_in_float64(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = len(q)
    queries = _checked(q).double()
    keys, values = (torch.stack([x[:, 0], x[:, -1]], dim=1).double() for x in (k, v))
    at = torch.arange(length, device=q.device)
    rows = torch.cat([at[:CHECKED], at[-CHECKED:]])
    scores = torch.einsum("qhd,khd->hqk", queries, keys) * SCALE
    scores = scores.masked_fill(at[None] > rows[:, None], -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)


def _backward(length: int, parts: Parts) -> Problem:
    q, k, v = _make(length)
    grad = randn(1, length, HEADS, DIM)

    def ours(lab: str) -> Callable[[], Run]:
        def make() -> Run:
            flash = part(parts, lab, "FlashAttention")()
            out, lse = flash.forward(q, k, v, scale=SCALE, causal=True)
            return lambda *_: flash.backward(grad, q, k, v, out, lse, scale=SCALE, causal=True)

        return make

    def sdpa(backend: SDPBackend) -> Callable[[], Run]:
        def make() -> Run:
            leaves = [x.requires_grad_() for x in _for_torch(q, k, v)]
            with sdpa_kernel(backend):
                out = attend(leaves[0], leaves[1], leaves[2], is_causal=True, scale=SCALE)
            grad_out = grad.transpose(1, 2).contiguous()

            def run(*_: Any) -> tuple[Tensor, ...]:
                return torch.autograd.grad(out, leaves, grad_out, retain_graph=True)

            return run

        return make

    def picked(grads: tuple[Tensor, ...]) -> Iterable[Tensor]:
        if grads[0].shape[1] == length:  # ours: [1, t, heads, d]
            return [grads[0][0, :, 0], grads[1][0, :, 0], grads[2][0, :, 0]]
        group = HEADS // KV_HEADS
        dq, dk, dv = (g[0] for g in grads)
        return [dq[0], dk[:group].double().sum(0), dv[:group].double().sum(0)]

    return Problem(
        sets=[(q, k, v)],
        runs={
            "triton": ours("triton_flash_attention"),
            "cuda": ours("cuda_flash_attention"),
            "sdpa flash": sdpa(SDPBackend.FLASH_ATTENTION),
            "sdpa cudnn": sdpa(SDPBackend.CUDNN_ATTENTION),
        },
        picked=picked,
        expected=lambda q, k, v: _gradients_in_float64(grad[0], q[0], k[0], v[0]),
        tolerance=0.15,
        capture=False,
    )


def _gradients_in_float64(grad: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Iterable[Tensor]:
    """dq of head 0; dk and dv of key head 0, from all the query heads on it."""
    keys, values = k[:, 0].double(), v[:, 0].double()
    dq0, dk, dv = None, torch.zeros_like(keys), torch.zeros_like(values)
    hidden = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).triu_(1)
    for head in range(HEADS // KV_HEADS):
        queries, up = q[:, head].double(), grad[:, head].double()
        weights = (queries @ keys.T * SCALE).masked_fill_(hidden, -torch.inf).softmax(-1)
        dv += weights.T @ up
        slope = up @ values.T
        slope = weights * (slope - (weights * slope).sum(-1, keepdim=True))
        dk += slope.T @ queries * SCALE
        if dq0 is None:
            dq0 = slope @ keys * SCALE
    assert dq0 is not None
    return [dq0, dk, dv]
