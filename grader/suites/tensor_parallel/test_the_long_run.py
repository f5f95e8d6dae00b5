"""Beyond one call and a few ranks: results that stay, nothing left behind, thousands of everything."""

from itertools import count
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.kit.storage import expect_calls_apart, expect_nothing_is_kept
from grader.suites.tensor_parallel.bench import drawn, lent_ring
from grader.suites.tensor_parallel.lone import LoneGroup, LoneLink
from grader.suites.tensor_parallel.test_microbatches import ALL, BEST, cut_by
from grader.suites.tensor_parallel.test_stages import LAST_ONE
from solutions import tensor_parallel as reference

MANY = 1001
ALL_MICROBATCHES = "A step may have thousands of microbatches: each is computed and sent."
LATE = 300
"""Beyond 256, of which numbers Python has one each: the same number may be two objects from there on."""
LOADED = (
    "The engine makes the parts of a model, and then loads its weights in place: a copy that was made "
    "before holds none of them. Keep the tensor that was given."
)
RANKS = (
    "A group has as many ranks as its cluster: every chunk but one is sent, however many there are."
)


@task("20.1")
def test_shares_leave_nothing_behind(part: ModuleType) -> None:
    """What a rank holds is worked out for each call, of numbers of any size, and nothing is kept."""
    for total, size in ((100_003, 1000), (1 << 40, 3), (5, 4000)):
        note(f"share({total}, rank, {size}) of the first and the last rank")
        ranks = (0, size - 1)
        got = [part.share(total, rank, size) for rank in ranks]
        expect_equal(got, [reference.share(total, rank, size) for rank in ranks], "the shares")

    fresh = count(1000)

    def call() -> None:
        part.share(next(fresh), 1, 3)
        part.share_heads(8, 2, 1, 4)
        part.qkv_rows(8, 2, 16, 1, 4)

    start_script()
    each = {
        "share": lambda: part.share(next(fresh), 1, 3),
        "share_heads": lambda: part.share_heads(8, 2, 1, 4),
        "qkv_rows": lambda: part.qkv_rows(8, 2, 16, 1, 4),
    }
    try:
        expect_keeps_nothing(call, "share, share_heads and qkv_rows")
    except Mismatch:
        for name, one in each.items():
            expect_keeps_nothing(one, name)
        raise


@task("20.2")
def test_a_sum_of_many_ranks(part: ModuleType) -> None:
    """A ring may have more than a thousand ranks; a call leaves nothing behind."""
    expect_all_sent(part, "reduce_scatter")
    link = LoneLink(1, 3)
    ring, x = part.Ring(link), torch.ones(6)

    def call() -> None:
        link.sent.clear()
        ring.reduce_scatter(x.clone())

    expect_nothing_is_kept({"reduce_scatter": call})


@task("20.3")
def test_a_gather_of_many_ranks(part: ModuleType) -> None:
    """gather_chunks may have more than a thousand ranks."""
    expect_all_sent(part, "gather_chunks")


def expect_all_sent(part: ModuleType, name: str) -> None:
    link = LoneLink(0, MANY + 1)
    note(f"# rank 0 of {link.size}, {name} of {link.size} numbers")
    getattr(part.Ring(link), name)(torch.ones(link.size))
    sent = sum(transfer.nbytes for transfer in link.sent)
    what = f"bytes that {name} has sent of float32, on rank 0 of {link.size}"
    expect_equal(sent, 4 * MANY, what, why=RANKS)
    late = sum(not transfer.waits for transfer in link.sent)
    expect(not late, f"{name} has returned without waiting for {late} sends", why=RANKS)


@task("20.3")
def test_collectives_of_many_calls(part: ModuleType) -> None:
    """Sums and gathered tensors are made for their call, and nothing is left behind."""
    link = LoneLink(1, 3)
    ring = lent_ring(part, link)  # type: ignore[arg-type]

    def on(name: str, number: int) -> Any:
        link.sent.clear()
        return getattr(ring, name)(drawn(2, 3, seed=number))

    def gather_chunks(number: int) -> Tensor:
        x = drawn(6, seed=number)
        link.sent.clear()
        ring.gather_chunks(x)
        return x

    expect_calls_apart(
        {
            "gather_chunks": gather_chunks,
            "all_gather": lambda n: on("all_gather", n),
            "all_reduce": lambda n: on("all_reduce", n),
        }
    )


@task("20.4")
def test_sums_of_many_calls(part: ModuleType) -> None:
    """A split product is made for its call, and nothing is left behind."""
    weight, bias = drawn(3, 4, seed=1), drawn(3, seed=2)
    split = part.RowParallel(lambda x: x @ weight.t(), bias, LoneGroup())
    expect_calls_apart({"RowParallel": lambda n: split(drawn(2, 4, seed=n))})


@task("20.4")
def test_a_bias_that_is_loaded_late(part: ModuleType) -> None:
    """A bias may be loaded after the split product was made: calls add what it holds then."""
    for calls in (0, 1):
        start_script()
        bias = torch.zeros(3)
        split = part.RowParallel(lambda x: x, bias, LoneGroup())
        for _ in range(calls):
            split(torch.zeros(1, 3))
        bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
        earlier = " and called once" if calls else ""
        note(
            f"# RowParallel is made{earlier} with a bias of 0 0 0, which is 1 2 3 in the next call"
        )
        what = "the result of RowParallel for zeros"
        # Two ranks like this one: a bias that one of them adds before the sum comes twice.
        got = split(torch.zeros(1, 3)).tolist()
        expect(got in ([[1.0, 2.0, 3.0]], [[2.0, 4.0, 6.0]]), f"{what}: {got}", why=LOADED)


