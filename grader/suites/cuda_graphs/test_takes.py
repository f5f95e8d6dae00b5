"""Task 17.5: which steps are replayed."""

from typing import Any

import numpy as np

from grader.kit import expect_equal, task
from grader.suites.cuda_graphs.bench import Bench, lent
from yaie.core.step import NewSeats, Pairs, StepInput

GRAMMAR = (
    "A grammar needs no launch of its own: the first graph is replayed, and only the draw waits."
)
NEW_BLOCKS = "New blocks go with the upload, or by `extend_tables`."
MOVES = (
    "Blocks are moved before the step is asked for. Its rows are the same single tokens as without."
)
NEW = "Seats change hands before the step is asked for. `starts` and `num_known` say what each row is."


def asked(bench: Bench, seats: list[int], **changed: Any) -> StepInput:
    """A step of single unread tokens of these seats, but for what is changed."""
    ones = np.ones(len(seats), dtype=np.int32)
    given = {
        "starts": bench.machine.num_known[seats] + 3,
        "num_tokens": ones.copy(),
        "samples": ones.astype(np.bool_),
    }
    return StepInput(1, np.array(seats, np.int32), **{**given, **changed})


def entries(count: int) -> dict[str, Any]:
    """So many new table entries of seat 1."""
    columns = np.arange(count, dtype=np.int32)
    seats = np.ones(count, np.int32)
    return {"table_seats": seats, "table_columns": columns, "table_blocks": columns + 20}


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


TAKEN: dict[str, tuple[dict[str, Any], bool, str]] = {
    "tokens that the device drew": ({}, True, "It is the step that graphs are made for."),
    "the first unread token of each": (
        {"starts": np.array([4, 1, 6], np.int32)},
        True,
        "Position num_known is the first that control has not sent: the device has drawn it.",
    ),
    "one new table entry": (entries(1), True, NEW_BLOCKS),
    "more new table entries than the largest size has rows": (entries(6), True, NEW_BLOCKS),
    "a constrained seat (masked)": ({"masked": True}, True, GRAMMAR),
    "a block that is copied": ({"copies": move()}, True, MOVES),
    "a block that comes back from the host": ({"swap_in": move()}, True, MOVES),
    "a block that goes to the host": ({"swap_out": move()}, True, MOVES),
    "a seat that changes hands": ({"new": newcomer(0)}, True, NEW),
    "a token that control has sent": (
        {"starts": np.array([9, 0, 9], np.int32)},
        False,
        "The last token of a prompt may be computed alone. The device has not drawn it.",
    ),
    "a chunk at its end": (
        {"num_tokens": np.array([1, 1, 5], np.int32)},
        False,
        "A row is one token.",
    ),
    "a row that does not sample": (
        {"samples": np.array([True, False, True])},
        False,
        "Every row of a recorded step draws, and its seat moves on.",
    ),
    "drafts": (
        {"drafts": np.array([3], np.int32), "num_drafts": np.array([0, 0, 1], np.int32)},
        False,
        "Drafts are more tokens for a seat, and are accepted or not.",
    ),
    "log-probabilities of a prompt": (
        {"extras": {"prompt_logprobs": {"rows": np.array([0], np.int32)}}},
        False,
        "They need hidden states, which a graph that ends in logits does not return.",
    ),
}


@task("17.5")
def test_which_steps(part: Any) -> None:
    """A step is taken if each of its seats computes one token, drawn before, and draws another."""
    bench = Bench((4, 1, 6))
    with bench.running(), lent(part, "17.5"):
        steps = part.DecodeSteps(bench.machine, bench.device, [1, 2, 4], records=False)
        for what, (changed, right, why) in TAKEN.items():
            got = bool(steps.takes(asked(bench, [0, 1, 2], **changed)))
            expect_equal(got, right, f"takes(a step with {what})", why=why)
        for n in (1, 4, 5):
            step = asked(bench, list(range(n)))
            expect_equal(
                bool(steps.takes(step)),
                n <= 4,
                f"takes(a step of {n} seats), of at most 4",
                why="A step that no size holds is launched as it is.",
            )
