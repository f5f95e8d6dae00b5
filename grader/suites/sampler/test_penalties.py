"""Tasks 1.1 and 1.2: what changes logits without ruling anything out."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, start_script, task
from grader.kit.mistakes import told_by
from grader.suites.sampler.rows import INF, ROWS_APART, filtered, penalties_of, readable
from solutions.sampler import filters
from yaie.core.batch import PenaltyBatch


def penalised(part: ModuleType, logits: Tensor, penalties: Any) -> Any:
    return filtered(part, "apply_penalties", logits, penalties)


def expect_penalised(
    got: Any, right: list[float], what: str, gives: dict[str, list[float]]
) -> None:
    """gives: what a mistake would make of the row, by what is to say of it."""
    why = told_by(got, {told: torch.tensor([row]) for told, row in gives.items()})
    expect_close(got, torch.tensor([right]), what, why=why)


@task("1.1")
def test_repetition_makes_every_seen_token_less_likely(part: ModuleType) -> None:
    """Repetition divides a positive logit and multiplies a negative one."""
    penalties = penalties_of([[1, 1, 0, 0]], [[0, 0, 0, 0]], repetition=[2.0])
    got = penalised(part, torch.tensor([[3.0, -3.0, 3.0, -3.0]]), penalties)
    expect_penalised(
        got, [1.5, -6.0, 3.0, -3.0], "logits 3 and -3, seen and not, at repetition 2",
        {
            "Dividing a negative logit by 2 moves it towards zero: the token becomes more likely.":
            [1.5, -1.5, 3.0, -3.0],
            "A token that was never seen keeps its logit.": [1.5, -6.0, 1.5, -6.0],
            "Multiplying a positive logit makes its token more likely.": [6.0, -6.0, 3.0, -3.0],
        },
    )  # fmt: skip


@task("1.1")
def test_repetition_sees_prompt_and_output(part: ModuleType) -> None:
    """Repetition holds for tokens of the prompt and of the output, and once for both together."""
    penalties = penalties_of([[0, 2, 3, 0]], [[1, 0, 1, 0]], repetition=[2.0])
    got = penalised(part, torch.full((1, 4), 4.0), penalties)
    seen = "Repetition asks whether a token was seen, in the prompt or in the output"
    expect_penalised(
        got, [2.0, 2.0, 2.0, 4.0], "tokens seen in prompt, output, both, neither",
        {
            f"{seen}: those of the prompt were left out.": [4.0, 2.0, 2.0, 4.0],
            f"{seen}: those of the output were left out.": [2.0, 4.0, 2.0, 4.0],
            f"{seen}: a token of both is not treated twice.": [2.0, 2.0, 1.0, 4.0],
            f"{seen}, not how often: the output has them 2 and 3 times.": [2.0, 1.0, 0.5, 4.0],
        },
    )  # fmt: skip


@task("1.1")
def test_frequency_counts_each_occurrence_in_the_output(part: ModuleType) -> None:
    """Frequency is subtracted once for each occurrence in the output; the prompt does not count."""
    penalties = penalties_of([[0, 1, 3]], [[5, 0, 0]], frequency=[0.5])
    got = penalised(part, torch.full((1, 3), 2.0), penalties)
    expect_penalised(
        got, [2.0, 1.5, 0.5], "logits of tokens generated 0, 1 and 3 times, at frequency 0.5",
        {
            "Token 0 is in the prompt. Frequency looks at the output alone: it keeps its logit.":
            [1.5, 1.5, 0.5],
            "Frequency is subtracted as often as the token occurs in the output, not once.":
            [2.0, 1.5, 1.5],
        },
    )  # fmt: skip


@task("1.1")
def test_presence_counts_once(part: ModuleType) -> None:
    """Presence is subtracted once from every token of the output, however often it occurs."""
    penalties = penalties_of([[0, 1, 3]], [[5, 0, 0]], presence=[0.5])
    got = penalised(part, torch.full((1, 3), 2.0), penalties)
    expect_penalised(
        got, [2.0, 1.5, 1.5], "logits of tokens generated 0, 1 and 3 times, at presence 0.5",
        {
            "Presence asks whether a token is in the output, not how often: it was subtracted 3 times "
            "from token 2.": [2.0, 1.5, 0.5],
            "Token 0 is in the prompt. Presence looks at the output alone: it keeps its logit.":
            [1.5, 1.5, 1.5],
        },
    )  # fmt: skip


@task("1.1")
def test_repetition_comes_before_the_subtractions(part: ModuleType) -> None:
    """Repetition scales the model's logit, and only then are frequency and presence subtracted."""
    penalties = penalties_of([[1, 1]], [[0, 0]], repetition=[2.0], presence=[1.0], frequency=[0.5])
    got = penalised(part, torch.tensor([[4.0, 1.0]]), penalties)
    order = "The order counts: 4 / 2 - 1.5 is 0.5, but"
    expect_penalised(
        got, [0.5, -1.0], "logits 4 and 1 with all three penalties",
        {
            f"{order} (4 - 1.5) / 2 is 1.25. Repetition comes first.": [1.25, -1.0],
            f"{order} (4 - 1) / 2 - 0.5 is 1. Repetition comes first, before presence too.": [1.0, -0.5],
            f"{order} (4 - 0.5) / 2 - 1 is 0.75. Repetition comes first, before frequency too.":
            [0.75, -0.75],
        },
    )  # fmt: skip


