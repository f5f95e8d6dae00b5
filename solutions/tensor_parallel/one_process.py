# ORACLE
"""What all ranks together must come to, in one process: the definition of each task."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor


def shares(total: int, size: int) -> list[range]:
    """The parts of all ranks: dealt out one by one, then put in order."""
    counts = [len(range(rank, total, size)) for rank in range(size)]
    begins = [sum(counts[:rank]) for rank in range(size)]
    return [range(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]


def heads(num_heads: int, num_kv_heads: int, size: int) -> list[tuple[list[int], list[int]]]:
    """(query heads, KV heads) of all ranks."""
    found = []
    for rank in range(size):
        queries = [head for head in range(num_heads) if head * size // num_heads == rank]
        found.append((queries, sorted({head * num_kv_heads // num_heads for head in queries})))
    return found


def reduced(parts: Sequence[Tensor]) -> Tensor:
    """The sum over the ranks, in float64."""
    return torch.stack([part.double() for part in parts]).sum(dim=0)


def winners(logits: Tensor) -> list[int]:
    """The lowest of the tokens with the highest logit of each row, -1 if that is not finite."""
    found = []
    for row in logits.double().tolist():
        best = max(row) if all(number == number for number in row) else float("nan")
        found.append(row.index(best) if abs(best) < float("inf") else -1)
    return found


def smallest_largest_run(num_tokens: Sequence[int], count: int) -> int:
    """Tokens of the largest run in the best cut, found among all cuts."""
    rows = len(num_tokens)
    return min(
        max(sum(num_tokens[a:b]) for a, b in zip((0, *cuts), (*cuts, rows), strict=True))
        for number in range(min(count, rows))
        for cuts in combinations(range(1, rows), number)
    )
