"""Tasks 20.4 and 20.5: products and tables that are split over the ranks, and summed."""

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import expect, expect_close, expect_equal, note, task
from grader.kit.rank_group import SimGroup, run_together
from grader.kit.ranks import Ranks
from grader.suites.tensor_parallel.bench import cut, drawn
from solutions import tensor_parallel as reference

BIAS = "The bias belongs to the sum of all parts"
ONCE = f"{BIAS}: added before the all-reduce, it is in the result once for each rank."
MISSING = f"{BIAS}. This is the sum without it."
SUMMED = (
    "y = x @ W.T is the sum over all inputs. A rank holds some of them, so it has a part of each number "
    "in y, and the parts are added."
)
SAME = "Every rank goes on with this tensor: what differs here differs in every later layer."
ONE_SUM = (
    "One all_reduce of the result is enough: everything else can be done before or after it, here."
)
OWN_PART = " This is the part of rank {} alone."
INPUTS_SUMMED = (
    " Here the inputs of all ranks were added, which belong to other columns of the weight: "
    "`all_reduce` takes the product, not x."
)
NOT_SUMMED = "The rank that holds the token has the row. The others get it by the sum of all ranks."
OTHERS_ZERO = (
    "A token is held by one rank. The others must add zeros for it, and not a row that they have at "
    "that place: an index below 0 counts from the end."
)
ASKED_ROWS = (
    "A rank adds zeros for the tokens of other ranks, whatever its own rows hold. 0 * NaN is NaN: put "
    "zeros in, rather than multiply by 0."
)
MAY_WRITE = (
    "`all_reduce` may write to what it is given. A slice of the table is the table's own memory: give "
    "it rows that were made for this call."
)
AS_THEY_ARE = "The rows of the tokens come as they are, whatever numbers are in them."
HELD = "The table holds `len(table)` tokens from `first` on; shares need not be equal."


