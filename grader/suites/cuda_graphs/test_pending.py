"""Task 17.3: the step on the device, from the token that it drew before to the one that it draws."""

from typing import Any

from grader.kit import expect, expect_equal, task
from grader.suites.cuda_graphs.bench import Bench, memory_of
from solutions.cuda_graphs import Recording

GATHER = (
    "Row i computes the token that its seat drew last: `last_tokens` by the seats in the buffer, not "
    "by row, and not by way of the host."
)
SCATTER = (
    "What is drawn becomes the last token of the row's seat, on the device, so that the next step "
    "finds it there. Each draw is counted once, or the next one draws with the same noise."
)
TABLES = (
    "A block that is new in this step is entered before attention reads the tables: the token of this "
    "step is stored there, and is among the keys."
)
SICK = (
    "-1 says that the row is not finite; the host is told. As a token it would be an index outside of "
    "the embedding, so the seat keeps 0."
)
PADDED = (
    "A row of padding computes like any other, for the seat of nobody: no other seat may change."
)


def padded_of(part: Any, bench: Bench, size: int) -> Any:
    return part.PaddedStep(size, bench.machine, memory_of(size))


@task("17.3")
def test_the_token_of_the_seat(part: Any) -> None:
    """Each row computes the last token of its seat, whichever seats are in the step."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, 3)
        for seats in ((0, 1, 2), (2, 0, 1), (7, 4, 9)):
            step = bench.step(*seats)
            logits, _ = bench.eager(step)
            bench.upload(padded, step)
            bench.expect_rows(padded.forward(), logits, "the logits", GATHER)
            bench.settle()
            with bench.device.aside():
                bench.machine.last_tokens.copy_(bench.plain.last_tokens)


@task("17.3")
def test_the_drawn_token_is_the_next_one(part: Any) -> None:
    """A drawn token is its seat's last one, and counted; the next step computes with it."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, 2)
        for _ in range(3):
            step = bench.step(5, 3)
            _, drawn = bench.eager(step)
            bench.upload(padded, step)
            bench.expect_rows(padded.draw(padded.forward()), drawn, "the draws", SCATTER)
            bench.expect_state(SCATTER)


@task("17.3")
def test_new_blocks(part: Any) -> None:
    """A block that is new is in the table before the step's own token is stored and read."""
    bench = Bench((4, 7, 8))
    with bench.running():
        padded = padded_of(part, bench, 3)
        for _ in range(6):
            step = bench.step(0, 1, 2)
            logits, _ = bench.eager(step)
            bench.upload(padded, step)
            got = padded.forward()
            bench.expect_rows(got, logits, f"the logits of step {step.step}", TABLES)
            padded.draw(got)
            bench.expect_state(TABLES)


@task("17.3")
def test_padding_changes_no_seat(part: Any) -> None:
    """Rows of padding draw and store for nobody."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, 8)
        for seats in ((1,), (1, 6), (0, 6, 1)):
            step = bench.step(*seats)
            logits, drawn = bench.eager(step)
            bench.upload(padded, step)
            got = padded.forward()
            n = len(seats)
            bench.expect_rows(got[:n], logits, "the logits", PADDED)
            bench.expect_rows(padded.draw(got)[:n], drawn, "the draws", PADDED)
            bench.expect_state(PADDED)


@task("17.3")
def test_a_row_that_is_not_finite(part: Any) -> None:
    """A row that drew -1 says so, and its seat's last token is 0."""
    bench = Bench()
    for machine in (bench.machine, bench.plain):
        machine.sick[4] = True
    with bench.running():
        padded = padded_of(part, bench, 2)
        step = bench.step(2, 4)
        _, drawn = bench.eager(step)
        bench.upload(padded, step)
        bench.expect_rows(padded.draw(padded.forward()), drawn, "the draws", SICK)
        expect_equal(drawn[1], -1, "the draw of seat 4")
        bench.expect_state(SICK)


@task("17.3")
def test_may_be_captured(part: Any) -> None:
    """A step can be recorded: no part of it waits for the device, or brings memory of the host."""
    bench = Bench()
    with bench.running() as device:
        recording = Recording(
            padded_of(part, bench, 4), device, device.pool(), bench.machine.nobody
        )
        for seats in ((3, 8), (8, 0, 3, 1), (8,)):
            step = bench.step(*seats)
            logits, drawn = bench.eager(step)
            bench.upload(recording, step)
            n = len(seats)
            got = recording.forward()[:n]
            bench.expect_rows(got, logits, "the logits of a replay", GATHER)
            bench.expect_rows(recording.draw(got)[:n], drawn, "the draws of a replay", SCATTER)
        bench.expect_state(SCATTER)
        expect(device.waits <= 1, f"the host waited {device.waits - 1} times for replayed steps")
