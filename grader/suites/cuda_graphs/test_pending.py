"""Task 17.3: the step on the device, from the token that it drew before to the one that it draws."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, task
from grader.suites.cuda_graphs.bench import Bench, memory_of
from grader.suites.cuda_graphs.tokens import expect_states
from grader.suites.cuda_graphs.waited import expect_no_wait
from solutions.cuda_graphs import Recording
from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

SCATTER = (
    "What is drawn becomes the last token of the row's seat, on the device, so that the next step "
    "finds it there."
)
COUNTED = "Each draw is counted once, or the next one draws with the same noise."
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
FEW = "Each operation takes the device two microseconds, however little it does, in every step."
CONVERTED = (
    "What was uploaded is one array: one conversion gives all of its parts as int64, and a part is a "
    "view."
)
BY_ROW = "`{name}` runs for each row; one call takes all rows."


WHOLE = "Draws are int64, as `sample` gives them: an index of an embedding, and of `last_tokens`."


def only_with_new_blocks(bench: Bench, step: StepInput, got: Any, hidden: Tensor) -> bool:
    """Whether no row is wrong but those whose seats have new blocks."""
    bench.settle()
    with bench.device.aside():
        if not isinstance(got, Tensor) or got.shape != hidden.shape:
            return False
        wrong = (got != hidden).any(1).nonzero().flatten().tolist()
    return {int(step.seats[row]) for row in wrong} <= set(step.table_seats.tolist())


def why_new(bench: Bench, step: StepInput) -> str:
    """What `forward` made of a step's new entries."""
    seats, columns, blocks = (
        part.tolist() for part in (step.table_seats, step.table_columns, step.table_blocks)
    )
    with bench.device.aside():
        tables = bench.machine.tables.tolist()
    for seat, column, block in zip(seats, columns, blocks, strict=True):
        if tables[seat][column] != block:
            return (
                f"After `forward` entry [{seat}, {column}] of the machine's tables is "
                f"{tables[seat][column]}, not {block}: it is written in place, not into a copy, and "
                "before attention reads it."
            )
    return TABLES


def why_kept(bench: Bench, step: StepInput, drawn: Any) -> str:
    """Which seats hold what was drawn, if they are those of the rows' numbers."""
    bench.settle()
    seats, n = step.seats.tolist(), len(step.seats)
    with bench.device.aside():
        held, tokens = bench.machine.last_tokens.tolist(), torch.as_tensor(drawn).tolist()
    if held[:n] != tokens or seats == list(range(n)) or [held[seat] for seat in seats] == tokens:
        return SCATTER
    return (
        f"The tokens {tokens} stand at seats {list(range(n))}, the numbers of the rows. They were drawn "
        f"for seats {seats}."
    )


def padded_of(part: Any, bench: Bench, size: Size) -> Any:
    return part.PaddedStep(size, bench.machine, memory_of(size))


@task("17.3")
def test_the_token_of_the_seat(part: Any) -> None:
    """Each row computes the last token of its seat, whichever seats are in the step."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, Size(3))
        for seats in ((2, 0, 1), (0, 1, 2), (7, 4, 9)):
            step = bench.step(*seats)
            hidden, _ = bench.eager(step)
            bench.upload(padded, Size(3), step)
            expect_states(bench, Size(3), step, padded.forward(), hidden)
            bench.settle()
            with bench.device.aside():
                bench.machine.last_tokens.copy_(bench.plain.last_tokens)


@task("17.3")
def test_the_drawn_token_is_the_next_one(part: Any) -> None:
    """A drawn token is its seat's last one, and counted; the next step computes with it."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, Size(2))
        for _ in range(3):
            step = bench.step(5, 3)
            _, drawn = bench.eager(step)
            bench.upload(padded, Size(2), step)
            got = padded.draw(padded.forward())
            bench.expect_rows(got, drawn, "the draws", "")
            bench.expect_state(why_kept(bench, step, drawn), COUNTED)
            expect_equal(got.dtype, torch.int64, "the dtype of the draws", why=WHOLE)


