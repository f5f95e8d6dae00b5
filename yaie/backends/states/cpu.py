"""`CpuStateOps`: the functions of `source/` in C++, where states lie in the pool."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from yaie.backends.states.library import (
    Batch,
    DeltaInputs,
    DeltaRule,
    GatedNorm,
    SelectiveScan,
    ShortConv,
    StatesLibrary,
)
from yaie.backends.states.strides import side_by_side
from yaie.backends.states.torch import TorchStateOps
from yaie.core.contracts.states import StateBatch

DTYPES = (torch.float32, torch.bfloat16)
WIDTHS = (2, 3, 4)
LARGEST_SIDE = 512
"""Of a head's state."""


class CpuStateOps(TorchStateOps):
    """See `StateOps`. What the library does not take is left to PyTorch: other dtypes, other widths of a
    convolution, states that do not lie in one piece."""

    def __init__(self, part: Any, library: StatesLibrary) -> None:
        """part: of lab 22."""
        super().__init__(part)
        self._library = library

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        same = (x, weight, pool) if bias is None else (x, weight, bias, pool)
        if not _takes(same, pool) or weight.shape[1] not in WIDTHS:
            return super().short_conv(x, weight, bias, pool, batch, silu)
        x, weight = side_by_side(x), weight.contiguous()
        bias = None if bias is None else side_by_side(bias)
        out = torch.empty(x.shape, dtype=x.dtype)
        call = ShortConv(
            _batch(batch), out.data_ptr(), x.data_ptr(), weight.data_ptr(), _address(bias),
            pool.data_ptr(), x.stride(0), pool.stride(0), *weight.shape, silu, _is_bfloat16(x),
        )  # fmt: skip
        self._library.short_conv(call)
        return _cleared(out, batch)

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
        if not _takes((q, k, v), pool, log_decay, beta, pool):
            return super().gated_delta_rule(q, k, v, log_decay, beta, pool, batch)
        q, k, v, log_decay, beta = map(side_by_side, (q, k, v, log_decay, beta))
        out = torch.empty(v.shape, dtype=v.dtype)
        call = DeltaRule(
            _batch(batch), *(one.data_ptr() for one in (out, q, k, v, log_decay, beta, pool)),
            *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], log_decay.stride(0),
            beta.stride(0), pool.stride(0), k.shape[1], *pool.shape[1:], _is_bfloat16(v),
        )  # fmt: skip
        self._library.delta_rule(call)
        return _cleared(out, batch)

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
        if not _takes((x, b, c), pool, dt, a, pool, *(() if d is None else (d,))):
            return super().selective_scan(x, dt, a, b, c, d, pool, batch)
        x, dt, a, b, c = map(side_by_side, (x, dt, a, b, c))
        d = None if d is None else side_by_side(d)
        out = torch.empty(x.shape, dtype=x.dtype)
        call = SelectiveScan(
            _batch(batch), *(one.data_ptr() for one in (out, x, b, c, dt, a)), _address(d),
            pool.data_ptr(), *x.stride()[:2], dt.stride(0), *b.stride()[:2], *c.stride()[:2],
            pool.stride(0), pool.shape[1], b.shape[1], *pool.shape[2:], _is_bfloat16(x),
        )  # fmt: skip
        self._library.selective_scan(call)
        return _cleared(out, batch)

    def delta_inputs(
        self,
        q: Tensor,
        k: Tensor,
        a: Tensor,
        b: Tensor,
        log_a: Tensor,
        dt_bias: Tensor,
        eps: float = 1e-6,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if not _alike((q, k, a, b), log_a, dt_bias):
            return super().delta_inputs(q, k, a, b, log_a, dt_bias, eps)
        q, k, a, b, log_a, dt_bias = map(side_by_side, (q, k, a, b, log_a, dt_bias))
        units = torch.empty(q.shape, dtype=q.dtype), torch.empty(k.shape, dtype=k.dtype)
        log_decay, beta = (torch.empty(one.shape, dtype=torch.float32) for one in (a, b))
        given = *units, log_decay, beta, q, k, a, b, log_a, dt_bias
        tokens, heads, d = q.shape
        call = DeltaInputs(
            *(one.data_ptr() for one in given), *q.stride()[:2], *k.stride()[:2],
            a.stride(0), b.stride(0), d**-0.5, eps, tokens, heads, a.shape[1], d,
            _is_bfloat16(q), torch.get_num_threads(),
        )  # fmt: skip
        self._library.delta_inputs(call)
        return *units, log_decay, beta

    def gated_norm(
        self, x: Tensor, gate: Tensor, weight: Tensor, eps: float, gate_first: bool = False
    ) -> Tensor:
        if not _alike((x, gate, weight)):
            return super().gated_norm(x, gate, weight, eps, gate_first)
        x, gate, weight = map(side_by_side, (x, gate, weight))
        out = torch.empty(x.shape, dtype=x.dtype)
        call = GatedNorm(
            *(one.data_ptr() for one in (out, x, gate, weight)), *x.stride()[:2],
            gate.stride(0), weight.stride(0) if weight.dim() == 2 else 0, eps, *x.shape,
            gate_first, _is_bfloat16(x), torch.get_num_threads(),
        )  # fmt: skip
        self._library.gated_norm(call)
        return out.flatten(1)


def _alike(same: Iterable[Tensor], *single: Tensor) -> bool:
    """same: of one dtype, which has to be one of the library's. single: those that are float32."""
    dtypes = {one.dtype for one in same}
    return (
        len(dtypes) == 1
        and dtypes.issubset(DTYPES)
        and all(one.dtype == torch.float32 for one in single)
    )


def _takes(same: Iterable[Tensor], pool: Tensor, *single: Tensor) -> bool:
    """The same, of a rule whose states lie in this pool."""
    in_one_piece = pool[0].is_contiguous() and max(pool.shape[2:]) <= LARGEST_SIDE
    return in_one_piece and _alike(same, *single)


def _batch(batch: StateBatch) -> Batch:
    starts, slots, is_fresh = batch.starts, batch.slots, batch.is_fresh
    assert starts.dtype == torch.int32
    assert slots.dtype == torch.int64
    assert is_fresh.dtype == torch.bool
    assert all(one.is_contiguous() for one in (starts, slots, is_fresh))
    addresses = starts.data_ptr(), slots.data_ptr(), is_fresh.data_ptr()
    return Batch(*addresses, len(slots), torch.get_num_threads())


def _cleared(out: Tensor, batch: StateBatch) -> Tensor:
    """With zeros in the rows of no sequence."""
    out[int(batch.starts[-1]) :] = 0
    return out


def _address(one: Tensor | None) -> int | None:
    return None if one is None else one.data_ptr()


def _is_bfloat16(one: Tensor) -> bool:
    return one.dtype == torch.bfloat16
