"""A share begins behind those of all ranks before it; heads that are repeated are found by the rank."""


def share(total: int, rank: int, size: int) -> range:
    return range(_before(total, rank, size), _before(total, rank + 1, size))


def _before(total: int, rank: int, size: int) -> int:
    """Rows of the ranks before one: the rest goes to the first of them."""
    return total // size * rank + min(total % size, rank)


def share_heads(num_heads: int, num_kv_heads: int, rank: int, size: int) -> tuple[range, range]:
    is_cut = num_kv_heads % size == 0
    is_repeated = size % num_kv_heads == 0
    if not (is_cut or is_repeated) or num_heads % size != 0:
        raise ValueError(f"{size} ranks cannot share {num_kv_heads} KV heads of {num_heads} heads")
    own = share(num_heads, rank, size)
    if is_cut:
        return own, share(num_kv_heads, rank, size)
    return own, range(rank * num_kv_heads // size, rank * num_kv_heads // size + 1)


def qkv_rows(
    num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
) -> tuple[range, range, range]:
    own, kv = share_heads(num_heads, num_kv_heads, rank, size)
    rows = [range(heads[0] * head_dim, (heads[-1] + 1) * head_dim) for heads in (own, kv)]
    starts = (0, num_heads * head_dim, (num_heads + num_kv_heads) * head_dim)
    of_part = (rows[0], rows[1], rows[1])
    queries, keys, values = (
        range(part.start + start, part.stop + start)
        for part, start in zip(of_part, starts, strict=True)
    )
    return queries, keys, values