@task("17.3")
def test_new_blocks(part: Any) -> None:
    """A block that is new is in the table before the step's own token is stored and read."""
    bench = Bench((4, 7, 8))
    with bench.running():
        padded = padded_of(part, bench, Size(3))
        for _ in range(6):
            step = bench.step(0, 1, 2)
            hidden, _ = bench.eager(step)
            bench.upload(padded, Size(3), step)
            got = padded.forward()
            is_of_new = only_with_new_blocks(bench, step, got, hidden)
            expect_states(bench, Size(3), step, got, hidden, why_new(bench, step) * is_of_new)
            padded.draw(got)
            bench.expect_state(TABLES)


@task("17.3")
def test_padding_changes_no_seat(part: Any) -> None:
    """Rows of padding draw and store for nobody."""
    bench = Bench()
    with bench.running():
        padded = padded_of(part, bench, Size(8))
        for seats in ((1,), (1, 6), (0, 6, 1)):
            step = bench.step(*seats)
            hidden, drawn = bench.eager(step)
            bench.upload(padded, Size(8), step)
            got = padded.forward()
            n = len(seats)
            expect_states(bench, Size(8), step, got[:n], hidden, PADDED)
            bench.expect_rows(padded.draw(got)[:n], drawn, "the draws", PADDED)
            bench.expect_state(PADDED)


@task("17.3")
def test_a_row_that_is_not_finite(part: Any) -> None:
    """A row that drew -1 says so, and its seat's last token is 0."""
    bench = Bench()
    for machine in (bench.machine, bench.plain):
        machine.sick[4] = True
    with bench.running():
        padded = padded_of(part, bench, Size(2))
        step = bench.step(2, 4)
        _, drawn = bench.eager(step)
        bench.upload(padded, Size(2), step)
        bench.expect_rows(padded.draw(padded.forward()), drawn, "the draws", SICK)
        expect_equal(drawn[1], -1, "the draw of seat 4")
        bench.expect_state(SICK)


@task("17.3")
def test_may_be_captured(part: Any) -> None:
    """A step can be recorded: no part of it waits for the device, or brings memory of the host."""
    bench = Bench()
    with bench.running() as device:
        recording = Recording(
            padded_of(part, bench, Size(4)), device, device.pool(), bench.machine.nobody
        )
        for seats in ((3, 8), (8, 0, 3, 1), (8,)):
            step = bench.step(*seats)
            hidden, drawn = bench.eager(step)
            bench.upload(recording, Size(4), step)
            n = len(seats)
            got = recording.forward()[:n]
            expect_states(bench, Size(4), step, got, hidden)
            bench.expect_rows(recording.draw(got)[:n], drawn, "the draws of a replay", SCATTER)
        bench.expect_state(SCATTER, COUNTED)
        # One wait may be the recording's own.
        if device.waits > 1:
            expect_no_wait(device.waited[1:], "in replayed steps")


def chunks_and_check(bench: Bench, carries: Any, size: Size, step: Any) -> None:
    """A step with chunks: the states of its tokens, wherever they stand among the rows."""
    hidden, drawn = bench.eager(step)
    bench.upload(carries, size, step)
    got = carries.forward()
    expect_states(bench, size, step, got, hidden)
    with bench.device.aside():
        states = hidden.clone()
    expect_equal(bench.draw(step, states), drawn, "draws")
    bench.expect_state(PADDED)


@task("17.3")
def test_tokens_that_were_sent(part: Any) -> None:
    """With chunks, tokens are computed as they were sent, single ones too."""
    bench, size = Bench((1, 3)), Size(3, 8, 3)
    for seat, tokens in ((4, 7), (5, 1), (6, 6)):
        bench.begin(seat, tokens)
    with bench.running():
        padded = padded_of(part, bench, size)
        chunks_and_check(bench, padded, size, bench.step(chunks={4: 5}))
        chunks_and_check(bench, padded, size, bench.step(5, chunks={4: 2, 6: 6}))


