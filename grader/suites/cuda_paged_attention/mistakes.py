"""What usual mistakes in a softmax by teams and by parts would give: for `expect_near(kinds=...)`."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from grader.kit.kernels import Pool
from grader.kit.recomputed import Kinds

TEAMS, KEYS = 4, 2
"""Of a float32 head of 256: teams in a block, and keys that each takes in a turn."""
BY_EXP = "exp(its maximum - the largest)"
OLD = "when the maximum rises, sum and acc are multiplied by exp(old - new)"


def by_teams(
    scores: Tensor,
    values: Tensor,
    *,
    acc_rescaled: bool = True,
    sum_rescaled: bool = True,
    by_own_lane: bool = False,
    weighed: bool = True,
) -> Tensor:
    """Attention of scores [heads, keys] over values [keys, 256], by teams as the kernel has them.

    acc_rescaled, sum_rescaled: when a larger score comes. by_own_lane: acc takes the factor of the head
    whose scores the lane holds. weighed: teams are added relative to the largest maximum.
    """
    heads, count = scores.shape
    lanes = torch.arange(256) // 8
    owner = (lanes * heads // 32).clamp(max=heads - 1)  # the head of a lane's scores
    maxima, sums, accs = [], [], []
    for team in range(TEAMS):
        mine = [key for key in range(count) if key % TEAMS == team]
        top, total = torch.full((heads,), -1e30, dtype=torch.float64), torch.zeros(heads).double()
        acc = torch.zeros(heads, values.shape[1], dtype=torch.float64)
        for begin in range(0, len(mine), KEYS):
            turn = mine[begin : begin + KEYS]
            largest = torch.maximum(top, scores[:, turn].double().amax(dim=1))
            factor, top = (top - largest).exp(), largest
            weights = (scores[:, turn].double() - top[:, None]).exp()
            total = total * (factor if sum_rescaled else 1.0) + weights.sum(dim=1)
            spread = factor[owner][None] if by_own_lane else factor[:, None]
            acc = acc * (spread if acc_rescaled else 1.0) + weights @ values[turn].double()
        maxima.append(top)
        sums.append(total)
        accs.append(acc)
    tops, totals, rows = torch.stack(maxima), torch.stack(sums), torch.stack(accs)
    weight = (tops - tops.amax(dim=0)).exp() if weighed else torch.ones_like(tops)
    return (weight[..., None] * rows).sum(dim=0) / (weight * totals).sum(dim=0)[:, None]


def team_kinds(scores: Tensor, values: Tensor) -> Kinds:
    """Mistakes for one sequence and one key head: scores [heads, keys], values [keys, 256]."""

    def out(**wrong: bool) -> Callable[[], Tensor]:
        return lambda: by_teams(scores, values, **wrong)[None]

    kinds = {
        "Teams were added as they are. Every team's acc and sum are multiplied by "
        f"{BY_EXP} before they are added.": out(weighed=False),
        "The sums are right and acc is not: what was added to acc earlier stayed as it was. "
        f"{OLD[0].upper()}{OLD[1:]}.": out(acc_rescaled=False),
        "acc is right and the sums are not: what was summed earlier stayed as it was. "
        f"{OLD[0].upper()}{OLD[1:]}.": out(sum_rescaled=False),
        f"Neither acc nor sum was rescaled: {OLD}.": out(acc_rescaled=False, sum_rescaled=False),
    }
    if (
        scores.shape[1] > TEAMS
    ):  # with a key for each team this is what adding teams as they are gives
        told = "What came out is the plain mean of the values: no key was weighed by its score."
        kinds[told] = lambda: values.double().mean(dim=0)[None, None]
    if len(scores) > 1:
        kinds[
            "acc of each head was multiplied by the factor of the head whose scores a lane holds. acc "
            "of a head takes the factor from that head's lanes, by a shuffle."
        ] = out(by_own_lane=True)
        kinds["Every head came out as the first one does."] = lambda: by_teams(
            scores[:1], values
        ).expand(len(scores), -1)[None]
    return kinds


def table_kinds(pool: Pool, length: int) -> Kinds:
    """Mistakes in finding keys, whose scores are alike: each sequence gives the mean of its values."""
    size, blocks = pool.value_blocks.shape[1], pool.value_blocks
    slots = blocks.flatten(0, 1)

    def mean(block: Callable[[int, int], int], place: Callable[[int], int]) -> Callable[[], Tensor]:
        def compute() -> Tensor:
            rows = [
                [slots[block(row, p) * size + place(p)] for p in range(length)]
                for row in range(len(pool.seq_lens))
            ]
            means = [torch.stack(row).double().mean(dim=0) for row in rows]
            return torch.stack(means)

        return compute

    tables = pool.block_tables.tolist()
    return {
        "What came out is the mean of the slots that follow the first block of each table. Every block "
        "has its own entry: position p lies in block table[p // block_size].": mean(
            lambda row, p: tables[row][0], lambda p: p
        ),
        "The number of a block in its sequence, p // block_size, was taken for its number in the pool. "
        "The table's entry counts.": mean(lambda row, p: p // size, lambda p: p % size),
        "The table of sequence 0 served for every sequence.": mean(
            lambda row, p: tables[0][p // size], lambda p: p % size
        ),
        "The blocks are right and the places in them are not: position p lies in slot p % block_size of "
        "its block.": mean(lambda row, p: tables[row][p // size], lambda p: 0),
        "p % block_size was taken for the entry of the table, and p // block_size for the place in the "
        "block.": mean(lambda row, p: tables[row][p % size], lambda p: p // size),
    }


def first_alone(sums: list[float], maxima: list[float], values: list[float]) -> Kinds:
    """A limit to how many parts of one head are combined."""

    def first(count: int) -> Tensor:
        top = max(maxima[:count])
        weights = [w * math.exp(m - top) for w, m in zip(sums[:count], maxima[:count], strict=True)]
        total = sum(w * v for w, v in zip(weights, values[:count], strict=True))
        return torch.tensor(total / sum(weights))

    return {
        f"This is what the first {count} parts give without the others.": partial(first, count)
        for count in (64, 100, 128, 256, 512, 1000, 1024)
        if count < len(sums)
    }


def part_kinds(sums: Tensor, maxima: Tensor, values: Tensor) -> Kinds:
    """Mistakes in combining many parts [parts] of one head, each with a mean value; in float32, in which
    exp overflows."""
    acc = sums * values

    def out(top: Tensor, used: slice | Tensor, added: slice | Tensor) -> Tensor:
        weights = (maxima - top).exp()
        return (weights * acc)[added].sum() / (weights * sums)[used].sum()

    every, top = slice(None), maxima.max()
    lanes = (
        "The lanes of a warp take one part each and go on in steps of 32: for the maximum, and again "
        "for the sum."
    )
    warps = "The 4 warps take one part each and go on in steps of 4."
    return {
        f"The maximum is that of the first 32 parts: exp(maximum of a part - it) overflows. "
        f"{lanes}": lambda: out(maxima[:32].max(), every, every),
        f"The sum is that of the first 32 parts. {lanes}": lambda: out(top, slice(32), every),
        f"The values added up are those of the first 32 parts. {warps}": lambda: out(
            top, every, slice(32)
        ),
        f"Sum and values are those of the first 32 parts. {lanes} {warps}": lambda: out(
            top, slice(32), slice(32)
        ),
        f"The values added up are those of the first 4 parts. {warps}": lambda: out(
            top, every, slice(4)
        ),
        f"The values added up are those of the first 128 parts. {warps}": lambda: out(
            top, every, slice(128)
        ),
        "What came out is the plain mean of the parts: they count by their sums, relative to one "
        "maximum.": lambda: values.mean(),
        "Parts were added by their sums alone, though each is relative to its own maximum.": lambda: (
            acc.sum() / sums.sum()
        ),
    }
