"""Task 17.5: how a step comes to its graph."""

import random
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import Bench, alone, expect_unchanged, lent
from grader.suites.cuda_graphs.rules import FIXED
from grader.suites.cuda_graphs.waited import expect_no_wait
from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

ROWS = "The caller has n requests: rows of padding are no answer to anybody."
OWN_TOKENS = (
    "The caller gets the state of each token of the step, and of no other: the decodes' rows, and the "
    "chunks' from row `size.decodes` on. Rows of padding, also those between the zones, are not among "
    "them."
)
OTHER_MEMORY = (
    "The copy is queued, and reads pinned memory when the device comes to it. Until then that memory "
    "belongs to the copy: each step needs other memory, or has to wait for the one before."
)
WHOLE_TABLES = (
    "The buffer has room for as many new entries as rows. A request that comes back from the host "
    "brings its whole table: then all entries go by `extend_tables`, before the step."
)
BACK = (
    "A request that comes back reads its whole table in this step. Entries that do not go with the "
    "upload have to be in the tables before the step is queued."
)
OF_ITS_OWN = "It is a launch and an upload of its own: as many entries as rows go with the step"
SENDERS = "The step is the sender's: what differs from it goes into a StepInput of its own."
SMALLEST = "Each row costs: a step takes the smallest size that holds it, and its entries go along."
ONE_UPLOAD = "One copy of one array: each copy costs the device microseconds, however short it is."


def runner_of(part: Any, bench: Bench, sizes: list[Size], *, records: bool = True) -> Any:
    device = bench.device
    texts = [tuple(size) for size in sizes]
    note(f"GraphRunner of sizes {texts}{'' if records else ', not recorded'}")
    pool = device.pool() if records else None
    return part.GraphRunner(bench.machine, device, sizes, records=records, pool=pool)


def carry_out(bench: Bench, runner: Any, *seats: int, why: str = FIXED, **more: Any) -> None:
    """A step of decodes alone, drawn by the runner."""
    step = bench.step(*seats, **more)
    hidden, drawn = bench.eager(step)
    before = deepcopy(step)
    got = runner.forward(step)
    expect_unchanged(step, before, "forward", SENDERS)
    bench.expect_rows(got, hidden, f"the hidden states of step {step.step}", why)
    bench.expect_rows(runner.draw(len(seats)), drawn, f"the draws of step {step.step}", why)


def carry_out_chunks(bench: Bench, runner: Any, step: StepInput, why: str = OWN_TOKENS) -> None:
    """A step with chunks, drawn as the worker does."""
    hidden, drawn = bench.eager(step)
    before = deepcopy(step)
    got = runner.forward(step)
    expect_unchanged(step, before, "forward", SENDERS)
    if told := bench.misplaced(step, got, hidden):
        why = f"{told}The caller gets the states in the step's order: decodes, then chunks."
    bench.expect_rows(got, hidden, f"the hidden states of step {step.step}", why)
    expect_equal(bench.draw(step, got), drawn, f"the draws of step {step.step}", why=why)


@task("17.5")
def test_rows_of_the_step_alone(part: Any) -> None:
    """`forward` and `draw` return n rows for n seats, whatever the size."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, alone(2, 8))
        for n in (1, 2, 3, 5, 8):
            step = bench.step(*range(n))
            bench.eager(step)
            got = len(runner.forward(step))
            expect_equal(got, n, f"rows of the hidden states of {n} seats", why=ROWS)
            expect_equal(len(runner.draw(n)), n, f"draws of {n} seats", why=ROWS)


@task("17.5")
def test_each_step_reads_its_own_upload(part: Any) -> None:
    """Steps of the same size and of others compute their own seats, each time."""
    for records in (False, True):
        bench = Bench((1, 3, 4, 9, 2))
        with bench.running(), lent(part, "17.5"):
            runner = runner_of(part, bench, alone(1, 2, 4, 6), records=records)
            for seats in ((0, 1), (2, 3), (4,), (0, 1, 2, 3, 4), (3, 1), (0, 4, 2)):
                # A step that is right only where nothing is recorded has lost its address.
                carry_out(bench, runner, *seats, why=FIXED if records else "")
            bench.expect_state(FIXED)


@task("17.5")
def test_the_smallest_size(part: Any) -> None:
    """A step takes the smallest size that holds it, and no larger one."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, alone(1, 2, 4, 8), records=False)
        for n in (1, 2, 3, 4, 5, 8):
            bench.machine.seen.clear()
            step = bench.step(*range(n))
            bench.eager(step)
            runner.forward(step)
            right = min(size for size in (1, 2, 4, 8) if size >= n)
            rows = {rows for _, rows in bench.machine.seen}
            expect_equal(rows, {right}, f"rows that a step of {n} seats computes", why=SMALLEST)
            runner.draw(n)
            bench.settle()