@task("1.1")
def test_penalties_below_off_make_tokens_likelier(part: ModuleType) -> None:
    """Negative presence and frequency, and repetition below 1, make tokens more likely."""
    for name, value, off, right in (
        ("presence", -1.0, "0", [3.0, -1.0, 2.0]),
        ("frequency", -0.5, "0", [3.0, -1.5, 2.0]),
        ("repetition", 0.5, "1", [4.0, -1.0, 2.0]),
    ):
        start_script()
        penalties = penalties_of([[2, 1, 0]], [[0, 0, 0]], **{name: [value]})
        logits = torch.tensor([[2.0, -2.0, 2.0]])
        got = penalised(part, logits, penalties)
        what = f"logits 2, -2 and 2, generated 2, 1 and 0 times, with {name} {value}"
        why = (
            f"{name} {value} has changed nothing here. The formula holds below {off} as above: it makes "
            "these tokens likelier there, and nothing is cut off."
        )
        is_off = isinstance(got, torch.Tensor) and torch.equal(got, logits)
        expect_close(got, torch.tensor([right]), what, why=why * is_off)


@task("1.1")
def test_ruled_out_tokens_stay_ruled_out(part: ModuleType) -> None:
    """A logit of -inf stays -inf, seen or not."""
    penalties = penalties_of(
        [[2, 0, 0]], [[0, 1, 0]], repetition=[2.0], frequency=[1.0], presence=[1.0]
    )
    got = penalised(part, torch.full((1, 3), -INF), penalties)
    why = "A difference of two infinities, or zero times infinity, is NaN: then no token can be sampled."
    expect_close(got, torch.full((1, 3), -INF), "logits of -inf", why=why)


@task("1.1")
def test_penalties_of_each_row(part: ModuleType) -> None:
    """Every row has its own penalties, counts and prompt; a row whose penalties are off is unchanged."""
    seen, logits = [[1, 0], [1, 0], [0, 1], [2, 0]], torch.full((4, 2), 2.0)
    penalties = penalties_of(
        seen, [[0, 1]] * 4, repetition=[2.0, 1.0, 1.0, 4.0], frequency=[0.0, 0.0, 1.0, 0.25],
        presence=[0.0, 0.0, 0.5, 1.0],
    )  # fmt: skip
    got = penalised(part, logits, penalties)
    right = torch.tensor([[1.0, 1.0], [2.0, 2.0], [2.0, 0.5], [-1.0, 0.5]])
    expect_close(got, right, "four rows, the second off", why=_of_one_row(logits, penalties, got))


