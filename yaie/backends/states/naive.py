"""`StateOps` token by token, as the contract writes it: what every other form is compared with."""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.backends.states.around import PlainAround
from yaie.core.contracts.states import StateBatch


class NaiveStateOps(PlainAround):
    """See `StateOps`. Computes in float32, or in float64 where the inputs are of it."""

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        out = torch.zeros_like(x)
        for first, end, slot, is_fresh in _sequences(batch):
            tail = _state(pool, slot, is_fresh, x)  # [channels, width - 1]
            for t in range(first, end):
                window = torch.cat([tail, x[t, :, None].to(tail.dtype)], dim=1)
                total = (window * weight).sum(dim=1)
                if bias is not None:
                    total = total + bias
                out[t] = F.silu(total) if silu else total
                tail = window[:, 1:]
            pool[slot] = tail.to(pool.dtype)
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
        out = torch.zeros_like(v)
        group = v.shape[1] // k.shape[1]
        for first, end, slot, is_fresh in _sequences(batch):
            state = _state(pool, slot, is_fresh, v)  # [v_heads, d_k, d_v]
            for t in range(first, end):
                q_t, k_t = (one[t].to(state.dtype).repeat_interleave(group, 0) for one in (q, k))
                state = state * log_decay[t].exp()[:, None, None]
                remembered = torch.einsum("hkv,hk->hv", state, k_t)
                change = beta[t][:, None] * (v[t].to(state.dtype) - remembered)
                state = state + torch.einsum("hk,hv->hkv", k_t, change)
                out[t] = torch.einsum("hkv,hk->hv", state, q_t)
            pool[slot] = state.to(pool.dtype)
        return out

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
        out = torch.zeros_like(x)
        group = x.shape[1] // b.shape[1]
        for first, end, slot, is_fresh in _sequences(batch):
            state = _state(pool, slot, is_fresh, x)  # [heads, p, n]
            for t in range(first, end):
                x_t = x[t].to(state.dtype)
                b_t, c_t = (one[t].to(state.dtype).repeat_interleave(group, 0) for one in (b, c))
                state = state * (dt[t] * a).exp()[:, None, None]
                state = state + torch.einsum("hp,hn->hpn", dt[t][:, None] * x_t, b_t)
                read = torch.einsum("hpn,hn->hp", state, c_t)
                out[t] = read if d is None else read + d[:, None] * x_t
            pool[slot] = state.to(pool.dtype)
        return out


def _sequences(batch: StateBatch) -> list[tuple[int, int, int, bool]]:
    """Of each one its first token, where it ends, its slot, and whether it begins here; of those alone
    that have tokens."""
    starts = batch.starts.tolist()
    rows = zip(starts, starts[1:], batch.slots.tolist(), batch.is_fresh.tolist(), strict=False)
    return [row for row in rows if row[1] > row[0]]


def _state(pool: Tensor, slot: int, is_fresh: bool, like: Tensor) -> Tensor:
    dtype = torch.promote_types(torch.float32, like.dtype)
    return torch.zeros_like(pool[slot], dtype=dtype) if is_fresh else pool[slot].to(dtype)
