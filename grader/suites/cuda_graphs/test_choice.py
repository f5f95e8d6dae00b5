"""Task 17.5: which steps are replayed, and in which sizes."""

from typing import Any

import numpy as np

from grader.kit import expect_equal, note, start_script, task
from grader.suites.cuda_graphs.bench import Bench, alone, lent
from yaie.core.contracts.graphs import Size
from yaie.core.step import NewSeats, Pairs, StepInput

GRAMMAR = (
    "A grammar needs no launch of its own: the first graph is replayed, and only the draw waits. The "
    "worker knows of that."
)
NEW_BLOCKS = "New blocks go with the upload, or by `extend_tables`."
MOVES = (
    "Blocks are moved before the step is asked for. Its rows are the same single tokens as without."
)
NEW = (
    "Seats change hands before the step is asked for, so `new` is no reason to refuse it: `starts` and "
    "`num_known` say what each row is."
)


def asked(bench: Bench, seats: list[int], **changed: Any) -> StepInput:
    """A step of single unread tokens of these seats, but for what is changed."""
    ones = np.ones(len(seats), dtype=np.int32)
    given = {
        "starts": bench.machine.num_known[seats] + 3,
        "num_tokens": ones.copy(),
        "samples": ones.astype(np.bool_),
    }
    return StepInput(1, np.array(seats, np.int32), **{**given, **changed})


def noted(bench: Bench, step: StepInput, sizes: list[Size]) -> StepInput:
    """The step, which is written down with what decides about it."""
    start_script()
    seats = step.seats.tolist()
    note(f"GraphRunner of sizes {[tuple(size) for size in sizes]} (decodes, tokens, chunks)")
    note(
        f"a step: seats {seats} from positions {step.starts.tolist()} on, with "
        f"{step.num_tokens.tolist()} tokens, samples {step.samples.tolist()}; control has sent "
        f"{bench.machine.num_known[seats].tolist()} tokens of them"
    )
    return step


def entries(count: int) -> dict[str, Any]:
    """So many new table entries of seat 1."""
    columns = np.arange(count, dtype=np.int32)
    seats = np.ones(count, np.int32)
    return {"table_seats": seats, "table_columns": columns, "table_blocks": columns + 20}


SENT = (
    "The last token of a prompt may be computed alone. The device has not drawn it, so it is uploaded, "
    "which only sizes with chunks read."
)
CHUNK = (
    "A chunk has rows in sizes with chunks alone, and what is sampled there differs from step to "
    "step."
)
DRAFTS = (
    "A token with drafts behind it is a chunk: what counts of them is found out after the step."
)
ASKED = (
    "What a step is asked for besides is computed from the hidden states, which `forward` returns."
)


def move() -> Pairs:
    return np.array([[9, 4]], dtype=np.int64)


def newcomer(seat: int) -> NewSeats:
    """A request with a prompt of 4 tokens takes the seat, as it is after a preemption."""
    one, real = np.ones(1, np.int64), np.ones(1, np.float32)
    return NewSeats(
        seats=np.array([seat], np.int32),
        tokens=np.arange(4, dtype=np.int32),
        num_tokens=np.array([4], np.int32),
        num_prompt_tokens=np.array([4], np.int32),
        temperature=0 * real,
        top_k=0 * one,
        top_p=real,
        min_p=0 * real,
        random_seeds=one,
        steps=0 * one,
    )


ALONE, WITH = "decodes alone", "chunks"
"""Kinds of sizes."""
CASES: dict[str, tuple[dict[str, Any], str, bool, str]] = {
    "tokens that the device drew": ({}, ALONE, True, "It is the step that graphs are made for."),
    "the first unread token of each": (
        {"starts": np.array([4, 1, 6], np.int32)},
        ALONE,
        True,
        "Position num_known is the first that control has not sent: the device has drawn it.",
    ),
    "one new table entry": (entries(1), ALONE, True, NEW_BLOCKS),
    "more new table entries than the largest size has rows": (entries(6), ALONE, True, NEW_BLOCKS),
    "a constrained seat (masked)": ({"masked": True}, ALONE, True, GRAMMAR),
    "a block that is copied": ({"copies": move()}, ALONE, True, MOVES),
    "a block that comes back from the host": ({"swap_in": move()}, ALONE, True, MOVES),
    "a block that goes to the host": ({"swap_out": move()}, ALONE, True, MOVES),
    "a seat that changes hands": ({"new": newcomer(0)}, ALONE, True, NEW),
    "log-probabilities to tell": (
        {"extras": {"logprobs": {"rows": np.array([0], np.int32)}}},
        ALONE,
        True,
        ASKED,
    ),
    "a row that does not sample": (
        {"samples": np.array([True, False, True])},
        ALONE,
        False,
        "Every row of a recorded draw draws, and its seat moves on.",
    ),
    "a token that control has sent": (
        {"starts": np.array([9, 0, 9], np.int32)},
        WITH,
        False,
        SENT,
    ),
    "a chunk at its end": ({"num_tokens": np.array([1, 1, 5], np.int32)}, WITH, False, CHUNK),
    "chunks, the last of a prompt": (
        {"starts": np.array([9, 0, 1], np.int32), "num_tokens": np.array([1, 1, 5], np.int32)},
        WITH,
        False,
        CHUNK,
    ),
    "drafts": (
        {
            "num_tokens": np.array([1, 1, 2], np.int32),
            "drafts": np.array([3], np.int32),
            "num_drafts": np.array([0, 0, 1], np.int32),
        },
        WITH,
        False,
        DRAFTS,
    ),
    "log-probabilities of a prompt": (
        {
            "starts": np.array([9, 9, 0], np.int32),
            "num_tokens": np.array([1, 1, 5], np.int32),
            "extras": {"prompt_logprobs": {"rows": np.array([2], np.int32)}},
        },
        WITH,
        False,
        ASKED,
    ),
}
SIZES = {ALONE: alone(1, 2, 4), WITH: [Size(4, 8, 3)]}


