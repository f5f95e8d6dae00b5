"""Which sequences of a flat batch are attended together.

Sequences with the same number of queries can share one call if their keys are padded to one length.
Padding is wasted work, calls are overhead: long and short sequences go to separate groups.
"""

from collections.abc import Iterator

from yaie.core.batch import AttentionBatch

MIN_GROUP = 8
MAX_WASTE = 0.25


# ANCHOR: groups_of
def groups_of(batch: AttentionBatch) -> Iterator[list[int]]:
    """Split the batch's sequences (their indices) into groups of equal query length.

    From the longest down, each group as large as it may be: MIN_GROUP sequences whatever their lengths,
    and beyond them only those with more than 1 - MAX_WASTE of its longest one's keys.
    """
    # BEGIN SOLUTION 5.1
    by_length: dict[int, list[int]] = {}
    for i, query_len in enumerate(batch.query_lens):
        by_length.setdefault(query_len, []).append(i)
    for members in by_length.values():
        members.sort(key=batch.kv_lens.__getitem__, reverse=True)
        while members:
            shortest_allowed = (1 - MAX_WASTE) * batch.kv_lens[members[0]]
            end = MIN_GROUP
            while end < len(members) and batch.kv_lens[members[end]] > shortest_allowed:
                end += 1
            yield members[:end]
            members = members[end:]
    # END SOLUTION


# ANCHOR_END: groups_of
