"""`TritonStateOps`: the kernels of `kernels`, launched. Nothing here waits for the device."""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from yaie.backends.early import early_launch, starts_early
from yaie.backends.states.kernels.around import (
    delta_inputs_kernel,
    gated_norm_kernel,
    sigmoid_gate_kernel,
)
from yaie.backends.states.kernels.conv import conv_chunks_kernel, conv_tails_kernel
from yaie.backends.states.kernels.delta import delta_chunks_kernel, delta_prepare_kernel
from yaie.backends.states.kernels.scan import scan_chunks_kernel, scan_step_kernel
from yaie.backends.states.kernels.tiles import CHUNK, FEW, clear_behind_kernel
from yaie.backends.states.strides import side_by_side
from yaie.core.contracts.states import DeltaDecode, StateBatch


class Launch(NamedTuple):
    """block: columns of a head's state, or rows of Mamba-2's, that a program has at most."""

    block: int
    warps: int
    stages: int = 1

    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages}


SCAN_STEP = Launch(32, 4)
DELTA_PREPARE_WARPS = 4
DELTA_CHUNKS = Launch(64, 4)
SCAN_CHUNKS = Launch(64, 8)
SCAN_CHUNKS_NARROW = Launch(16, 4)
"""Where a head has few rows: with 8 warps Triton 3.6 gets products of float32 with 16 columns wrong, or
reads where nothing is (seen on an H200; 32 columns and more are right, and so is bfloat16)."""
CONV_TOKENS, CONV_BLOCK = 16, 128
"""Of a program of the convolution."""
CLEARED = 1024
"""Numbers of a row that a program sets to 0."""
AROUND_CELLS = 1024
"""Numbers of a program that works on a token's heads."""
LEAST_SIDE, LARGEST_SIDE = 16, 256
"""Of a tile that is multiplied, and of a head's state, which a program has to hold."""