@task("17.5")
def test_steps_that_no_size_holds(part: Any) -> None:
    """A step with more seats, or more tokens of chunks, than any size has rows for is refused."""
    bench = Bench((4, 1, 6))
    none = "A step that no size holds is launched as it is: `takes` is False."
    full = "A size holds a step that fills all of its rows."
    with bench.running(), lent(part, "17.5"):
        sizes = [*SIZES[ALONE], *SIZES[WITH]]
        runner = part.GraphRunner(bench.machine, bench.device, sizes, records=False)
        for n in (1, 4, 5):
            step = noted(bench, asked(bench, list(range(n))), sizes)
            got = bool(runner.takes(step))
            why = full * (n == 4) if n <= 4 else none
            expect_equal(got, n <= 4, f"takes(a step of {n} seats), of at most 4", why=why)
        for tokens in (8, 9):
            counts = np.array([1, 1, tokens], np.int32)
            step = noted(bench, asked(bench, [0, 1, 2], num_tokens=counts), sizes)
            got = bool(runner.takes(step))
            why = full if tokens <= 8 else none
            expect_equal(
                got, tokens <= 8, f"takes(a chunk of {tokens} tokens), of at most 8", why=why
            )


@task("17.5")
def test_which_steps(part: Any) -> None:
    """A step is taken if some size holds it. Sizes of decodes alone hold steps of tokens that the device
    has drawn."""
    bench = Bench((4, 1, 6))
    with bench.running(), lent(part, "17.5"):
        for kinds in ([ALONE], [ALONE, WITH], [WITH]):
            sizes = [size for kind in kinds for size in SIZES[kind]]
            runner = part.GraphRunner(bench.machine, bench.device, sizes, records=False)
            for what, (changed, kind, _, why) in CASES.items():
                step = noted(bench, asked(bench, [0, 1, 2], **changed), sizes)
                got = bool(runner.takes(step))
                if changed and kind == ALONE and not got:
                    fields = ", ".join(f"`{name}`" for name in changed)
                    plain = bool(runner.takes(asked(bench, [0, 1, 2])))
                    why = f"The same step without {fields} is taken. {why}" if plain else why
                expect_equal(
                    got,
                    kind == ALONE or WITH in kinds,
                    f"takes(a step with {what}), with sizes of {' and of '.join(kinds)}",
                    why=why,
                )


@task("17.5")
def test_which_steps_it_draws(part: Any) -> None:
    """`draw` may follow where each seat computes one token that the device has drawn, and draws
    another."""
    bench = Bench((4, 1, 6))
    with bench.running(), lent(part, "17.5"):
        for kinds in ([ALONE], [ALONE, WITH], [WITH]):
            sizes = [size for kind in kinds for size in SIZES[kind]]
            runner = part.GraphRunner(bench.machine, bench.device, sizes, records=False)
            for what, (changed, kind, draws, why) in CASES.items():
                step = noted(bench, asked(bench, [0, 1, 2], **changed), sizes)
                if kind == ALONE or WITH in kinds:
                    right = draws and ALONE in kinds
                    which = f"with sizes of {' and of '.join(kinds)}"
                    got = bool(runner.draws(step))
                    if got and kind == WITH:
                        size = tuple(SIZES[WITH][0])
                        why = f"It takes the size {size}: one with chunks has no second graph."
                    expect_equal(got, right, f"draws(a step with {what}), {which}", why=why)


@task("17.5")
def test_a_token_that_was_sent_needs_room_for_one_chunk(part: Any) -> None:
    """A step of single tokens, of which control has sent some, takes a size with room for one chunk."""
    bench = Bench((4, 1, 6))
    with bench.running(), lent(part, "17.5"):
        sizes = [*SIZES[ALONE], Size(4, 2, 1)]
        runner = part.GraphRunner(bench.machine, bench.device, sizes, records=False)
        starts = np.array([0, 0, 9], np.int32)
        step = noted(bench, asked(bench, [0, 1, 2], starts=starts), sizes)
        what = (
            "takes(a step of three tokens, of which control has sent two), with a size of one chunk"
        )
        expect_equal(bool(runner.takes(step)), True, what, why=SENT)
