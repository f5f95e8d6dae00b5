"""Other right groups: all sequences are sorted once, by queries and then by keys, and cut into runs.

The shortest come first in what is returned, a list and no generator; and of equal keys the later one.
"""

from functools import reduce

from yaie.core.batch import AttentionBatch

MIN_GROUP = 8
MAX_WASTE = 0.25


def groups_of(batch: AttentionBatch) -> list[list[int]]:
    """Each group a run of the order by (queries, keys), both descending."""
    keys, queries = batch.kv_lens, batch.query_lens
    order = sorted(range(len(keys)), key=lambda i: (queries[i], keys[i], i), reverse=True)

    def joins(group: list[int], i: int) -> bool:
        first = group[0]
        if queries[i] != queries[first]:
            return False
        return len(group) < MIN_GROUP or keys[i] > keys[first] - keys[first] * MAX_WASTE

    def put(groups: list[list[int]], i: int) -> list[list[int]]:
        if groups and joins(groups[-1], i):
            groups[-1].append(i)
        else:
            groups.append([i])
        return groups

    empty: list[list[int]] = []
    return [group[::-1] for group in reduce(put, order, empty)][::-1]
