"""Log-probabilities as arrays: what a worker tells of tokens, and what requests have of it."""

from collections.abc import Iterator

from yaie.core.logprobs import TokenLogprob
from yaie.core.step import Arrays

NO_RANK = 0


def entries(told: Arrays) -> Iterator[tuple[int, TokenLogprob]]:
    """(row, entry) of each of m tokens.

    told: `rows`, `token_ids` [m] int32. `logprobs` [m] float32. `ranks` [m] int32, NO_RANK where that
    is not told. `counts` [m] int32, how many of `top_ids` [m, k] int32 and `top_logprobs` [m, k] float32
    are a token's.
    """
    columns = (
        told[name].tolist()
        for name in ("rows", "token_ids", "logprobs", "ranks", "counts", "top_ids", "top_logprobs")
    )
    for row, token_id, logprob, rank, count, ids, values in zip(*columns, strict=True):
        top = tuple(zip(ids[:count], values[:count], strict=True))
        yield row, TokenLogprob(token_id, logprob, top, rank if rank != NO_RANK else None)
