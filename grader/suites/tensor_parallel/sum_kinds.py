"""What the digits of wrong sums tell: whose part is missing or there twice, or where the sum is."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from grader.suites.tensor_parallel.bench import chunk, marked

DIGITS = "Rank r's number at place i is (i + 1) * 10^r."
WIDTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "float32": lambda x, y: (x.float() + y.float()).to(x.dtype),
    "float64": lambda x, y: (x.double() + y.double()).to(x.dtype),
    "bfloat16": lambda x, y: (x.bfloat16() + y.bfloat16()).to(x.dtype),
}


def why_chunk(got: Sequence[Tensor], n: int, rank: int, sent: Sequence[int]) -> str:
    """Why a rank's chunk is no sum over all ranks. got: x on each rank after reduce_scatter. sent: bytes
    that each rank has sent."""
    size = len(got)
    if size > 1 and not any(sent):
        chunks = "1 chunk" if size == 2 else f"{size - 1} chunks"
        return f"No rank has sent anything: on {size} ranks each one sends {chunks}."
    for shift in range(1, size):
        held = [(one + shift) % size for one in range(size)]
        if n >= size and all(_is_whole(got[one], n, held[one], size) for one in range(size)):
            return f"The sum of chunk {held[0]} is on rank 0, that of chunk {held[1]} on rank 1."
    return why_sum(got[rank], chunk(n, rank, size), size)


def why_reduced(got: Sequence[Tensor], rank: int) -> str:
    """Why a rank's result of all_reduce is no sum over all ranks. got: the results of all ranks."""
    flat, size = [x.flatten() for x in got], len(got)
    n = len(flat[0])
    if size > 1 and n > 1 and all(len(x) == n for x in flat):
        right = [(x == _total(n, size)).nonzero().flatten().tolist() for x in flat]
        own = [list(range(n)[chunk(n, one, size)]) for one in range(size)]
        if right == own:
            of = f"rank 0 at places {own[0]}, rank 1 at places {own[1]}"
            return f"Each rank has the sum of its own chunk alone: {of}."
    return why_sum(flat[rank], slice(0, n), size)


def why_sum(x: Tensor, held: slice, size: int) -> str:
    """Whose part the first wrong number of these places lacks, or has twice; "" if it is no sum of
    parts."""
    wrong = [place for place in range(len(x))[held] if x[place] != _total(len(x), size)[place]]
    if not wrong:
        return ""
    place, number = wrong[0], x[wrong[0]].item()
    if all(abs(x[at].item() * size - _total(len(x), size)[at].item()) < 0.01 for at in wrong):
        return f"This is the sum divided by {size}, the number of ranks."
    count = number / (place + 1)
    if count != count or count != int(count) or not 0 <= count < 10**size:
        return ""
    digits = [int(count) // 10**rank % 10 for rank in range(size)]
    lacks = [rank for rank, digit in enumerate(digits) if digit == 0]
    twice = [(rank, digit) for rank, digit in enumerate(digits) if digit > 1]
    told = [f"lacks the {_parts(lacks)}"] if lacks else []
    told += [f"has rank {rank}'s part {digit} times" for rank, digit in twice]
    return f"{DIGITS} The number at place {place} {' and '.join(told)}."


def why_digits(got: Sequence[str], rank: int, one: Tensor, other: Tensor) -> str:
    """In which dtype two vectors were added, if that gives just these numbers and no other does, or
    whether what is not finite is left out. rank: of the wrong number."""
    fits = [
        name
        for name, add in WIDTHS.items()
        if [str(number.item()) for number in add(one, other)] == list(got)
    ]
    if len(fits) == 1 and fits[0] != str(one.dtype).removeprefix("torch."):
        return f"These are the sums in {fits[0]}."
    if one.isfinite().all() and other.isfinite().all():
        return ""
    finite = sum(torch.where(x.isfinite(), x, 0.0)[rank].item() for x in (one, other))
    return "This is the sum without what is not finite." if got[rank] == str(finite) else ""


def _is_whole(x: Tensor, n: int, of: int, size: int) -> bool:
    held = chunk(n, of, size)
    return bool(torch.equal(x[held], _total(n, size)[held]))


def _total(n: int, size: int) -> Tensor:
    return marked(n, 0) * sum(10**rank for rank in range(size))


def _parts(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"part of rank {ranks[0]}"
    return f"parts of ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