@task("20.5")
def test_a_table_that_is_loaded_late(part: ModuleType) -> None:
    """A table may be loaded after the embedding was made: calls look up what it holds then."""
    for calls in (0, 1):
        start_script()
        table = torch.zeros(4, 2)
        embed = part.VocabEmbedding(table, 8, LoneGroup())
        for _ in range(calls):
            embed(torch.tensor([11]))
        table.copy_(drawn(4, 2, seed=1))
        called = "called once, and loaded then" if calls else "loaded before it is called"
        note(f"# VocabEmbedding is made with a table of zeros, {called}")
        what = "row 3 of the table, twice, as of two ranks with the same"
        got = embed(torch.tensor([11]))[0].tolist()
        expect_equal(got, (2 * table[3]).tolist(), what, why=LOADED)


@task("20.5")
def test_embeddings_of_many_calls(part: ModuleType) -> None:
    """Embeddings are made for their call, and nothing is left behind."""
    embed = part.VocabEmbedding(drawn(500, 3, seed=1), 500, LoneGroup())
    expect_calls_apart({"VocabEmbedding": lambda n: embed(torch.tensor([2, 500 + n, 999]))})


@task("20.8")
def test_a_thousand_rows(part: ModuleType) -> None:
    """A step may have more than a thousand rows, of more than 256 tokens each."""
    runs = cut_by(part, [1] * 100, 50)
    what = "tokens of the largest of at most 50 runs of 100 rows with a token each"
    expect_equal(max(map(len, runs)), 2, what, why=BEST)
    got = cut_by(part, [LATE] * MANY, 2)
    largest = max(map(len, got)) * LATE
    right = -(-MANY // 2) * LATE
    expect_equal(largest, right, f"tokens of the larger run of {MANY} rows", why=f"{ALL} {BEST}")


@task("20.8")
def test_cuts_of_many_calls(part: ModuleType) -> None:
    """Runs are made for their call, and nothing is left behind."""
    pipeline = part.Pipeline(LoneLink(0, 2))
    rows = ([3, 1, 2, 2], [1, 1, 5], [2, 2, 2, 2])
    expect_calls_apart({"microbatches": lambda n: pipeline.microbatches(rows[n - 1], 2)})
    fresh = count(1000)
    expect_keeps_nothing(lambda: pipeline.microbatches([next(fresh), 1, 2], 2), "microbatches")
    note("pipeline.microbatches((3, 1, 2, 2), 2)    # a tuple")
    got = pipeline.microbatches((3, 1, 2, 2), 2)
    expect_equal(got, [range(2), range(2, 4)], "the runs of the rows in a tuple")


def run(part: ModuleType, link: LoneLink, count: int) -> Any:
    """Microbatches of one token through a stage."""
    note(f"# stage {link.rank} of {link.size}, {count} microbatches of 1 token")

    def compute(index: int, given: Tensor | None) -> Tensor:
        return torch.full((1,), float(index))

    return part.Pipeline(link).run([1] * count, compute, lambda tokens: torch.empty(tokens))


@task("20.9")
def test_a_thousand_microbatches(part: ModuleType) -> None:
    """A stage passes on more than a thousand microbatches, and waits until each is sent."""
    link = LoneLink(0, 2)
    run(part, link, MANY)
    computed = f"microbatches that were sent, of {MANY}"
    expect_equal(len(link.sent), MANY, computed, why=ALL_MICROBATCHES)
    late = sum(not transfer.waits for transfer in link.sent)
    why = "`run` may return when every send is over, however many there are."
    expect(not late, f"run has returned without waiting for {late} of {MANY} sends", why=why)


@task("20.9")
def test_a_late_stage(part: ModuleType) -> None:
    """The last stage is known by its number, and so is the last microbatch, also beyond 256."""
    link = LoneLink(LATE, LATE + 1)
    got = run(part, link, LATE)
    why = f"{LAST_ONE} Numbers are compared with ==: `is` asks whether two objects are one."
    what = f"results of the last of {LATE + 1} stages"
    results = [int(x) for x in got]
    expect_equal(results, list(range(LATE)), what, why=why if not results else "")
    expect_equal(len(link.sent), 0, f"sends of the last of {LATE + 1} stages", why=why)


@task("20.9")
def test_stages_of_many_calls(part: ModuleType) -> None:
    """Results are made for their call, and nothing is left behind."""
    link = LoneLink(0, 1)
    pipeline = part.Pipeline(link)

    def call(number: int) -> Any:
        return pipeline.run([2, 2], lambda index, _: torch.full((2,), number + index), torch.empty)

    expect_calls_apart({"run": call})
    for rank in (0, 1, 2):
        end = LoneLink(rank, 3)
        stage = part.Pipeline(end)

        def pass_on(stage: Any = stage, end: LoneLink = end) -> None:
            end.sent.clear()
            stage.run([1] * 8, lambda index, _: torch.full((1,), 1.0), torch.empty)

        start_script()
        expect_nothing_is_kept({f"run of stage {rank} of 3": pass_on})
