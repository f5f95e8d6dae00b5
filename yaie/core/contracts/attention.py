"""Lab 5: attention of one flat batch over paged keys and values."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.batch import AttentionBatch, AttentionSpec


# ANCHOR: batch_attention
class BatchAttention(Protocol):
    """Lab 5, and the kernels of labs 10, 11, 15 and 16. Attention of a flat varlen batch over paged
    keys and values, shared prefixes included.

    It is given a KVPool and TransformerOps.
    """

    def plan(self, batch: "AttentionBatch") -> Any:
        """Once a step: whatever the layers share (grouping, gather indices). Opaque to callers."""
        ...

    def run(
        self, layer: int, q: "Tensor", k: "Tensor", v: "Tensor", spec: "AttentionSpec", plan: Any
    ) -> "Tensor":
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        Returns [T, heads, d]. q, k and v may be slices of one tensor. NaN in what a query sees comes out
        as NaN: by it the engine knows a request that went wrong.
        """
        ...


# ANCHOR_END: batch_attention
