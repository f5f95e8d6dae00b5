"""`TorchStateOps`: in PyTorch, in chunks, by the part of lab 22."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie.backends.states.around import PlainAround
from yaie.backends.states.varlen import Rule
from yaie.core.contracts.states import Decays, StateBatch


class TorchStateOps(PlainAround):
    """See `StateOps`. Computes in float32, or in float64 where the inputs are of it. A step in which
    every sequence has one token runs without a look at the device."""

    def __init__(self, part: Any) -> None:
        """part: of lab 22, whose short convolution and delta rule these are."""
        self._part = part

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        tails = self._part.read_states(pool, batch.slots, batch.is_fresh, x.dtype)
        out, tails = self._part.short_conv(x, weight, bias, tails, batch.starts, silu)
        self._part.write_states(pool, batch.slots, tails)
        return out

    def gated_delta_rule(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        pool: Tensor,
        batch: StateBatch,
    ) -> Tensor:
        part, tokens = self._part, (q, k, v, log_decay, beta)
        rule = Rule(part.delta_step, part.delta_chunk, part)
        return rule.over_sequences(tokens, torch.empty_like(v), pool, batch)

    def selective_scan(
        self,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        d: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
    ) -> Tensor:
        tokens = (x, dt, dt * a, b, c)
        chunk = partial(scan_chunk, d=d, decays=self._part.decays)
        rule = Rule(partial(scan_step, d=d), chunk, self._part)
        return rule.over_sequences(tokens, torch.empty_like(x), pool, batch)


def scan_step(
    x: Tensor,
    dt: Tensor,
    log_decay: Tensor,
    b: Tensor,
    c: Tensor,
    states: Tensor,
    *,
    d: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One token of each sequence. x: [n, heads, p]. dt, log_decay: [n, heads].
    b, c: [n, groups, n_state]. states: [n, heads, p, n_state], which are overwritten."""
    x, dt, log_decay, b, c = (one.to(states.dtype) for one in (x, dt, log_decay, b, c))
    group = x.shape[1] // b.shape[1]
    b, c = (one.repeat_interleave(group, 1) for one in (b, c))
    states *= log_decay.exp()[..., None, None]
    states += (dt[..., None] * x)[..., None] * b[..., None, :]
    out = (states @ c[..., None]).squeeze(-1)
    return (out if d is None else out + d[:, None] * x), states


def scan_chunk(
    x: Tensor,
    dt: Tensor,
    log_decay: Tensor,
    b: Tensor,
    c: Tensor,
    states: Tensor,
    *,
    d: Tensor | None,
    decays: Decays,
) -> tuple[Tensor, Tensor]:
    """C tokens of each sequence at once: within the chunk attention with weights that decay, beside what
    is left of the states. As for a step, with [n, C, ...] for [n, ...]."""
    x, dt, log_decay, b, c = (one.to(states.dtype) for one in (x, dt, log_decay, b, c))
    groups, group = b.shape[2], x.shape[2] // b.shape[2]
    b, c = (one.transpose(1, 2)[:, :, None] for one in (b, c))  # [n, groups, 1, C, n_state]
    x, dt, log_decay = (_by_group(one, groups, group) for one in (x, dt, log_decay))
    before = states.unflatten(1, (groups, group))
    left = decays(log_decay)
    from_start = log_decay.cumsum(-1).exp()[..., None]
    written = dt[..., None] * x
    out = from_start * (c @ before.mT) + ((c @ b.mT) * left) @ written
    if d is not None:
        out += d.view(groups, group, 1, 1) * x
    to_end = left[..., -1, :, None]
    after = from_start[..., -1:, :] * before + (to_end * written).mT @ b
    return out.flatten(1, 2).transpose(1, 2), after.flatten(1, 2)


def _by_group(one: Tensor, heads: int, group: int) -> Tensor:
    """[n, C, heads * group, ...] as [n, heads, group, C, ...]."""
    return one.transpose(1, 2).unflatten(1, (heads, group))