@task("17.3")
def test_tokens_that_the_device_knows(part: Any) -> None:
    """With chunks, a token that the device has drawn is the last one of its seat: in decodes, and at the
    beginning of a chunk with drafts behind it."""
    bench, size = Bench((1, 3, 2)), Size(3, 8, 3)
    bench.begin(4, 7)
    with bench.running():
        padded = padded_of(part, bench, size)
        chunks_and_check(bench, padded, size, bench.step(0, 2, chunks={4: 5}))
        chunks_and_check(bench, padded, size, bench.step(11, chunks={9: 2}, drafts={9: (5,)}))
        step = bench.step(2, chunks={0: 3, 4: 2}, drafts={0: (9, 0)})
        chunks_and_check(bench, padded, size, step)
        step = bench.step(4, chunks={2: 2, 0: 4}, drafts={2: (30,), 0: (1, 2, 3)})
        chunks_and_check(bench, padded, size, step)


@task("17.3")
def test_with_chunks_it_may_be_captured_too(part: Any) -> None:
    """A step with chunks can be recorded: each replay computes the tokens of its own upload."""
    bench, size = Bench((1, 3, 2)), Size(2, 8, 3)
    for seat, tokens in ((4, 7), (5, 8)):
        bench.begin(seat, tokens)
    with bench.running() as device:
        padded = padded_of(part, bench, size)
        recording = Recording(padded, device, device.pool(), bench.machine.nobody)
        chunks_and_check(bench, recording, size, bench.step(0, chunks={4: 5}))
        chunks_and_check(bench, recording, size, bench.step(chunks={4: 2, 5: 6}))
        step = bench.step(2, 4, chunks={0: 3, 5: 2}, drafts={0: (9, 0)})
        chunks_and_check(bench, recording, size, step)


MOST = {Size(8): (8, 5), Size(8, 8, 3): (12, 0)}
"""Operations that a size's `forward` and `draw` may have, beside the machine's own."""


@task("17.3")
def test_few_operations(part: Any) -> None:
    """`forward` and `draw` put few operations on the device, beside the machine's own."""
    for size, (most_forward, most_draw) in MOST.items():
        bench = Bench((1, 3, 2))
        bench.begin(4, 7)
        with bench.running() as device, own_operations(bench) as names:
            padded = padded_of(part, bench, size)
            step = bench.step(0, 2, chunks={4: 5} if size.chunks else None)
            bench.eager(step)
            bench.upload(padded, size, step)
            bench.settle()
            before = len(names())
            hidden = padded.forward()
            expect_few("forward", size, names()[before:], most_forward)
            if not size.chunks:
                before = len(names())
                padded.draw(hidden)
                expect_few("draw", size, names()[before:], most_draw)
            expect_no_wait(device.waited, "in a step")


def expect_few(method: str, size: Size, names: list[str], most: int) -> None:
    """names: of the operations on the device."""
    counts = Counter(name.strip("_") for name in names)
    texts = [f"{name} {count} times" if count > 1 else name for name, count in counts.most_common()]
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    why = CONVERTED if name == "to_copy" else BY_ROW.format(name=name) if count >= size.rows else ""
    expect(
        len(names) <= most,
        f"`{method}` of {tuple(size)} has {len(names)} operations of its own; {most} are promised: "
        f"{', '.join(texts)}",
        why=f"{FEW} {why}".rstrip(),
    )


@contextmanager
def own_operations(bench: Bench) -> Iterator[Callable[[], list[str]]]:
    """The operations that were put on the device so far, without those of the machine's methods: also of
    methods that a part has looked up once."""
    machine, device = bench.machine, bench.device
    theirs: set[int] = set()

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            before = device.launches
            result = method(*args)
            theirs.update(range(before, device.launches))
            return result

        return call

    with ExitStack() as stack:
        for name in ("hidden", "logits", "sample", "count_draws"):
            method = counted(getattr(machine, name))
            stack.enter_context(patch.object(machine, name, method))
        yield lambda: [name for at, name in enumerate(device.launched) if at not in theirs]
