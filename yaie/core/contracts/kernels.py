"""The contracts of the kernels: one signature for each operation, in PyTorch, Triton and CUDA C++.

Labs 9 to 12 write them in Triton, labs 13 to 16 in CUDA C++; the engine picks by
`EngineConfig.backend`, and a kernel is right if it agrees with the plain PyTorch of labs 1 to 5.
Everywhere: T is the number of query tokens of a flat batch, n of sequences; the last dimension of every
tensor is contiguous, and the first may be strided (query, key and value are views of one product); of
other strides a part takes what it says. Dtypes are float32, float16 and bfloat16; arithmetic is float32.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.batch import AttentionSpec


# ANCHOR: layer_kernels
class LayerKernels(Protocol):
    """Labs 9 (`triton_ops`) and 14 (`cuda_ops`). The operations between the products of a layer."""

    def rms_norm(self, x: "Tensor", weight: "Tensor", eps: float) -> "Tensor":
        """x / sqrt(mean(x**2) + eps) * weight over the last dimension. x: [..., d], weight: [d]."""
        ...

    def fused_add_rms_norm(
        self, x: "Tensor", residual: "Tensor", weight: "Tensor", eps: float
    ) -> "tuple[Tensor, Tensor]":
        """(rms_norm(x + residual), x + residual), all [..., d]: written over x and over residual.

        The sum is rounded to the dtype of `residual` before its norm is taken. Returns x and residual.
        """
        ...

    def silu_mul(self, x: "Tensor") -> "Tensor":
        """silu(gate) * up, for x [..., 2 * d] = [gate | up]. Returns [..., d]."""
        ...

    def rope(
        self, q: "Tensor", k: "Tensor", positions: "Tensor", cos: "Tensor", sin: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """Rotate q [T, heads, d] and k [T, kv_heads, d] to `positions` [T] (int64), in place.

        cos, sin: [max_positions, rotary_dim / 2] float32. Dimension i is paired with dimension
        i + rotary_dim / 2; those from rotary_dim on stay as they are. Returns q and k.
        """
        ...

    def rope_and_store(
        self,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        positions: "Tensor",
        cos: "Tensor",
        sin: "Tensor",
        key_blocks: "Tensor",
        value_blocks: "Tensor",
        slot_mapping: "Tensor",
    ) -> None:
        """`rope` of q in place, and of k on its way to its slots; v goes there as it is.

        One launch in place of three, and k is never written but to the pool; k itself stays as it was.
        A negative slot stores nothing.
        """
        ...


# ANCHOR_END: layer_kernels


# ANCHOR: memory_kernels
class StoreKernel(Protocol):
    """Labs 9 and 13. key_blocks, value_blocks: [num_blocks, block_size, kv_heads, d], as in KVPool."""

    def store_kv(
        self,
        k: "Tensor",
        v: "Tensor",
        key_blocks: "Tensor",
        value_blocks: "Tensor",
        slot_mapping: "Tensor",
    ) -> None:
        """Store k, v [T, kv_heads, d] in the slots [T] (int64); a negative slot stores nothing."""
        ...


class MemoryKernels(StoreKernel, Protocol):
    """Lab 13 (`cuda_memory_ops`). Blocks that move. A tensor of blocks has any shape [blocks, ...]."""

    def gather(self, blocks: "Tensor", block_tables: "Tensor") -> "Tensor":
        """The blocks of `block_tables` [n, m] (int32), one after the other: [n, m * block_size, ...]."""
        ...

    def copy_blocks(self, tensors: "list[Tensor]", pairs: "Tensor") -> None:
        """Copy block src to block dst for each (src, dst) of `pairs` [p, 2] (int64), in every tensor.

        No dst is the src or the dst of another pair.
        """
        ...

    def swap_blocks(self, source: "Tensor", target: "Tensor", pairs: "Tensor") -> None:
        """Copy block `here` of source to block `there` of target for each (here, there) [p, 2] (int64).

        Either may be pinned host memory, which the device reads and writes across the bus.
        """
        ...


# ANCHOR_END: memory_kernels


# ANCHOR: flash_attention
class FlashAttention(Protocol):
    """Labs 10 (`triton_flash_attention`) and 15 (`cuda_flash_attention`). Contiguous keys and values.

    q: [n, tq, heads, d]; k, v: [n, tk, kv_heads, d]; head h reads key head h // (heads / kv_heads).
    Query j stands at position tk - tq + j. causal: it sees the keys up to its position; window (needs
    causal): only the last `window` of them. block_mask: [ceil(tq / mask_block), ceil(tk / mask_block)]
    bool, tiles that are False are not computed; mask_block is a power of two, at least 16.
    A query that sees no key gives 0, and -inf as its lse.
    """

    def forward(
        self,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
        block_mask: "Tensor | None" = None,
        mask_block: int = 128,
    ) -> "tuple[Tensor, Tensor]":
        """(out [n, tq, heads, d], lse [n, heads, tq] float32: the natural logarithm of each softmax's
        denominator, of scaled scores)."""
        ...

    def backward(
        self,
        grad_out: "Tensor",
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        out: "Tensor",
        lse: "Tensor",
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
        block_mask: "Tensor | None" = None,
        mask_block: int = 128,
    ) -> "tuple[Tensor, Tensor, Tensor]":
        """Gradients (dq, dk, dv) in the shapes and dtypes of q, k, v, recomputing the probabilities."""
        ...


# ANCHOR_END: flash_attention


# ANCHOR: paged_attention
class PagedAttention(Protocol):
    """Labs 11 (`triton_paged_attention`) and 16 (`cuda_paged_attention`). Keys and values in the pool.

    key_blocks, value_blocks: [num_blocks, block_size, kv_heads, d]. block_tables: [n, m] int32, whose
    entries past a sequence's blocks may hold anything. seq_lens: [n] int32, keys of each sequence; one
    of 0 is padding of a step that is replayed, and gives 0.
    spec: scale, window, softcap and sinks all count. Slots past a sequence's end may hold NaN.
    """

    def decode(
        self,
        q: "Tensor",
        key_blocks: "Tensor",
        value_blocks: "Tensor",
        block_tables: "Tensor",
        seq_lens: "Tensor",
        spec: "AttentionSpec",
        *,
        max_seq_len: int,
    ) -> "Tensor":
        """One query a sequence, at its last position: q [n, heads, d]; returns [n, heads, d].

        max_seq_len: a bound on seq_lens that the host knows, for choosing how often to split.
        """
        ...

    def prefill(
        self,
        q: "Tensor",
        key_blocks: "Tensor",
        value_blocks: "Tensor",
        block_tables: "Tensor",
        query_start_loc: "Tensor",
        seq_lens: "Tensor",
        spec: "AttentionSpec",
        *,
        max_query_len: int,
    ) -> "Tensor":
        """Chunks of several sequences: q [T, heads, d], those of sequence i at query_start_loc[i] to
        query_start_loc[i + 1] ([n + 1] int32), the last of them at position seq_lens[i] - 1. A sequence
        may have no queries, and q may have rows behind the last sequence. Both are padding: the result
        may hold anything in those rows.

        Returns [T, heads, d]. max_query_len: a bound on the chunks' lengths, known on the host.
        """
        ...


class PrefixKernel(Protocol):
    """Lab 16. The radix tree's question, put to many keys at once."""

    def longest_common_prefix(
        self, tokens: "Tensor", keys: "Tensor", key_lens: "Tensor"
    ) -> "Tensor":
        """How many leading entries of `tokens` [m] each row of `keys` [n, w] shares: [n] int32.

        tokens, keys: int32. key_lens: [n] int32, the real length of each row, at most w.
        """
        ...


# ANCHOR_END: paged_attention
