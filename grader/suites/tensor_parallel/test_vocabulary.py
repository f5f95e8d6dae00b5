"""Tasks 20.6 and 20.7: all logits in their order, and one token without them."""

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import expect, expect_close, expect_equal, note, start_script, task
from grader.kit.rank_group import SimGroup, run_together
from grader.kit.rank_processes import RankProcesses
from grader.kit.ranks import Ranks
from grader.kit.script import show
from grader.suites.tensor_parallel import real
from grader.suites.tensor_parallel.bench import cut, drawn
from grader.suites.tensor_parallel.token_kinds import Asked, why_best, why_drawn, why_gathered
from solutions import tensor_parallel as reference
from solutions.tensor_parallel.one_process import winners

BY_COLUMN = (
    "What is gathered is [size, rows, held]: rank by rank. A row of logits is row i of every rank, one "
    "behind the other. With one row alone the difference does not show."
)
PADDED = (
    "All ranks must send tensors of one shape, but shares differ by one: pad the smaller ones, and cut "
    "the padding off before the parts are put together."
)
OF_THE_WHOLE = (
    "A rank counts its columns from 0; the token is that plus the start of its share, which is not "
    "rank * held where shares differ."
)
LOWEST = "Of equal logits the lowest token wins, as in one process; so the lowest rank that has it."
FAILED = (
    "A row that holds NaN on any rank has failed on all of them, and so has one whose highest logit is "
    "infinite: it gives -1, and not the best of what is left."
)
FEW = (
    "Of each row a rank sends its best token and that token's logit, however large the vocabulary."
)
EXACT = (
    "Token ids do not fit the dtype of the logits: bfloat16 has 8 bits for a number, float32 24."
)
WIDE_SUM = (
    "In bfloat16 many sums of logit and noise are equal, and the lowest token wins too often. Leave the "
    "noise in float32 and add in float32."
)
OF_TOKENS = {"whole": OF_THE_WHOLE, "lowest": LOWEST, "failed": FAILED, "exact": EXACT}
DIGITS = "Logits are compared as they are: rounded to a narrower dtype, two of them become equal."
OWN_NOISE = (
    "A token's noise must be the same whichever rank holds it, so a rank asks for the noise of its own "
    "tokens, by their ids in the whole vocabulary."
)


def on_shares(
    part: ModuleType, size: int, logits: Tensor, call: Callable[[Any, Tensor], Tensor]
) -> tuple[list[Tensor], Ranks]:
    """call(VocabLogits, a rank's columns) on every rank."""

    def work(group: SimGroup) -> Tensor:
        mine = cut(logits, group.rank, size)
        note(f"rank {group.rank} calls {call.__name__} with its logits {list(mine.shape)}")
        return call(part.VocabLogits(logits.shape[1], group), mine)

    return run_together(part, size, work)


def gather(vocab: Any, mine: Tensor) -> Tensor:
    result: Tensor = vocab.gather(mine)
    return result


def arg_max(vocab: Any, mine: Tensor) -> Tensor:
    result: Tensor = vocab.arg_max(mine)
    return result


def expect_gathered(part: ModuleType, size: int, rows: int, vocab: int) -> Ranks:
    logits = torch.arange(rows * vocab, dtype=torch.float32).view(rows, vocab) + 1
    got, ranks = on_shares(part, size, logits, gather)
    for rank, x in enumerate(got):
        what = f"logits [{rows}, {vocab}] gathered on rank {rank} of {size}"
        is_right = x.tolist() == logits.tolist()
        why = "" if is_right else why_gathered(x, logits, size, BY_COLUMN, PADDED)
        expect_equal(list(x.shape), [rows, vocab], f"{what}: their shape", why=why)
        expect_equal(x.tolist(), logits.tolist(), what, why=why)
    return ranks


@task("20.6")
def test_logits_come_in_the_order_of_the_vocabulary(part: ModuleType) -> None:
    """gather gives [rows, vocab_size] in the order of the vocabulary, on every rank."""
    for size, vocab in ((1, 4), (2, 4), (4, 8)):
        for rows in (1, 3):
            expect_gathered(part, size, rows, vocab)


@task("20.6")
def test_shares_of_the_vocabulary_may_differ(part: ModuleType) -> None:
    """gather takes vocabularies that the number of ranks does not divide."""
    for size, vocab in ((2, 5), (3, 7), (4, 6), (4, 7), (4, 4)):
        for rows in (1, 2):
            expect_gathered(part, size, rows, vocab)


