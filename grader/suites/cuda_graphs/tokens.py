"""Which tokens a step computes, and whose they are: hidden states tell nothing of that to a reader."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from grader.kit import expect_equal
from grader.kit.expect import Mismatch
from grader.suites.cuda_graphs.bench import Bench
from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

BY_ROW = (
    "These are the last tokens of seats {seats}, by the numbers of the rows. Index `last_tokens` by the "
    "seats in the buffer."
)
STEP_BEFORE = (
    "These are the last tokens of seats {seats}, those of the step before. Each step uploads its own "
    "seats into `inputs`: what was read or converted for an earlier one is stale."
)
MARKER = (
    "{marker} is `~{seat}`, and stands for the last token of seat {seat}. Here the marker itself is "
    "computed as a token."
)
NOTHING = (
    "{marker} is `~{seat}`, and stands for the last token of seat {seat}. Here it becomes token 0."
)
SENT = "Control has sent {right} for this row, and it is not negative: it is the token to compute."


def expect_states(
    bench: Bench, size: Size, step: StepInput, got: Any, hidden: Tensor, why: str = ""
) -> None:
    """The states of all rows of a step, got of `size`; if they are wrong and the tokens are too, those
    are told. why: for states that are wrong with the right tokens."""
    n, tokens = step.num_decodes, int(step.num_tokens.sum())
    try:
        what = (
            "the hidden states of decodes"
            if size.chunks
            else f"the hidden states of step {step.step}"
        )
        bench.expect_rows(got[:n], hidden[:n], what, why)
        if size.chunks:
            chunks = got[size.decodes : size.decodes + tokens - n]
            bench.expect_rows(chunks, hidden[n:], "the hidden states of chunks", why)
    except Mismatch:
        _expect_tokens(bench, size, step)
        raise


def _expect_tokens(bench: Bench, size: Size, step: StepInput) -> None:
    n, tokens = step.num_decodes, int(step.num_tokens.sum())
    rows = [*range(n), *range(size.decodes, size.decodes + tokens - n)]
    with bench.device.aside():
        computed, right = bench.machine.computed.tolist(), bench.plain.computed[:tokens].tolist()
    got = [computed[row] for row in rows]
    what = f"the tokens that step {step.step} computes (rows {rows})"
    if got != right:
        expect_equal(got, right, what, why=_whose(bench, size, step, rows, got, right))


def _whose(
    bench: Bench, size: Size, step: StepInput, rows: list[int], got: list[int], right: list[int]
) -> str:
    """Whose tokens the wrong ones are."""
    seats, drawn = step.seats.repeat(step.num_tokens).tolist(), bench.drawn
    sent = bench.plain.token_ids(step).tolist()
    wrong = [at for at, token in enumerate(got) if token != right[at]]
    first = wrong[0]
    row, seat = rows[first], seats[first]
    if sent[first] >= 0:
        return f"{_seat_of(bench, row, got[first])}{SENT.format(right=right[first])}"
    marked = wrong if all(sent[at] < 0 for at in wrong) else []
    before = bench.seats_before
    gives: dict[str, Callable[[int], int]] = {
        BY_ROW.format(seats=[rows[at] for at in marked]): lambda at: drawn[rows[at]],
        MARKER.format(marker=sent[first], seat=seat): lambda at: sent[at],
        NOTHING.format(marker=sent[first], seat=seat): lambda at: 0,
    }
    if len(before) == len(got) > 1:
        gives[STEP_BEFORE.format(seats=before)] = lambda at: drawn[before[at]]
    found = [
        why for why, one in gives.items() if marked and all(got[at] == one(at) for at in marked)
    ]
    if len(found) == 1:
        return found[0]
    other = _seat_of(bench, row, got[first])
    marker = f" {sent[first]} is `~{seat}`." if size.chunks else ""
    return f"{other}The last token of seat {seat} belongs there.{marker}" if other else ""


def _seat_of(bench: Bench, row: int, token: int) -> str:
    """Of which seat a token is the last one, if of one alone."""
    whose = [seat for seat, one in enumerate(bench.drawn) if one == token]
    return f"Row {row} computes the last token of seat {whose[0]}. " if len(whose) == 1 else ""