class TritonStateOps:
    """See `StateOps`. Launches are the same for all batches with the same `lens`, which are bounds.

    What kernels read of a token lies side by side, otherwise it is copied first. Chunks of inputs of 16
    bits are multiplied on tensor cores, as `plus_product` says; sums and states are float32.
    """

    def __init__(self, part: Any) -> None:
        """part: of lab 22, whose kernel takes sequences of FEW tokens at most."""
        self._delta_decode: DeltaDecode = part.decode_kernel()

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        x, weight = side_by_side(x), weight.contiguous()
        bias = None if bias is None else side_by_side(bias)
        num_tokens, channels = x.shape
        width, n = weight.shape[1], len(batch.lens)
        _check(pool)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        blocks = triton.cdiv(channels, CONV_BLOCK)
        sizes = {"WIDTH": width, "BIAS": bias is not None, "SILU": silu, "BLOCK": CONV_BLOCK}
        where = batch.starts, batch.slots, batch.is_fresh.view(torch.uint8), n
        is_step = _all_single(batch, num_tokens)
        if not is_step:
            tiles = num_tokens // CONV_TOKENS + n
            conv_chunks_kernel[blocks, tiles](
                out, x, weight, bias, pool, *where, num_tokens, channels, x.stride(0),
                pool.stride(0), **sizes, TOKENS=CONV_TOKENS, SEQS=triton.next_power_of_2(n),
            )  # fmt: skip
        conv_tails_kernel[blocks, n](
            out, x, weight, bias, pool, *where, channels, x.stride(0), pool.stride(0), **sizes,
            STEP=is_step, KEPT=triton.next_power_of_2(width - 1), **_early(x),
        )  # fmt: skip
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
        q, k, v, log_decay, beta = map(side_by_side, (q, k, v, log_decay, beta))
        (num_tokens, heads, d_k), (_, v_heads, d_v) = k.shape, v.shape
        _check(pool, d_k, d_v)
        n = len(batch.lens)
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        block_k = _tile(d_k)
        fixed = {"V_HEADS": v_heads, "GROUP": v_heads // heads, "D_K": d_k, "D_V": d_v}
        fixed["BLOCK_K"] = block_k
        of_q, of_k, of_v = (one.stride()[:2] for one in (q, k, v))
        of_gates = log_decay.stride(0), beta.stride(0)
        where = batch.slots, batch.is_fresh.view(torch.uint8), n, num_tokens
        self._delta_decode(out, q, k, v, log_decay, beta, pool, batch, FEW)
        if max(batch.lens) <= FEW:
            if not _all_single(batch, num_tokens):
                row = v_heads * d_v
                clear_behind_kernel[(triton.cdiv(row, CLEARED),)](
                    out, batch.starts, n, num_tokens, row, BLOCK=CLEARED
                )
            return out

        def scratch(*shape: int) -> Tensor:
            return torch.empty(num_tokens, v_heads, *shape, dtype=torch.float32, device=v.device)

        made = scratch(CHUNK), scratch(CHUNK), scratch(), scratch()
        sizes = {"GROUP": v_heads // heads, "V_HEADS": v_heads, "D_K": d_k, "BLOCK_K": block_k}
        delta_prepare_kernel[v_heads, num_tokens // CHUNK + n](
            *made, q, k, log_decay, beta, batch.starts, n, num_tokens, *of_q, *of_k, *of_gates,
            **sizes, TOKENS=CHUNK, SEQS=triton.next_power_of_2(n),
            num_warps=DELTA_PREPARE_WARPS,
        )  # fmt: skip
        block_v = min(DELTA_CHUNKS.block, _tile(d_v))
        delta_chunks_kernel[triton.cdiv(d_v, block_v), v_heads, n](
            out, *made, q, k, v, beta, pool, batch.starts, *where, *of_q, *of_k, *of_v,
            beta.stride(0), pool.stride(0), **fixed, BLOCK_V=block_v, TOKENS=CHUNK,
            **DELTA_CHUNKS.options(),
        )  # fmt: skip
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
        x, dt, a, b, c = map(side_by_side, (x, dt, a, b, c))
        d = None if d is None else side_by_side(d)
        (num_tokens, heads, p), (_, groups, n_state) = x.shape, b.shape
        _check(pool, p, n_state)
        n = len(batch.lens)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        block_n = _tile(n_state)
        fixed = {"HEADS": heads, "GROUP": heads // groups, "P": p, "N_STATE": n_state}
        fixed |= {"HAS_D": d is not None, "BLOCK_N": block_n}
        arguments = (
            out, x, dt, a, b, c, d, pool, batch.starts, batch.slots,
            batch.is_fresh.view(torch.uint8), n, num_tokens, *x.stride()[:2], dt.stride(0),
            *b.stride()[:2], *c.stride()[:2], pool.stride(0),
        )  # fmt: skip
        block_p = min(SCAN_STEP.block, _tile(p))
        scan_step_kernel[triton.cdiv(p, block_p), heads, n](
            *arguments, **fixed, BLOCK_P=block_p, **SCAN_STEP.options()
        )
        if max(batch.lens) <= FEW:
            return out
        chunks = SCAN_CHUNKS if p > SCAN_CHUNKS_NARROW.block else SCAN_CHUNKS_NARROW
        block_p = min(chunks.block, _tile(p))
        scan_chunks_kernel[triton.cdiv(p, block_p), heads, n](
            *arguments, **fixed, BLOCK_P=block_p, TOKENS=CHUNK, **chunks.options()
        )
        return out

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
        q, k, a, b, log_a, dt_bias = map(side_by_side, (q, k, a, b, log_a, dt_bias))
        num_tokens, heads, d = q.shape
        v_heads, block_d = a.shape[1], triton.next_power_of_2(d)
        q_out, k_out = (torch.empty(q.shape, dtype=q.dtype, device=q.device) for _ in range(2))
        log_decay, beta = (
            torch.empty(a.shape, dtype=torch.float32, device=a.device) for _ in range(2)
        )
        tile = min(max(1, AROUND_CELLS // block_d), triton.next_power_of_2(heads))
        group = v_heads // heads
        delta_inputs_kernel[triton.cdiv(heads, tile), num_tokens](
            q_out, k_out, log_decay, beta, q, k, a, b, log_a, dt_bias, *q.stride()[:2],
            *k.stride()[:2], a.stride(0), b.stride(0), d**-0.5, eps, HEADS=heads, GROUP=group,
            D=d, BLOCK_D=block_d, TILE=tile, GATES=triton.next_power_of_2(tile * group),
            num_warps=4, **_early(q),
        )  # fmt: skip
        return q_out, k_out, log_decay, beta

    def gated_norm(
        self, x: Tensor, gate: Tensor, weight: Tensor, eps: float, gate_first: bool = False
    ) -> Tensor:
        x, gate, weight = map(side_by_side, (x, gate, weight))
        num_tokens, rows, d = x.shape
        block_d = triton.next_power_of_2(d)
        tile = min(max(1, AROUND_CELLS // block_d), triton.next_power_of_2(rows))
        out = torch.empty(num_tokens, rows * d, dtype=x.dtype, device=x.device)
        gated_norm_kernel[triton.cdiv(rows, tile), num_tokens](
            out, x, gate, weight, *x.stride()[:2], gate.stride(0),
            0 if weight.dim() == 1 else weight.stride(0), eps, ROWS=rows, D=d, BLOCK_D=block_d,
            TILE=tile, GATE_FIRST=gate_first, num_warps=4, **_early(x),
        )  # fmt: skip
        return out

    def sigmoid_gate(self, x: Tensor, gate: Tensor) -> Tensor:
        x, gate = map(side_by_side, (x, gate))
        num_tokens, heads, d = x.shape
        block_d = triton.next_power_of_2(d)
        tile = min(max(1, AROUND_CELLS // block_d), triton.next_power_of_2(heads))
        out = torch.empty(num_tokens, heads * d, dtype=x.dtype, device=x.device)
        sigmoid_gate_kernel[triton.cdiv(heads, tile), num_tokens](
            out, x, gate, *x.stride()[:2], *gate.stride()[:2], HEADS=heads, D=d, BLOCK_D=block_d,
            TILE=tile, num_warps=4, **_early(x),
        )  # fmt: skip
        return out


def _early(x: Tensor) -> dict[str, bool]:
    """For kernels that ask for nothing before the one in front of them has ended. The product behind a
    layer's rule then has its weights on the way while the norm before it still runs."""
    early = starts_early(x.device)
    return {"EARLY": early, **early_launch(early)}


def _all_single(batch: StateBatch, num_tokens: int) -> bool:
    """Whether each sequence has one token, and each row a sequence."""
    return num_tokens == len(batch.lens) and all(length == 1 for length in batch.lens)


def _tile(side: int) -> int:
    return max(LEAST_SIDE, triton.next_power_of_2(side))


def _check(pool: Tensor, *sides: int) -> None:
    """Raises ValueError for states that the kernels do not take."""
    if not pool[0].is_contiguous():
        raise ValueError(f"a slot's state lies apart: strides {pool.stride()}")
    if max(sides, default=0) > LARGEST_SIDE:
        raise ValueError(f"a head's state has {sides} numbers; at most {LARGEST_SIDE} a side")
    if sides and pool.dtype != torch.float32:
        raise ValueError(f"states are float32, not {pool.dtype}")