def split_product(
    part: ModuleType, size: int, x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[list[Tensor], Ranks]:
    """RowParallel on every rank, with inputs and weight cut into shares."""

    def work(group: SimGroup) -> Tensor:
        mine = cut(weight, group.rank, size)
        layer = part.RowParallel(lambda given: given @ mine.t(), bias, group)
        given = cut(x, group.rank, size)
        with_bias = "no bias" if bias is None else f"bias {bias.tolist()}"
        note(f"rank {group.rank} calls RowParallel(x {list(given.shape)}), with {with_bias}")
        result: Tensor = layer(given)
        return result

    return run_together(part, size, work)


@task("20.4")
def test_the_parts_of_a_product_are_added(part: ModuleType) -> None:
    """RowParallel gives x @ W.T of the whole input and weight, on every rank."""
    for size in (2, 3, 4):
        x, weight = drawn(3, 12, seed=0), drawn(5, 12, seed=1)
        whole = x.clone()  # a sum may be written to what it was given
        got, _ = split_product(part, size, x, weight, None)
        shares = [cut(whole, rank, size) for rank in range(size)]
        for rank, y in enumerate(got):
            what = f"RowParallel without bias, on rank {rank} of {size}"
            mine = cut(weight, rank, size).t()
            kinds = {
                OWN_PART.format(rank): shares[rank] @ mine,
                INPUTS_SUMMED: sum(shares, torch.zeros_like(shares[0])) @ mine,
            }
            found = [
                told
                for told, kind in kinds.items()
                if y.shape == kind.shape and torch.allclose(y.float(), kind, atol=1e-5)
            ]
            expect_close(
                y,
                whole.double() @ weight.double().t(),
                what,
                atol=1e-5,
                why=SUMMED + "".join(found),
            )


@task("20.4")
def test_the_bias_is_added_once(part: ModuleType) -> None:
    """RowParallel adds the bias once, however many ranks there are, and leaves it as it was."""
    for size in (1, 2, 4):
        x, weight, bias = torch.ones(2, 4), torch.ones(3, 4), torch.tensor([100.0, 200.0, 300.0])
        before = bias.clone()
        got, _ = split_product(part, size, x, weight, bias)
        for rank, y in enumerate(got):
            what = f"RowParallel of ones with bias 100 200 300, on rank {rank} of {size}"
            each = y[0].tolist() if y.shape == (2, 3) else []
            times = {size: ONCE, 0: MISSING} if size > 1 else {0: MISSING}
            why = next(
                (why for n, why in times.items() if each == [4 + n * b for b in (100, 200, 300)]),
                "",
            )
            expect_equal(y.tolist(), [[104.0, 204.0, 304.0]] * 2, what, why=why)
        expect_equal(bias.tolist(), before.tolist(), "the bias afterwards, which is a weight")


@task("20.4")
def test_every_rank_makes_the_same_calls_whatever_its_input(part: ModuleType) -> None:
    """RowParallel has every rank make the same calls: with inputs of zeros, with no rows, and on the
    first rank as on the last."""
    weight, bias = drawn(3, 4, seed=1), drawn(3, seed=2)
    zeros = drawn(2, 4, seed=0)
    zeros[:, :2] = 0
    for x in (zeros, zeros.flip(1), drawn(0, 4, seed=0)):
        got, _ = split_product(part, 2, x, weight, bias)
        expected = x.double() @ weight.double().t() + bias
        expect_close(got[0], expected, "RowParallel on rank 0", atol=1e-5, why=SUMMED)
        expect(torch.equal(got[0], got[1]), "RowParallel: other bits on rank 1", why=SAME)


@task("20.4")
def test_a_product_sends_its_result_once(part: ModuleType) -> None:
    """RowParallel calls the product once, and sends what one all_reduce of the result does; the result
    has its dtype."""
    for size, dtype in ((2, torch.float32), (4, torch.bfloat16)):
        calls: list[int] = []

        def work(group: SimGroup, calls: list[int] = calls, dtype: torch.dtype = dtype) -> Tensor:
            def product(given: Tensor) -> Tensor:
                calls.append(group.rank)
                return given[:, :1].repeat(1, 8)

            bias = torch.ones(8, dtype=dtype)
            result: Tensor = part.RowParallel(product, bias, group)(torch.ones(3, 2, dtype=dtype))
            return result

        got, ranks = run_together(part, size, work)
        expect_equal(calls, list(range(size)), "ranks that called their product")
        most = 2 * (size - 1) * 3 * 8 * dtype.itemsize // size
        what = f"RowParallel to [3, 8] on {size} ranks: {max(ranks.sent)} bytes sent by a rank"
        expect(max(ranks.sent) <= most, f"{what}, where {most} are enough", why=ONE_SUM)
        expect_equal([y.dtype for y in got], [dtype] * size, "dtype of the result on each rank")


class Scribbling:
    """A group that leaves nonsense in what an all-reduce was given, as it may."""

    def __init__(self, group: SimGroup) -> None:
        self.rank, self.size = group.rank, group.size
        self._group = group

    def all_reduce(self, x: Tensor) -> Tensor:
        total = self._group.all_reduce(x).clone()
        x.fill_(math.nan)
        return total

    def all_gather(self, x: Tensor) -> Tensor:
        return self._group.all_gather(x)


def looked_up(
    part: ModuleType, size: int, table: Tensor, ids: Tensor
) -> tuple[list[Tensor], list[Tensor], Ranks]:
    """(VocabEmbedding on every rank, the tables afterwards, the ranks), each with its share."""
    tables = [cut(table, rank, size, dim=0).clone() for rank in range(size)]

    def work(own: SimGroup) -> Tensor:
        group = Scribbling(own)
        first = reference.share(len(table), group.rank, size).start
        note(f"rank {group.rank} looks up {ids.tolist()}; its table begins at token {first}")
        embedding: Callable[[Tensor], Tensor] = part.VocabEmbedding(
            tables[group.rank], first, group
        )
        return embedding(ids)

    got, ranks = run_together(part, size, work)
    return got, tables, ranks


def why_row(got: list[Tensor], rank: int, ids: Sequence[int], table: Tensor) -> tuple[str, str]:
    """(which token of whose share has the first wrong row on a rank, what the row is made of)."""
    size, right = len(got), table[list(ids)]
    if got[rank].shape != right.shape or not bool((got[rank] != right).any()):
        return "", ""
    at = int((got[rank] != right).any(dim=1).nonzero()[0])
    shares = [reference.share(len(table), each, size) for each in range(size)]
    holder = next(each for each, held in enumerate(shares) if ids[at] in held)
    place = ids[at] - shares[holder].start
    told = f"token {ids[at]}, row {place} of the {len(shares[holder])} that rank {holder} holds"
    row = got[rank][at]
    firsts = ([0] * size, [each * len(held) for each, held in enumerate(shares)])
    if any(got[rank].tolist() == _from(table, ids, shares, first) for first in firsts):
        return told, HELD
    if not bool(row.any()):
        is_there = rank != holder and got[holder][at].tolist() == right[at].tolist()
        return f"{told}, gives zeros", NOT_SUMMED if is_there else HELD
    rows = {tuple(each) for each in table.tolist()}
    if tuple((row - right[at]).tolist()) in rows and size > 1:
        return f"{told}, gives the sum of its row and another one", OTHERS_ZERO
    if tuple(row.tolist()) in rows:
        other = next(i for i, each in enumerate(table.tolist()) if each == row.tolist())
        return f"{told}, gives the row of token {other}", HELD
    return told, OTHERS_ZERO if size > 1 else ""


def _from(table: Tensor, ids: Sequence[int], shares: Sequence[range], firsts: list[int]) -> Any:
    """What a lookup gives if the tables begin at other tokens than they do."""
    found = torch.zeros(len(ids), table.shape[1])
    for held, first in zip(shares, firsts, strict=True):
        for at, token in enumerate(ids):
            if 0 <= token - first < len(held):
                found[at] += table[held.start + token - first]
    return found.tolist()


def expect_rows(part: ModuleType, size: int, vocab: int, ids: Sequence[int]) -> Any:
    """The rows of the tokens on every rank, bit for bit."""
    table = torch.arange(1, 2 * vocab + 1, dtype=torch.float32).view(vocab, 2)
    given = torch.tensor(ids, dtype=torch.int64)
    got, tables, ranks = looked_up(part, size, table, given)
    for rank, x in enumerate(got):
        of = f"{list(ids)}, of {vocab} tokens (row t is 2t + 1, 2t + 2)"
        what = f"embedding of {of}, on rank {rank} of {size}"
        told, why = why_row(got, rank, ids, table)
        expect_close(x, table[given], f"{what}: {told}" if told else what, rtol=0, atol=0, why=why)
        held = cut(table, rank, size, dim=0)
        problem = f"the lookup has changed the table of rank {rank}"
        expect(torch.equal(tables[rank], held), problem, why=MAY_WRITE)
    expect_equal(given.tolist(), list(ids), "the token ids afterwards")
    return ranks


@task("20.5")
def test_every_token_gets_its_own_row(part: ModuleType) -> None:
    """VocabEmbedding gives each token's row, whichever rank holds it, on every rank."""
    for size in (1, 2, 4):
        expect_rows(part, size, 8, [0, 5, 3, 7, 3, 4])


@task("20.5")
def test_a_table_need_not_divide(part: ModuleType) -> None:
    """VocabEmbedding takes vocabularies that the number of ranks does not divide, at the edges of each
    share too."""
    for size, vocab in ((2, 5), (3, 7), (4, 6), (4, 7)):
        expect_rows(part, size, vocab, list(range(vocab)))


@task("20.5")
def test_a_rank_without_a_token_takes_part(part: ModuleType) -> None:
    """VocabEmbedding has every rank make the same calls, also one that holds none of the tokens."""
    for ids in ([0, 1], [7], [2, 3, 2], []):
        expect_rows(part, 4, 8, ids)


@task("20.5")
def test_rows_that_are_not_looked_up_do_not_matter(part: ModuleType) -> None:
    """VocabEmbedding gives the rows of its tokens, even if other rows hold NaN or infinity."""
    table = torch.full((8, 2), math.nan)
    table[:, 1] = math.inf
    table[[2, 5]] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got, _, _ = looked_up(part, 2, table, torch.tensor([5, 2]))
    for rank, x in enumerate(got):
        what = f"embedding of [5, 2], where all other rows are [nan, inf], on rank {rank} of 2"
        expect_equal(x.tolist(), [[3.0, 4.0], [1.0, 2.0]], what, why=ASKED_ROWS)


@task("20.5")
def test_rows_that_are_not_finite(part: ModuleType) -> None:
    """VocabEmbedding gives the rows of its tokens also where they hold NaN or infinity."""
    table = torch.ones(4, 2)
    table[1], table[2, 1] = torch.tensor([math.nan, math.inf]), -math.inf
    got, _, _ = looked_up(part, 2, table, torch.tensor([1, 2, 0]))
    for rank, x in enumerate(got):
        what = f"embedding of [1, 2, 0] on rank {rank} of 2"
        expect_equal(str(x.tolist()), str(table[[1, 2, 0]].tolist()), what, why=AS_THEY_ARE)


@task("20.5")
def test_tokens_in_a_row(part: ModuleType) -> None:
    """VocabEmbedding leaves its table as it is, also when the tokens are all those that it holds."""
    for size, ids in ((1, [0, 1, 2, 3]), (1, [2]), (2, [2, 3]), (2, [1]), (2, [0, 1])):
        expect_rows(part, size, 4, ids)


@task("20.5")
def test_a_lookup_sends_its_result_once(part: ModuleType) -> None:
    """VocabEmbedding sends what one all_reduce of the result does, in the dtype of the table."""
    sent = expect_rows(part, 4, 8, [1, 6, 2, 5]).sent
    most = 2 * 3 * 4 * 2 * 4 // 4
    what = f"an embedding [4, 2] on 4 ranks: {max(sent)} bytes sent by a rank"
    expect(max(sent) <= most, f"{what}, where {most} are enough", why=ONE_SUM)
    table = drawn(6, 3, seed=0, dtype=torch.bfloat16)
    got, _, _ = looked_up(part, 2, table, torch.tensor([5, 0]))
    expect_close(got[0], table[[5, 0]], "embedding in bfloat16, on rank 0", rtol=0, atol=0)