@task("17.5")
def test_two_steps_in_the_queue(part: Any) -> None:
    """A step that is sent while others are queued does not disturb their uploads, and waits for none."""
    bench = Bench()
    with bench.running() as device, lent(part, "17.5"):
        runner = runner_of(part, bench, alone(4))
        carry_out(bench, runner, 0, 1, why=OTHER_MEMORY)  # by now the size is recorded
        waits, before, launches = len(device.waited), device.num_queued, device.launches
        sent = []
        for seats in ((0, 1, 2), (3, 1), (2, 0, 3, 5)):
            step = bench.step(*seats)
            _, drawn = bench.eager(step)
            runner.forward(step)
            got = runner.draw(len(seats))
            arrived = device.pinned(len(seats), dtype=got.dtype)
            arrived.copy_(got, non_blocking=True)
            sent.append((arrived, drawn, step.step))
        expect_no_wait(device.waited[waits:], "in the last three steps")
        expect_equal(
            device.num_queued - before,
            12,
            "copies and replays queued for the last three steps: for each an upload, two replays and a "
            "copy back",
            why=ONE_UPLOAD,
        )
        expect_equal(
            device.launches - launches,
            0,
            "kernels launched beside the replays, of steps of decodes alone",
            why="Each launch costs the host as much as the whole replay. A slice is no launch.",
        )
        for arrived, drawn, number in sent:
            bench.expect_rows(arrived, drawn, f"the draws of step {number}", OTHER_MEMORY)
        bench.expect_state(OTHER_MEMORY)


MANY_SIZES = [
    *alone(1, 2, 4),
    Size(0, 8, 4),
    Size(8),
    Size(4, 8, 4),
    Size(8, 8, 4),
    Size(4, 16, 6),
    Size(8, 16, 6),
]


@task("17.5")
def test_states_of_the_tokens_of_the_step_alone(part: Any) -> None:
    """Of a step with chunks `forward` returns the states of its tokens, in their order."""
    bench = Bench((1, 3, 4))
    for seat, tokens in ((5, 11), (6, 1), (7, 4)):
        bench.begin(seat, tokens)
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, MANY_SIZES)
        carry_out_chunks(bench, runner, bench.step(0, chunks={5: 5}))
        carry_out_chunks(bench, runner, bench.step(0, 1, 2, chunks={5: 4, 7: 4}))
        carry_out_chunks(bench, runner, bench.step(6, chunks={5: 2}))
        drafts = {1: (3, 1, 2), 7: (0,)}
        step = bench.step(0, 5, 6, chunks={1: 4, 7: 2}, drafts=drafts)
        carry_out_chunks(bench, runner, step)
        bench.expect_state(OWN_TOKENS)
    bench = Bench((1, 3))
    bench.begin(4, 9)
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, [Size(3, 8, 3)])
        carry_out_chunks(bench, runner, bench.step(chunks={4: 4}))  # no decodes, and room for some
        carry_out_chunks(bench, runner, bench.step(1, 0, chunks={4: 5}))
        bench.expect_state(OWN_TOKENS)


