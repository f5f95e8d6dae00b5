"""Groups found by bisection, each in the order of the batch.

Different from the reference: it returns a list, from the longest queries down, finds a group's end in a
sorted list of lengths, and lists members as they stand in the batch: more of them are neighbours there.
"""

from bisect import bisect_right
from itertools import groupby

from yaie.core.batch import AttentionBatch

MIN_GROUP = 8
MAX_WASTE = 0.25


def groups_of(batch: AttentionBatch) -> list[list[int]]:
    """Split the batch's sequences (their indices) into groups of equal query length.

    From the longest down, each group as large as it may be: MIN_GROUP sequences whatever their lengths,
    and beyond them only those with more than 1 - MAX_WASTE of its longest one's keys.
    """
    rising = sorted(
        range(len(batch.kv_lens)), key=lambda i: (batch.query_lens[i], batch.kv_lens[i])
    )
    groups = []
    for _, equals in groupby(rising, key=batch.query_lens.__getitem__):
        members = list(equals)
        lengths = [batch.kv_lens[i] for i in members]
        while members:
            first = bisect_right(lengths, (1 - MAX_WASTE) * lengths[-1])
            first = max(0, min(first, len(members) - MIN_GROUP))
            groups.append(sorted(members[first:]))
            del members[first:], lengths[first:]
    return groups[::-1]
