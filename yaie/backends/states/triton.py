"""`TritonStateOps`: the kernels of `kernels`, launched. Nothing here waits for the device."""

import torch
import triton
from torch import Tensor

from yaie.backends.states.kernels.conv import conv_chunks_kernel, conv_tails_kernel
from yaie.backends.states.kernels.delta import delta_chunks_kernel, delta_prepare_kernel
from yaie.backends.states.kernels.scan import scan_chunks_kernel, scan_step_kernel
from yaie.backends.states.kernels.tiles import CHUNK, FEW, clear_behind_kernel
from yaie.core.contracts.states import DeltaDecode, StateBatch

CONV_TOKENS, CONV_BLOCK = 32, 128
"""Of a program of the convolution."""
CLEARED = 1024
"""Numbers of a row that a program sets to 0."""
STEP_CELLS = 4096
"""Numbers of a state in a program that takes token after token: 32 registers of each thread."""
LARGEST_SIDE = 256
"""Of a head's state: what a program can hold."""


class TritonStateOps:
    """See `StateOps`. Launches are the same for all batches with the same `lens`, which are bounds.

    What kernels read of a token lies side by side, otherwise it is copied first. Chunks of inputs of 16
    bits are multiplied on tensor cores, as `plus_product` says; sums and states are float32.
    """

    def __init__(self, delta_decode: DeltaDecode) -> None:
        """delta_decode: of lab 22, for sequences of FEW tokens at most."""
        self._delta_decode = delta_decode

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        x, weight = _side_by_side(x), weight.contiguous()
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
            STEP=is_step, KEPT=triton.next_power_of_2(width - 1),
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
        q, k, v, log_decay, beta = map(_side_by_side, (q, k, v, log_decay, beta))
        (num_tokens, heads, d_k), (_, v_heads, d_v) = k.shape, v.shape
        _check(pool, d_k, d_v)
        n = len(batch.lens)
        out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
        block_k = max(16, triton.next_power_of_2(d_k))
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
            **sizes, TOKENS=CHUNK, SEQS=triton.next_power_of_2(n), num_warps=4,
        )  # fmt: skip
        block_v = min(max(16, triton.next_power_of_2(d_v)), 64)
        delta_chunks_kernel[triton.cdiv(d_v, block_v), v_heads, n](
            out, *made, q, k, v, beta, pool, batch.starts, *where, *of_q, *of_k, *of_v,
            beta.stride(0), pool.stride(0), **fixed, BLOCK_V=block_v, TOKENS=CHUNK, num_warps=4,
            num_stages=1,
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
        x, dt, b, c = map(_side_by_side, (x, dt, b, c))
        (num_tokens, heads, p), (_, groups, n_state) = x.shape, b.shape
        _check(pool, p, n_state)
        n = len(batch.lens)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        block_n = max(16, triton.next_power_of_2(n_state))
        fixed = {"HEADS": heads, "GROUP": heads // groups, "P": p, "N_STATE": n_state}
        fixed |= {"HAS_D": d is not None, "BLOCK_N": block_n}
        arguments = (
            out, x, dt, a, b, c, d, pool, batch.starts, batch.slots,
            batch.is_fresh.view(torch.uint8), n, num_tokens, *x.stride()[:2], dt.stride(0),
            *b.stride()[:2], *c.stride()[:2], pool.stride(0),
        )  # fmt: skip
        block_p = min(max(1, STEP_CELLS // block_n), triton.next_power_of_2(p))
        scan_step_kernel[triton.cdiv(p, block_p), heads, n](
            *arguments, **fixed, BLOCK_P=block_p, num_warps=4
        )
        if max(batch.lens) <= FEW:
            return out
        block_p = min(max(16, triton.next_power_of_2(p)), 64)
        scan_chunks_kernel[triton.cdiv(p, block_p), heads, n](
            *arguments, **fixed, BLOCK_P=block_p, TOKENS=CHUNK, num_warps=4, num_stages=1
        )
        return out


def _all_single(batch: StateBatch, num_tokens: int) -> bool:
    """Whether each sequence has one token, and each row a sequence."""
    return num_tokens == len(batch.lens) and all(length == 1 for length in batch.lens)


def _side_by_side(one: Tensor) -> Tensor:
    """With the numbers of a row, or of a head, next to each other; heads and rows may lie anywhere."""
    return one if one.stride(-1) == 1 else one.contiguous()


def _check(pool: Tensor, *sides: int) -> None:
    """Raises ValueError for states that the kernels do not take."""
    if not pool[0].is_contiguous():
        raise ValueError(f"a slot's state lies apart: strides {pool.stride()}")
    if max(sides, default=0) > LARGEST_SIDE:
        raise ValueError(f"a head's state has {sides} numbers; at most {LARGEST_SIDE} a side")
    if sides and pool.dtype != torch.float32:
        raise ValueError(f"states are float32, not {pool.dtype}")