@task("17.5")
def test_more_entries_than_rows(part: Any) -> None:
    """More new table entries than rows are entered by `extend_tables`, and the step is right."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, alone(1, 2, 4))
        entries = [(9, column, 50 + column) for column in range(3)]
        carry_out(bench, runner, 0, 1, entries=entries, why=WHOLE_TABLES)
        expect_equal(bench.machine.entered, 1, "calls of extend_tables", why=WHOLE_TABLES)
        for seats, rows, entries in (
            ((0, 1), 2, [(9, 3, 57), (9, 4, 58)]),
            ((3,), 1, [(8, 1, 60)]),
            ((0, 1, 3), 4, [(8, column, 61 + column) for column in (2, 3, 4, 5)]),
        ):
            before = bench.machine.entered
            carry_out(bench, runner, *seats, entries=entries, why=WHOLE_TABLES)
            expect_equal(
                bench.machine.entered - before,
                0,
                f"calls of extend_tables in step {bench.num_steps}, whose size has {rows} rows, for "
                f"{len(entries)} new table entries",
                why=f"{OF_ITS_OWN}, and its size has {rows}.",
            )
        bench.expect_state(WHOLE_TABLES)


@task("17.5")
def test_a_request_that_returns_is_in_the_step(part: Any) -> None:
    """The table of a request that comes back is there when its own token is computed; with chunks the
    size has an entry for each row."""
    bench = Bench((17, 2))
    bench.begin(4, 20)
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, [*alone(1, 2), Size(1, 8, 2)])
        for seats, back in (((0, 1), 0), ((0,), 0)):
            entries = bench.come_back(back)
            carry_out(bench, runner, *seats, entries=entries, why=BACK)
        before = bench.machine.entered
        step = bench.step(
            1, chunks={4: 8}, entries=[(9, column, 60 + column) for column in range(4)]
        )
        carry_out_chunks(bench, runner, step, WHOLE_TABLES)
        what = (
            f"calls of extend_tables for {len(step.table_seats)} new entries, in a size of 9 rows"
        )
        expect_equal(bench.machine.entered - before, 0, what, why=f"{OF_ITS_OWN}.")
        bench.expect_state(WHOLE_TABLES)


@task("17.5")
def test_recorded_when_first_needed(part: Any) -> None:
    """A size that is not ready is recorded when a step needs it, and the step is right."""
    bench = Bench()
    with bench.running() as device, lent(part, "17.5"):
        runner = runner_of(part, bench, alone(1, 2, 4))
        for seats in ((0, 1), (5, 3, 1), (4,), (0, 2)):
            carry_out(bench, runner, *seats)
        bench.expect_state(FIXED)
        expect_equal(
            len(device.captured), 6, "graphs recorded", why="Two for each of the three sizes."
        )


@task("17.5")
def test_a_single_token_that_was_sent(part: Any) -> None:
    """A step of single tokens, of which control has sent one, computes that one."""
    bench = Bench((1, 3))
    bench.begin(4, 1)
    bench.begin(5, 3)
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, MANY_SIZES)
        why = (
            "The last token of a prompt may be computed alone. The device has not drawn it: the step "
            "takes a size with chunks, whose tokens are uploaded."
        )
        carry_out_chunks(bench, runner, bench.step(0, 4, 1), why)
        carry_out_chunks(bench, runner, bench.step(chunks={5: 2}), why)
        carry_out_chunks(bench, runner, bench.step(5), why)
        bench.expect_state(why)


@task("17.5")
def test_any_steps(part: Any) -> None:
    """Any steps, one after the other: the tokens and states of eager steps, to the last bit."""
    any_steps(part)


@examples(8)
@given(
    seed=st.integers(0, 10**6), sizes=st.sampled_from([(1, 2, 4, 8), (3, 8), (8,), (1, 7, 8), ()])
)
def any_steps(part: Any, seed: int, sizes: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    bench = Bench([rng.randint(1, 9) for _ in range(9)])
    prompts = {9: rng.randint(2, 14), 10: rng.randint(1, 9)}
    for seat, tokens in prompts.items():
        bench.begin(seat, tokens)
    with bench.running(), lent(part, "17.5"):
        runner = runner_of(part, bench, alone(*sizes) or MANY_SIZES, records=bool(seed % 4))
        for _ in range(6):
            seats = rng.sample(range(9), rng.randint(1, 8))
            shares = [] if sizes else [seat for seat, left in prompts.items() if left]
            if not shares or rng.random() < 0.3:
                carry_out(bench, runner, *seats)
                continue
            counts = {seat: min(prompts[seat], rng.randint(1, 7)) for seat in shares}
            for seat, count in counts.items():
                prompts[seat] -= count
            seats = [*seats[:3], *(seat for seat, count in counts.items() if count == 1)]
            chunks = {seat: count for seat, count in counts.items() if count > 1}
            carry_out_chunks(bench, runner, bench.step(*seats, chunks=chunks))
        bench.expect_state(FIXED)
        expect(True, "")
    start_script()
