"""Another design: `narrow` moves both ends by numbers; see `sampler.py` for the call.

The reference has a branch for each end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .chunks import list_chunks, load_chunks
from .scan import CHUNK, Scan

KEY_OF_MINUS_INF = tl.constexpr(-0x7F800001)


@triton.jit
def key_of(value):
    """An int64 that is larger for a larger float32."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)


@triton.jit
def value_of(key):
    """The float32 with this key."""
    bits = key.to(tl.int32)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)


@triton.jit
def count_from(values, pivot):
    """For each value: whether it is at least the pivot, itself if so or inf, itself if not or -inf.

    Summed up and reduced: how many, the least of those, the largest of the others. A bisection may go on
    from these two instead of the pivot: between them there is nothing.
    """
    is_high = values >= pivot
    higher = tl.where(is_high, values, float("inf"))
    return is_high.to(tl.int32), higher, tl.where(is_high, float("-inf"), values)


@triton.jit
def narrow(number, least, most, k, reached, missed):
    """One step of the bisection: (reached, missed) after a count.

    At least k logits have the key `reached` or more, fewer than k the key `missed` or more. number: how
    many reach the pivot between the two; least: the smallest of those, most: the largest that does not.
    """
    enough = number >= k
    reached = tl.where(enough, key_of(least), reached)
    missed = tl.where(enough, missed, key_of(most) + 1)
    missed = tl.where(number == k, reached + 1, missed)
    return reached, missed


@triton.jit
def bound_kernel(
    logits,
    row_stride,
    top_ks,
    chunk_maxima,
    chunk_lists,
    bounds,
    vocab,
    num_chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """bounds[row]: exactly the k largest logits, and those tied with the last of them, are above it.

    -inf if k is off. One program a row. If k chunks have a maximum of at least b, then so have k tokens:
    the k-th largest chunk maximum is not above the k-th largest logit, and only chunks that reach it are
    counted. chunk_lists: [n, num_chunks] int32, to write in.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    chunk_maxima += row * num_chunks
    chunk_lists += row * num_chunks
    k = tl.load(top_ks + row)
    bound = tl.full([], float("-inf"), tl.float32)
    if (k > 0) & (k < vocab):
        chunks = tl.arange(0, BLOCK)
        maxima = tl.load(chunk_maxima + chunks, mask=chunks < num_chunks, other=float("-inf"))
        # At least k logits have a key of `reached` or more, fewer than k one of `missed` or more.
        reached = tl.full([], KEY_OF_MINUS_INF, tl.int64)
        missed = key_of(tl.max(maxima)) + 1
        if k <= num_chunks:
            above = missed
            while reached + 1 < above:
                middle = (reached + above) >> 1
                number, least, most = count_from(maxima, value_of(middle))
                reached, above = narrow(
                    tl.sum(number), tl.min(least), tl.max(most), k, reached, above
                )
        count = list_chunks(chunk_maxima, value_below(reached), num_chunks, chunk_lists, BLOCK)
        middle = reached
        while reached + 1 < missed:
            pivot = value_of(middle)
            number = tl.zeros([CHUNKS, CHUNK], tl.int32)
            least = tl.full([CHUNKS, CHUNK], float("inf"), tl.float32)
            most = tl.full([CHUNKS, CHUNK], float("-inf"), tl.float32)
            for first in range(0, count, CHUNKS):
                values, _ = load_chunks(logits, chunk_lists, first, count, 0, vocab, CHUNK, CHUNKS)
                more, higher, lower = count_from(values, pivot)
                number += more
                least, most = tl.minimum(least, higher), tl.maximum(most, lower)
            reached, missed = narrow(
                tl.sum(number), tl.min(least), tl.max(most), k, reached, missed
            )
            middle = (reached + missed) >> 1
        bound = value_below(reached)
    tl.store(bounds + row, bound)


@triton.jit
def value_below(key):
    """The largest float32 that every number with this key or a larger one exceeds. -0.0 is 0.0."""
    return value_of(tl.maximum(tl.where(key == 0, -2, key - 1), KEY_OF_MINUS_INF))


def top_k_bounds(logits: Tensor, batch: SamplingBatch, scan: Scan) -> Tensor:
    """[n] float32: what a token's logit must exceed for its row's top-k; -inf where k is off."""
    n, vocab = logits.shape
    num_chunks = scan.chunk_maxima.shape[1]
    bounds = torch.empty(n, dtype=torch.float32, device=logits.device)
    lists = torch.empty((n, num_chunks), dtype=torch.int32, device=logits.device)
    block = triton.next_power_of_2(num_chunks)
    bound_kernel[(n,)](
        logits, logits.stride(0), batch.top_k, scan.chunk_maxima, lists, bounds, vocab, num_chunks,
        CHUNK=CHUNK, CHUNKS=min(32, block), BLOCK=block, num_warps=8,
    )  # fmt: skip
    return bounds
