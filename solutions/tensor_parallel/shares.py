"""Which rows, columns, layers and heads of a model a rank holds. Nothing here sends anything."""


# ANCHOR: share
def share(total: int, rank: int, size: int) -> range:
    """See `yaie.core.contracts.ranks.Shares`."""
    # BEGIN SOLUTION 20.1
    least, left = divmod(total, size)
    first = rank * least + min(rank, left)
    return range(first, first + least + (rank < left))
    # END SOLUTION


# ANCHOR_END: share


# ANCHOR: share_heads
def share_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> tuple[range, range]:
    """See `yaie.core.contracts.ranks.Shares`. num_heads / num_kv_heads consecutive query heads read the
    same KV head."""
    # BEGIN SOLUTION 20.1
    if num_heads % size or (num_kv_heads % size and size % num_kv_heads):
        raise ValueError(
            f"{num_heads} query heads and {num_kv_heads} KV heads cannot be split over {size} ranks"
        )
    queries = share(num_heads, rank, size)
    readers = num_heads // num_kv_heads
    return queries, range(queries[0] // readers, queries[-1] // readers + 1)
    # END SOLUTION


def qkv_rows(
    num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
) -> tuple[range, range, range]:
    """See `yaie.core.contracts.ranks.Shares`."""
    # BEGIN SOLUTION 20.1
    queries, keys = share_heads(num_heads, num_kv_heads, rank, size)
    first_key, first_value = num_heads, num_heads + num_kv_heads

    def rows(heads: range, first: int) -> range:
        return range((first + heads.start) * head_dim, (first + heads.stop) * head_dim)

    return rows(queries, 0), rows(keys, first_key), rows(keys, first_value)
    # END SOLUTION


# ANCHOR_END: share_heads
