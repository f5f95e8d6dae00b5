# Lab 20, your part (edition 2): task 20.1. The rest is given.
"""Which rows, columns, layers and heads of a model a rank holds. Nothing here sends anything."""


# ANCHOR: share
def share(total: int, rank: int, size: int) -> range:
    """See `yaie.core.contracts.ranks.Shares`."""
    # TODO 20.1: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "tensor_parallel task 20.1: not implemented yet; see chapter Tensor parallelism"
    )


# ANCHOR_END: share


# ANCHOR: share_heads
def share_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> tuple[range, range]:
    """See `yaie.core.contracts.ranks.Shares`. num_heads / num_kv_heads consecutive query heads read the
    same KV head."""
    # TODO 20.1: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "tensor_parallel task 20.1: not implemented yet; see chapter Tensor parallelism"
    )


def qkv_rows(
    num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
) -> tuple[range, range, range]:
    """See `yaie.core.contracts.ranks.Shares`."""
    # TODO 20.1: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "tensor_parallel task 20.1: not implemented yet; see chapter Tensor parallelism"
    )


# ANCHOR_END: share_heads