@task("20.6")
def test_gathered_logits_are_a_copy(part: ModuleType) -> None:
    """gather gives freshly allocated logits of the same dtype, leaves its input as it was, and takes
    logits that are part of a larger tensor."""
    for size, dtype in ((1, torch.float32), (2, torch.bfloat16), (2, torch.float64)):
        wide = drawn(2, 9, seed=0, dtype=dtype)
        before = wide.clone()
        got, _ = on_shares(part, size, wide[:, 1:8], gather)
        for x in got:
            expect_equal(x.dtype, dtype, f"dtype of gathered logits in {dtype}")
            expect_close(x, before[:, 1:8], "gathered logits", rtol=0, atol=0)
            x.fill_(-1.0)
        expect(torch.equal(wide, before), "writing to gathered logits changes the logits of a rank")


@task("20.6")
def test_gathering_sends_each_share_once_to_each_rank(part: ModuleType) -> None:
    """In a gather a rank sends its share, padded to the largest, size - 1 times."""
    for size, vocab in ((2, 8), (4, 7)):
        sent = expect_gathered(part, size, 3, vocab).sent
        most = (size - 1) * 3 * -(-vocab // size) * 4
        what = f"gather of [3, {vocab}] on {size} ranks: {max(sent)} bytes sent by a rank"
        expect(max(sent) <= most, f"{what}, where {most} are enough")


@task("20.6")
def test_real_ranks_gather_logits(part: ModuleType, processes: RankProcesses) -> None:
    """Two and four real processes over gloo gather the same logits."""
    for size in (2, 4):
        start_script()
        note(f"# {size} processes: logits [3, 50257]")
        logits = drawn(3, 50_257, seed=0)
        for rank, x in enumerate(processes.run(size, real.of_logits, "gather", 3, 50_257)):
            what = f"logits gathered on rank {rank} of {size} real ones"
            expect_close(x, logits, what, rtol=0, atol=0)


def expect_best(part: ModuleType, size: int, logits: Tensor, digits: str = "") -> list[int]:
    """arg_max on every rank; returns the bytes that each has sent. digits: what is said of a token whose
    logit is a little lower."""
    got, ranks = on_shares(part, size, logits, arg_max)
    few = [[round(x, 2) for x in row] for row in logits.tolist()] if logits.numel() <= 15 else ""
    note(f"# of the logits {few or show(logits)}")
    for rank, x in enumerate(got):
        what = f"arg_max of [{logits.shape[0]}, {logits.shape[1]}] on rank {rank} of {size}"
        expect_equal(x.dtype, torch.int64, f"{what}: its dtype")
        if (tokens := x.tolist()) != winners(logits):
            why = why_best(tokens, rank, logits, size, {**OF_TOKENS, "digits": digits})
            expect_equal(tokens, winners(logits), what, why=why)
    return ranks.sent


@task("20.7")
def test_the_best_token_is_one_of_the_whole_vocabulary(part: ModuleType) -> None:
    """arg_max gives the token with the highest logit of each row, on every rank."""
    for size, vocab in ((1, 3), (2, 4), (2, 5), (4, 7), (4, 6)):
        for place in range(vocab):
            logits = torch.full((2, vocab), -9.0)
            logits[0, place], logits[1, vocab - 1 - place] = -1.0, -2.0
            expect_best(part, size, logits)
        expect_best(part, size, drawn(5, vocab, seed=size))


@task("20.7")
def test_of_equal_logits_the_lowest_token_wins(part: ModuleType) -> None:
    """Where several tokens have the highest logit, arg_max gives the lowest, on one rank or on two."""
    rows = [[1, 2, 2, 0, 2], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 3, 3], [2, 0, 2, 0, 0]]
    for size in (2, 3, 4):
        expect_best(part, size, torch.tensor(rows, dtype=torch.float32))


@task("20.7")
def test_rows_that_have_failed_give_minus_one(part: ModuleType) -> None:
    """arg_max gives -1 for a row that holds NaN on any rank, or whose highest logit is not finite, and
    disturbs no other row."""
    nan, inf = math.nan, math.inf
    for place in range(5):
        for bad in (nan, inf):
            logits = drawn(3, 5, seed=place)
            logits[1, place] = bad
            expect_best(part, 2, logits)
    masked = [[-inf] * 5, [-inf, -inf, -inf, 1.0, -inf], [nan, 1.0, -inf, inf, nan]]
    expect_best(part, 2, torch.tensor(masked))
    expect_best(part, 4, torch.tensor(masked))


@task("20.7")
def test_what_an_arg_max_sends_does_not_grow_with_the_vocabulary(part: ModuleType) -> None:
    """arg_max and draw send O(rows) numbers, whatever the vocabulary."""
    for size in (2, 4):
        most = (size - 1) * 3 * 32
        for vocab in (8, 1000):
            logits = drawn(3, vocab, seed=vocab)
            sent = expect_best(part, size, logits)
            what = f"arg_max of [3, {vocab}] on {size} ranks: {max(sent)} bytes sent by a rank"
            expect(max(sent) <= most, f"{what}, where {most} are plenty", why=FEW)
            sent = on_shares(part, size, logits, draw)[1].sent
            what = f"draw from [3, {vocab}] on {size} ranks: {max(sent)} bytes sent by a rank"
            expect(max(sent) <= most, f"{what}, where {most} are plenty", why=FEW)


