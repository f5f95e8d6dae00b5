"""`LayerKernels`: what the `.cu` files of this lab do, called with tensors.

Given: it turns shapes into counts of numbers. `naive.py` has the same methods on the kernels of
`naive.cu`, and `sums.py` calls the kernels that try task 14.1 alone.
"""

from pathlib import Path

from torch import Tensor

from yaie.cuda.library import CudaLibrary

LIBRARY = CudaLibrary(Path(__file__).parent)


class LayerKernels:
    """See `yaie.core.contracts.kernels.LayerKernels`."""

    # ANCHOR: rms_norm
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x**2) + eps) * weight over the last dimension. x: [..., d], weight: [d]."""
        out = x.new_empty(x.shape)
        count, per_token, stride = rows_of(x)
        LIBRARY.call(
            "rms_norm", x, weight, out, count, per_token, stride, x.shape[-1], eps, x.dtype
        )
        return out

    # ANCHOR_END: rms_norm

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """(rms_norm(x + residual), x + residual), written over x and over residual."""
        count, per_token, stride = rows_of(x)
        residual_stride = rows_of(residual)[2]
        LIBRARY.call(
            "fused_add_rms_norm",
            x,
            residual,
            weight,
            count,
            per_token,
            stride,
            residual_stride,
            x.shape[-1],
            eps,
            x.dtype,
        )
        return x, residual

    def silu_mul(self, x: Tensor) -> Tensor:
        """silu(gate) * up, for x [..., 2 * d] = [gate | up]. Returns [..., d]."""
        out = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
        LIBRARY.call("silu_mul", x, out, *rows_of(x), x.shape[-1], x.dtype)
        return out

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q [T, heads, d] and k [T, kv_heads, d] to `positions` [T], in place."""
        LIBRARY.call(
            "rope", q, k, positions, cos, sin, *sizes(q, k, cos), stride(q), stride(k), q.dtype
        )
        return q, k

    def rope_and_store(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        """`rope` of q in place, and of k on its way to its slots; v goes there as it is."""
        LIBRARY.call(
            "rope_and_store",
            q,
            k,
            v,
            positions,
            cos,
            sin,
            key_blocks,
            value_blocks,
            slot_mapping,
            *sizes(q, k, cos),
            stride(q),
            stride(k),
            stride(v),
            q.dtype,
        )


# ANCHOR: rows_of
def rows_of(x: Tensor) -> tuple[int, int, int]:
    """(rows, rows of a token, numbers between tokens) of x [..., d], for `Rows` in pack.cuh.

    Raises ValueError unless each x[i] is contiguous: what is written to a copy would be lost.
    """
    d = max(x.shape[-1], 1)
    if x.dim() == 1:
        return 1, 1, d
    per_token = max(x.shape[1:-1].numel(), 1)
    return x.numel() // d, per_token, stride(x)


# ANCHOR_END: rows_of


def stride(x: Tensor) -> int:
    """Numbers between x[i] and x[i + 1]. Raises ValueError unless each x[i] is contiguous."""
    if len(x) and not x[0].is_contiguous():
        raise ValueError(f"a tensor {list(x.shape)} whose rows are not contiguous: {x.stride()}")
    return x.stride(0)


def sizes(q: Tensor, k: Tensor, cos: Tensor) -> tuple[int, int, int, int, int]:
    """tokens, heads, key heads, d, half of the rotary dimension."""
    return len(q), q.shape[1], k.shape[1], q.shape[2], cos.shape[1]
