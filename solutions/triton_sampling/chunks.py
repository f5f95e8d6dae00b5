"""Which chunks of a row a later pass has to read at all."""

import triton
import triton.language as tl


# ANCHOR: list_chunks
@triton.jit
def list_chunks(maxima, low, num_chunks, chunk_list, BLOCK: tl.constexpr):
    """Write the chunks whose maximum is above `low` to chunk_list, in order; returns how many.

    maxima, chunk_list: [num_chunks]. BLOCK: a power of two, at least num_chunks.
    """
    chunks = tl.arange(0, BLOCK)
    highest = tl.load(maxima + chunks, mask=chunks < num_chunks, other=float("-inf"))
    is_live = (highest > low).to(tl.int32)
    place = tl.cumsum(is_live, 0) - 1
    # The threads that read the list are others than those that write it, now as in the last round.
    tl.debug_barrier()
    tl.store(chunk_list + place, chunks, mask=is_live > 0)
    tl.debug_barrier()
    return tl.sum(is_live)


@triton.jit
def load_chunks(
    logits, chunk_list, first, count, first_token, vocab, CHUNK: tl.constexpr, CHUNKS: tl.constexpr
):
    """(values, tokens) [CHUNKS, CHUNK] of the listed chunks from number `first` on; -inf for none.

    first_token: the first of chunk 0 of the list's numbering.
    """
    places = first + tl.arange(0, CHUNKS)
    chunks = tl.load(chunk_list + places, mask=places < count, other=0)
    tokens = first_token + chunks[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    mask = (places < count)[:, None] & (tokens < vocab)
    return tl.load(logits + tokens, mask=mask, other=float("-inf")), tokens


# ANCHOR_END: list_chunks
