"""Task 17.5: how a step comes to its graph."""

import random
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import Bench, expect_unchanged, lent
from grader.suites.cuda_graphs.rules import FIXED

ROWS = "The caller has n requests: rows of padding are no answer to anybody."
OTHER_MEMORY = (
    "The copy is queued, and reads pinned memory when the device comes to it. Until then that memory "
    "belongs to the copy: each step needs other memory, or has to wait for the one before."
)
NO_WAIT = (
    "A copy from pinned memory with non_blocking=True is queued like a kernel. Any other waits for the "
    "device: then the next step cannot be sent while this one runs."
)
WHOLE_TABLES = (
    "The buffer has room for as many new entries as rows. A request that comes back from the host "
    "brings its whole table: then all entries go by `extend_tables`, before the step."
)
SENDERS = "The step is the sender's: what differs from it goes into a StepInput of its own."
SMALLEST = "Each row costs: a step takes the smallest size that holds it, and its entries go along."
ONE_UPLOAD = "One copy of one array: each copy costs the device microseconds, however short it is."


def steps_of(part: Any, bench: Bench, sizes: list[int], *, records: bool = True) -> Any:
    device = bench.device
    note(f"DecodeSteps of sizes {sizes}{'' if records else ', not recorded'}")
    pool = device.pool() if records else None
    return part.DecodeSteps(bench.machine, device, sizes, records=records, pool=pool)


def carry_out(bench: Bench, steps: Any, *seats: int, why: str = FIXED, **more: Any) -> None:
    step = bench.step(*seats, **more)
    logits, drawn = bench.eager(step)
    before = deepcopy(step)
    got = steps.forward(step)
    expect_unchanged(step, before, "forward", SENDERS)
    bench.expect_rows(got, logits, f"the logits of step {step.step}", why)
    bench.expect_rows(steps.draw(len(seats)), drawn, f"the draws of step {step.step}", why)


@task("17.5")
def test_rows_of_the_step_alone(part: Any) -> None:
    """`forward` and `draw` return n rows for n seats, whatever the size."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        steps = steps_of(part, bench, [2, 8])
        for n in (1, 2, 3, 5, 8):
            step = bench.step(*range(n))
            bench.eager(step)
            expect_equal(len(steps.forward(step)), n, f"rows of the logits of {n} seats", why=ROWS)
            expect_equal(len(steps.draw(n)), n, f"draws of {n} seats", why=ROWS)


@task("17.5")
def test_each_step_reads_its_own_upload(part: Any) -> None:
    """Steps of the same size and of others compute their own seats, each time."""
    for records in (False, True):
        bench = Bench((1, 3, 4, 9, 2))
        with bench.running(), lent(part, "17.5"):
            steps = steps_of(part, bench, [1, 2, 4, 6], records=records)
            for seats in ((0, 1), (2, 3), (4,), (0, 1, 2, 3, 4), (3, 1), (0, 4, 2)):
                carry_out(bench, steps, *seats)
            bench.expect_state(FIXED)


@task("17.5")
def test_the_smallest_size(part: Any) -> None:
    """A step takes the smallest size that holds it, and no larger one."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        steps = part.DecodeSteps(bench.machine, bench.device, [1, 2, 4, 8], records=False)
        for n in (1, 2, 3, 4, 5, 8):
            bench.machine.seen.clear()
            step = bench.step(*range(n))
            bench.eager(step)
            steps.forward(step)
            right = min(size for size in (1, 2, 4, 8) if size >= n)
            rows = {rows for _, rows in bench.machine.seen}
            expect_equal(rows, {right}, f"rows that a step of {n} seats computes", why=SMALLEST)
            steps.draw(n)
            bench.settle()


