"""Shares by the rows before them, remembered for the last few models."""

from functools import lru_cache


@lru_cache(maxsize=256)
def share(total: int, rank: int, size: int) -> range:
    first = rank * (total // size) + min(rank, total % size)
    return range(first, first + (total + size - 1 - rank) // size)


def share_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> tuple[range, range]:
    together = max(num_kv_heads, size) % min(num_kv_heads, size)
    if together or num_heads % size:
        raise ValueError(f"{size} ranks, {num_heads} heads, {num_kv_heads} KV heads")
    mine = share(num_heads, rank, size)
    read = sorted({head * num_kv_heads // num_heads for head in mine})
    return mine, range(read[0], read[-1] + 1)


def qkv_rows(
    num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
) -> tuple[range, range, range]:
    queries, keys = share_heads(num_heads, num_kv_heads, rank, size)
    all_rows = range((num_heads + 2 * num_kv_heads) * head_dim)
    of_keys = all_rows[num_heads * head_dim :]
    of_values = of_keys[num_kv_heads * head_dim :]
    begin, end = keys.start * head_dim, keys.stop * head_dim
    own = all_rows[queries.start * head_dim : queries.stop * head_dim]
    return own, of_keys[begin:end], of_values[begin:end]
