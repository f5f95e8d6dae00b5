"""`TorchStateOps`: in PyTorch, in chunks."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.states.around import PlainAround
from yaie.backends.states.varlen import decays, over_sequences, read_states
from yaie.core.contracts.states import StateBatch


class TorchStateOps(PlainAround):
    """See `StateOps`. Computes in float32, or in float64 where the inputs are of it. A step in which
    every sequence has one token runs without a look at the device."""

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        """All sequences lie in one row, each behind its tail; a token's window is there as it stands."""
        num_tokens, width = len(x), weight.shape[1]
        kept = width - 1
        starts = batch.starts.long()
        tails = read_states(pool, batch.slots, batch.is_fresh, x.dtype).transpose(1, 2)
        tokens = torch.arange(num_tokens, device=x.device)
        sequence = torch.searchsorted(starts[1:], tokens, right=True)
        at = tokens + (sequence + 1) * kept  # where a token lies behind the tails before it
        row = x.new_zeros(num_tokens + (len(tails) + 1) * kept, x.shape[1], dtype=tails.dtype)
        before = torch.arange(kept, device=x.device)
        first = starts[:-1] + torch.arange(len(tails), device=x.device) * kept
        row[first[:, None] + before] = tails
        row[at] = x.to(row.dtype)
        total = row[at] * weight[:, -1]
        for back in range(1, width):
            total.addcmul_(row[at - back], weight[:, -1 - back].to(row.dtype))
        if bias is not None:
            total += bias
        ends = starts[1:] + torch.arange(1, len(tails) + 1, device=x.device) * kept
        pool[batch.slots] = row[ends[:, None] - kept + before].transpose(1, 2).to(pool.dtype)
        out = (F.silu(total) if silu else total).to(x.dtype)
        return out.masked_fill_((tokens >= starts[-1])[:, None], 0.0)

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
        tokens = (q, k, v, log_decay, beta)
        return over_sequences(delta_step, delta_chunk, tokens, torch.empty_like(v), pool, batch)

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
        step, chunk = (partial(rule, d=d) for rule in (scan_step, scan_chunk))
        return over_sequences(step, chunk, tokens, torch.empty_like(x), pool, batch)


def delta_step(tokens: Sequence[Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """One token of each sequence. q, k: [n, heads, d_k]. v: [n, v_heads, d_v]. log_decay, beta:
    [n, v_heads]. states: [n, v_heads, d_k, d_v], which are overwritten."""
    q, k, v, log_decay, beta = _widened(tokens, states)
    group = v.shape[1] // k.shape[1]
    q, k = (one.repeat_interleave(group, 1) for one in (q, k))
    states *= log_decay.exp()[..., None, None]
    change = beta[..., None] * (v - (k[..., None, :] @ states).squeeze(-2))
    states += k[..., None] * change[..., None, :]
    return (q[..., None, :] @ states).squeeze(-2), states


def delta_chunk(tokens: Sequence[Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """C tokens of each sequence at once. As for a step, with [n, C, ...] for [n, ...].

    Token t writes k_t u_t^T, where u_t = beta_t (v_t - what S holds for k_t), and S holds what was
    there before the chunk and what tokens s < t of it have written:

        u_t = beta_t (v_t - exp(g_1 + ... + g_t) S^T k_t - sum_s left_ts (k_t . k_s) u_s)

    left_ts = exp(g_s+1 + ... + g_t) is what is left of it. That is a triangular system for all u of a
    chunk (the WY form of https://arxiv.org/abs/2406.06484); the rest are products of matrices.
    """
    q, k, v, log_decay, beta = _widened(tokens, states)
    heads, group = k.shape[2], v.shape[2] // k.shape[2]
    q, k = (one.transpose(1, 2)[:, :, None] for one in (q, k))  # [n, heads, 1, C, d_k]
    v, log_decay, beta = (_by_group(one, heads, group) for one in (v, log_decay, beta))
    before = states.unflatten(1, (heads, group))
    left = decays(log_decay)
    from_start = log_decay.cumsum(-1).exp()[..., None]
    beta = beta[..., None]
    system = beta * (k @ k.mT) * left  # its diagonal counts as ones
    wanted = beta * (v - from_start * (k @ before))
    u = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    out = from_start * (q @ before) + ((q @ k.mT) * left) @ u
    to_end = left[..., -1, :, None]
    after = from_start[..., -1:, :] * before + k.mT @ (to_end * u)
    return out.flatten(1, 2).transpose(1, 2), after.flatten(1, 2)


def scan_step(tokens: Sequence[Tensor], states: Tensor, d: Tensor | None) -> tuple[Tensor, Tensor]:
    """One token of each sequence. x: [n, heads, p]. dt, log_decay: [n, heads].
    b, c: [n, groups, n_state]. states: [n, heads, p, n_state], which are overwritten."""
    x, dt, log_decay, b, c = _widened(tokens, states)
    group = x.shape[1] // b.shape[1]
    b, c = (one.repeat_interleave(group, 1) for one in (b, c))
    states *= log_decay.exp()[..., None, None]
    states += (dt[..., None] * x)[..., None] * b[..., None, :]
    out = (states @ c[..., None]).squeeze(-1)
    return (out if d is None else out + d[:, None] * x), states


def scan_chunk(tokens: Sequence[Tensor], states: Tensor, d: Tensor | None) -> tuple[Tensor, Tensor]:
    """C tokens of each sequence at once: within the chunk attention with weights that decay, beside what
    is left of the states. As for a step, with [n, C, ...] for [n, ...]."""
    x, dt, log_decay, b, c = _widened(tokens, states)
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


def _widened(tokens: Sequence[Tensor], states: Tensor) -> list[Tensor]:
    return [one.to(states.dtype) for one in tokens]


def _by_group(one: Tensor, heads: int, group: int) -> Tensor:
    """[n, C, heads * group, ...] as [n, heads, group, C, ...]."""
    return one.transpose(1, 2).unflatten(1, (heads, group))