def _of_one_row(logits: Tensor, penalties: PenaltyBatch, got: Any) -> str:
    """What to say if one of the penalties was that of one row for all; "" if it was not."""
    gives = {}
    for name in ("presence", "frequency", "repetition"):
        column = getattr(penalties, name)
        for value in column.unique():
            rows = (column == value).nonzero().flatten().tolist()
            whose = f"the {name} of row {' or '.join(map(str, rows))} ({value:g})"
            told = f"Every row came out as with {whose}. {ROWS_APART}"
            each = replace(penalties, **{name: value.expand(len(column))})
            gives[told] = filters.apply_penalties(logits, each)
    right = filters.apply_penalties(logits, penalties)
    return told_by(got, {told: row for told, row in gives.items() if not torch.equal(row, right)})


@st.composite
def penalty_rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """(logits, counts, prompt, presence, frequency, repetition) of one row; logits no zero."""
    n = draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    logits = st.lists(st.sampled_from([-4.0, -1.5, 0.5, 3.0]), min_size=n, max_size=n)
    some = st.sampled_from([-1.5, -0.5, 0.0, 0.5, 2.0])
    repetition = draw(st.sampled_from([0.5, 1.0, 1.25, 2.0]))
    return draw(logits), draw(counts), draw(counts), draw(some), draw(some), repetition


def one_penalised(
    logit: float, count: int, prompt: int, presence: float, frequency: float, repetition: float
) -> float:
    if count or prompt:
        logit = logit / repetition if logit > 0 else logit * repetition
    return logit - frequency * count - (presence if count else 0.0)


@task("1.1")
@examples(60)
@given(penalty_rows())
def test_any_penalties(part: ModuleType, row: tuple[Any, ...]) -> None:
    """Any penalties together do what their definitions say, token by token."""
    logits, counts, prompt, presence, frequency, repetition = row
    penalties = penalties_of(
        [counts], [prompt], presence=[presence], frequency=[frequency], repetition=[repetition]
    )
    got = penalised(part, torch.tensor([logits]), penalties)
    rest = (presence, frequency, repetition)
    right = [
        one_penalised(logit, count, seen, *rest)
        for logit, count, seen in zip(logits, counts, prompt, strict=True)
    ]
    what = f"the logits with presence {presence}, frequency {frequency}, repetition {repetition}"
    expect_close(got, torch.tensor([right]), what)


@task("1.1")
def test_repetition_is_that_of_transformers(part: ModuleType) -> None:
    """The repetition penalty gives what transformers' RepetitionPenaltyLogitsProcessor gives."""
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    logits = readable(1, 20, seed=1)
    counts, prompt = [0] * 20, [0] * 20
    counts[3], counts[7], prompt[5], prompt[7] = 2, 1, 1, 1
    seen = torch.tensor([[5, 7, 3, 3, 7]])
    right = RepetitionPenaltyLogitsProcessor(1.3)(seen, logits.clone())
    got = penalised(part, logits, penalties_of([counts], [prompt], repetition=[1.3]))
    expect_close(got, right, "logits after prompt [5, 7] and output [3, 3, 7] at repetition 1.3")


def warmed(part: ModuleType, logits: list[list[float]], temperature: list[float]) -> Tensor:
    """What apply_temperature makes of the logits, as probabilities."""
    columns = torch.tensor(temperature)
    got = filtered(part, "apply_temperature", torch.tensor(logits), columns)
    expect(isinstance(got, Tensor), f"apply_temperature gives {type(got).__name__}, not logits")
    expect_equal(got.dtype, torch.float32, "the dtype of what apply_temperature gives")
    return got.double().softmax(dim=-1)


@task("1.2")
def test_temperature_divides(part: ModuleType) -> None:
    """A temperature of 2 halves the distances between logits, one of 0.5 doubles them."""
    got = warmed(part, [[1.0, 2.0, 4.0]] * 2, [2.0, 0.5])
    right = torch.tensor([[0.5, 1.0, 2.0], [2.0, 4.0, 8.0]]).double().softmax(dim=-1)
    why = "Logits are divided by the temperature: a high one makes the probabilities more equal."
    expect_close(got, right, "the probabilities at temperatures 2 and 0.5", why=why)