@task("20.7")
def test_large_token_ids_survive(part: ModuleType) -> None:
    """arg_max gives the exact token, of large vocabularies and in narrow dtypes."""
    for dtype, vocab in ((torch.bfloat16, 1001), (torch.float16, 4099), (torch.float32, 300)):
        logits = torch.full((2, vocab), -1.0, dtype=dtype)
        logits[0, vocab - 2], logits[1, vocab // 2 + 3] = 3.0, 2.0
        expect_best(part, 2, logits)
    vocab = 2**24 + 4

    def work(group: SimGroup) -> Tensor:
        mine = torch.zeros(1, len(reference.share(vocab, group.rank, 2)))
        mine[0, -1] = group.rank
        return arg_max(part.VocabLogits(vocab, group), mine)

    got, _ = run_together(part, 2, work)
    what = f"arg_max of {vocab} logits, of which the last is the highest"
    expect_equal([x.tolist() for x in got], [[vocab - 1]] * 2, what, why=EXACT)


def noise(tokens: range) -> Tensor:
    """Gumbel noise [3, len(tokens)] that depends on row and token alone."""
    uniform = torch.rand(3, 2000, generator=torch.Generator().manual_seed(5)).clamp(1e-6, 1 - 1e-6)
    return -torch.log(-torch.log(uniform))[:, tokens.start : tokens.stop]


def draw(vocab: Any, mine: Tensor) -> Tensor:
    result: Tensor = vocab.draw(mine, noise)
    return result


@task("20.7")
def test_draws_do_not_depend_on_how_many_ranks_there_are(part: ModuleType) -> None:
    """draw gives the token with the highest sum of logit and noise: the same on every rank, and the same
    on 1, 2, 3 and 4 of them."""
    for vocab in (4, 7, 50):
        for seed in range(4):
            logits = drawn(3, vocab, seed=seed)
            before = logits.clone()
            expected = winners(logits + noise(range(vocab)))
            for size in (1, 2, 3, 4):
                asked = Asked(noise)
                got, _ = on_shares(part, size, logits, asked.draw)
                for rank, x in enumerate(got):
                    what = f"draw from [3, {vocab}] on rank {rank} of {size}"
                    if (tokens := x.tolist()) != expected:
                        why = why_drawn(tokens, logits, asked, size, OWN_NOISE)
                        expect_equal(tokens, expected, what, why=why)
            expect(torch.equal(logits, before), "draw has changed the logits")
    failed = drawn(3, 4, seed=0)
    failed[2, 1] = math.nan
    got, _ = on_shares(part, 2, failed, draw)
    what = "draw from rows of which the last holds NaN"
    expected = winners(failed + noise(range(4)))
    why = FAILED if got[1].tolist()[:2] == expected[:2] else ""
    expect_equal(got[1].tolist(), expected, what, why=why)


@task("20.7")
def test_draws_from_narrow_logits_add_in_float32(part: ModuleType) -> None:
    """draw adds noise to logits of a narrow dtype without rounding the sum to that dtype."""
    near = torch.zeros(3, 6)
    near[0, :2], near[1, 4:], near[2, 2:4] = torch.tensor([[4, 4.001], [2, 2.0005], [4, 4.001]])

    def work(group: SimGroup, dtype: torch.dtype) -> Tensor:
        def own(tokens: range) -> Tensor:
            return near[:, tokens.start : tokens.stop]

        zeros = torch.zeros(3, len(reference.share(6, group.rank, 2)), dtype=dtype)
        result: Tensor = part.VocabLogits(6, group).draw(zeros, own)
        return result

    for dtype in (torch.bfloat16, torch.float16):
        got, _ = run_together(part, 2, partial(work, dtype=dtype))
        note(f"# the noise: {[[round(x, 4) for x in row] for row in near.tolist()]}")
        what = f"draw from [3, 6] zeros in {dtype}, on rank 0 of 2"
        narrow = winners(near.to(dtype).float())
        why = WIDE_SUM if got[0].tolist() == narrow else ""
        expect_equal(got[0].tolist(), [1, 5, 3], what, why=why)


@task("20.7")
def test_real_ranks_choose_one_token(part: ModuleType, processes: RankProcesses) -> None:
    """Two and four real processes over gloo choose the same tokens."""
    for size in (2, 4):
        start_script()
        note(f"# {size} processes: logits [3, 50257]")
        best = winners(drawn(3, 50_257, seed=0))
        for rank, x in enumerate(processes.run(size, real.of_logits, "arg_max", 3, 50_257)):
            what = f"arg_max on rank {rank} of {size} real ones"
            expect_equal(x.tolist(), best, what)