@task("17.5")
def test_two_steps_in_the_queue(part: Any) -> None:
    """A step that is sent while others are queued does not disturb their uploads, and waits for none."""
    bench = Bench()
    with bench.running() as device, lent(part, "17.5"):
        steps = steps_of(part, bench, [4])
        carry_out(bench, steps, 0, 1, why=OTHER_MEMORY)  # by now the size is recorded
        waits, before = device.waits, device.num_queued
        sent = []
        for seats in ((0, 1, 2), (3, 1), (2, 0, 3, 5)):
            step = bench.step(*seats)
            _, drawn = bench.eager(step)
            steps.forward(step)
            got = steps.draw(len(seats))
            arrived = device.pinned(len(seats), dtype=got.dtype)
            arrived.copy_(got, non_blocking=True)
            sent.append((arrived, drawn, step.step))
        expect_equal(
            device.waits - waits, 0, "waits of the host in the last three steps", why=NO_WAIT
        )
        expect_equal(
            device.num_queued - before,
            12,
            "copies and replays queued for the last three steps: for each an upload, two replays and a "
            "copy back",
            why=ONE_UPLOAD,
        )
        for arrived, drawn, number in sent:
            bench.expect_rows(arrived, drawn, f"the draws of step {number}", OTHER_MEMORY)
        bench.expect_state(OTHER_MEMORY)


@task("17.5")
def test_more_entries_than_rows(part: Any) -> None:
    """More new table entries than rows are entered by `extend_tables`, and the step is right."""
    bench = Bench()
    with bench.running(), lent(part, "17.5"):
        steps = steps_of(part, bench, [1, 2, 4])
        entries = [(9, column, 50 + column) for column in range(3)]
        carry_out(bench, steps, 0, 1, entries=entries, why=WHOLE_TABLES)
        expect_equal(bench.machine.entered, 1, "calls of extend_tables", why=WHOLE_TABLES)
        carry_out(bench, steps, 0, 1, entries=[(9, 3, 57), (9, 4, 58)], why=WHOLE_TABLES)
        carry_out(bench, steps, 3, entries=[(8, 1, 60)], why=WHOLE_TABLES)
        entries = [(8, column, 61 + column) for column in (2, 3, 4, 5)]
        carry_out(bench, steps, 0, 1, 3, entries=entries, why=WHOLE_TABLES)
        expect_equal(
            bench.machine.entered,
            1,
            "calls of extend_tables, when the entries of three steps fit",
            why="It is a launch and an upload of its own: as many entries as rows go with the step.",
        )
        bench.expect_state(WHOLE_TABLES)


@task("17.5")
def test_recorded_when_first_needed(part: Any) -> None:
    """A size that is not ready is recorded when a step needs it, and the step is right."""
    bench = Bench()
    with bench.running() as device, lent(part, "17.5"):
        steps = part.DecodeSteps(bench.machine, device, [1, 2, 4], records=True, pool=device.pool())
        for seats in ((0, 1), (5, 3, 1), (4,), (0, 2)):
            carry_out(bench, steps, *seats)
        bench.expect_state(FIXED)
        expect_equal(
            len(device.captured), 6, "graphs recorded", why="Two for each of the three sizes."
        )


@task("17.5")
def test_any_steps(part: Any) -> None:
    """Any steps, one after the other: the tokens and logits of eager steps, to the last bit."""
    any_steps(part)


@examples(8)
@given(seed=st.integers(0, 10**6), sizes=st.sampled_from([[1, 2, 4, 8], [3, 8], [8], [1, 7, 8]]))
def any_steps(part: Any, seed: int, sizes: list[int]) -> None:
    rng = random.Random(seed)
    bench = Bench([rng.randint(1, 9) for _ in range(9)])
    with bench.running(), lent(part, "17.5"):
        steps = steps_of(part, bench, sizes, records=bool(seed % 4))
        for _ in range(6):
            seats = rng.sample(range(9), rng.randint(1, 8))
            carry_out(bench, steps, *seats)
        bench.expect_state(FIXED)
        expect(True, "")
    start_script()