@task("1.2")
def test_temperature_zero_is_no_division(part: ModuleType) -> None:
    """A greedy row, at temperature 0, is divided by 1, beside rows at other temperatures."""
    got = warmed(part, [[1.0, 2.0, 4.0]] * 3, [0.0, 1.0, 0.0])
    right = torch.tensor([[1.0, 2.0, 4.0]] * 3).double().softmax(dim=-1)
    why = (
        "Dividing by zero makes a row of inf and NaN; greedy rows share the batch with the others."
    )
    expect_close(got, right, "the probabilities at temperatures 0, 1 and 0", why=why)


@task("1.2")
def test_small_temperatures_divide_too(part: ModuleType) -> None:
    """A temperature of 0.0002, or of 1e-30, divides like any other: only 0 is greedy."""
    right = torch.tensor([[2.0, 1.0, 0.0]]).double().softmax(dim=-1)
    for small in (2e-4, 1e-7, 1e-30):
        start_script()
        logits, temperature = torch.tensor([[2 * small, small, 0.0]]), torch.tensor([small])
        got = filtered(part, "apply_temperature", logits, temperature)
        expect(isinstance(got, Tensor), f"apply_temperature gives {type(got).__name__}, not logits")
        why = "Logits as close as these keep several tokens possible."
        if got.shape == logits.shape and (apart := float(got[0, 0] - got[0, 2])) > 0:
            why = f"The logits were divided by {2 * small / apart:.3g}, and not by {small:g}."
        what = f"the probabilities of logits {2 * small:g}, {small:g}, 0 at temperature {small:g}"
        expect_close(got.double().softmax(dim=-1), right, what, why=why)


@task("1.2")
def test_tiny_temperatures_leave_the_best_token(part: ModuleType) -> None:
    """However small the temperature, nothing overflows: all probability goes to the best token."""
    logits = [[80.0, 79.0, 1.0], [-80.0, -9.0, -8.0], [5.0, 5.0, 1.0]]
    right = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]).double()
    for tiny in (1e-3, 1e-30, 1e-38, 1e-45):
        start_script()
        got = warmed(part, logits, [tiny] * 3)
        rows, divisor = torch.tensor(logits), torch.full((3, 1), tiny)
        gives = {OVERFLOW: rows / divisor, LARGEST_OF_ALL: (rows - rows.amax()) / divisor}
        why = told_by(got, {told: row.double().softmax(dim=-1) for told, row in gives.items()})
        expect_close(got, right, f"the probabilities at temperature {tiny}", why=why)


OVERFLOW = (
    "80 / 1e-38 and 79 / 1e-38 overflow to the same +inf. Taken from the largest logit of the same row "
    "first, the distances can only fall to -inf."
)
LARGEST_OF_ALL = (
    "80 is the largest logit of the batch. Subtracted from every row, it leaves the others far below "
    "0, and the division makes -inf of all of their tokens: NaN as probabilities. Subtract the largest "
    "of the same row."
)


@task("1.2")
def test_temperature_keeps_what_is_ruled_out(part: ModuleType) -> None:
    """A token at -inf stays there, at every temperature."""
    logits, temperature = torch.tensor([[-INF, 1.0, 2.0]] * 3), torch.tensor([0.0, 0.5, 100.0])
    got = filtered(part, "apply_temperature", logits, temperature)
    why = "-inf alone says that a token is ruled out: to a large finite number noise can be added."
    expect_equal(got[:, 0].tolist(), [-INF] * 3, "what becomes of a logit of -inf", why=why)


@task("1.2")
@examples(60)
@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 100.0]), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(0, 1000),
)
def test_any_temperatures(
    part: ModuleType, temperature: list[float], vocab: int, seed: int
) -> None:
    """Every row has the distribution of its logits over its own temperature."""
    logits = readable(len(temperature), vocab, seed)
    got = warmed(part, logits.tolist(), temperature)
    divisor = torch.tensor([[value or 1.0] for value in temperature])
    right = (logits.double() / divisor).softmax(dim=-1)
    gives = {
        f"Every row came out as at the temperature of row {row}. {ROWS_APART}": logits.double()
        / one
        for row, one in enumerate(divisor)
        if bool((divisor != one).any())
    }
    why = told_by(got, {told: rows.softmax(dim=-1) for told, rows in gives.items()})
    expect_close(got, right, f"the probabilities at temperatures {temperature}", why=why)
