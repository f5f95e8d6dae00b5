"""Shares by their ends: rank r's begins at the r-th of size + 1 marks."""


def share(total: int, rank: int, size: int) -> range:
    def mark(number: int) -> int:
        return -(-(total - number) // size)  # rows of the rank `number`, by counting them in turns

    first = sum(mark(before) for before in range(rank))
    return range(first, first + mark(rank))


def share_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> tuple[range, range]:
    fits = num_heads % size == 0 and (num_kv_heads % size == 0 or size % num_kv_heads == 0)
    if not fits:
        raise ValueError(
            f"size {size} does not fit {num_heads} heads, {num_kv_heads} of them KV heads"
        )
    mine = num_heads // size
    if num_kv_heads >= size:
        kept = num_kv_heads // size
        return range(rank * mine, rank * mine + mine), range(rank * kept, rank * kept + kept)
    only = rank // (size // num_kv_heads)
    return range(rank * mine, rank * mine + mine), range(only, only + 1)


def qkv_rows(
    num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
) -> tuple[range, range, range]:
    queries, keys = share_heads(num_heads, num_kv_heads, rank, size)
    begin, end = keys.start * head_dim, keys.stop * head_dim
    to_keys, to_values = num_heads * head_dim, (num_heads + num_kv_heads) * head_dim
    return (
        range(queries.start * head_dim, queries.stop * head_dim),
        range(to_keys + begin, to_keys + end),
        range(to_values + begin, to_values + end),
    )
