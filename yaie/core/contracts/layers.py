"""Lab 2: the operations of a layer, and what a model calls to attend."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from yaie.core.batch import AttentionSpec, Rotation


# ANCHOR: transformer_ops
class TransformerOps(Protocol):
    """Lab 2. The operations of a decoder layer. Math in float32, results in the input's dtype."""

    def rms_norm(self, x: "Tensor", weight: "Tensor", eps: float) -> "Tensor":
        """x / sqrt(mean(x**2) + eps) * weight over the last dimension. x: [..., d], weight: [d]."""
        ...

    def fused_add_rms_norm(
        self, x: "Tensor", residual: "Tensor", weight: "Tensor", eps: float
    ) -> "tuple[Tensor, Tensor]":
        """Returns (rms_norm(x + residual), x + residual). May reuse the inputs' memory."""
        ...

    def rope(
        self, q: "Tensor", k: "Tensor", positions: "Tensor", cos: "Tensor", sin: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """Rotate q [T, heads, d] and k [T, kv_heads, d] to `positions` [T] (int64).

        cos, sin: [max_positions, rotary_dim / 2] float32. Dimension i of the first half is paired with
        dimension i of the second (the layout of Hugging Face checkpoints); dimensions from rotary_dim
        on stay as they are.
        """
        ...

    def silu_mul(self, x: "Tensor") -> "Tensor":
        """silu(gate) * up, for x [..., 2 * d] = [gate | up]. Returns [..., d]."""
        ...

    def causal_mask(
        self, kv_lens: "Tensor", tq: int, tk: int, window: int | None, dtype: "torch.dtype"
    ) -> "Tensor":
        """[n, tq, tk] of `dtype`, added to attention scores: 0 where a query sees a key, else -inf.

        kv_lens: [n] int, the real keys of each row, at least tq; the rest of tk is padding. The last of
        the tq queries of row i is at position kv_lens[i] - 1, and sees the `window` keys that end
        with its own position, or all before it if that is None.
        """
        ...

    def attention(
        self, q: "Tensor", k: "Tensor", v: "Tensor", mask: "Tensor", spec: "AttentionSpec"
    ) -> "Tensor":
        """Grouped-query attention over padded sequences. Returns [n, tq, heads, d].

        q: [n, tq, heads, d]; k, v: [n, tk, kv_heads, d]; heads is a multiple of kv_heads. mask: from
        `causal_mask`, with the window of `spec`. Keys and values that it hides are finite.
        """
        ...


# ANCHOR_END: transformer_ops


# ANCHOR: attend
class Attend(Protocol):
    """What a model adapter calls in each layer: it writes K and V to the pool and attends."""

    def __call__(
        self,
        layer: int,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        spec: "AttentionSpec",
        *,
        rotation: "Rotation | None" = None,
    ) -> "Tensor":
        """q [T, heads, d]; k, v [T, kv_heads, d]. Returns [T, heads, d].

        rotation: what q and k still lack; with it they may be overwritten.
        """
        ...


# ANCHOR_END: attend
