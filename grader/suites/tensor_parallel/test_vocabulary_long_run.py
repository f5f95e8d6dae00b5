"""Tasks 20.6 and 20.7 beyond one call: results that stay, nothing left, logits with all digits."""

import math
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect_equal, note, task
from grader.kit.rank_group import SimGroup, run_together
from grader.kit.storage import expect_calls_apart
from grader.suites.tensor_parallel.bench import cut, drawn
from grader.suites.tensor_parallel.lone import LoneGroup
from grader.suites.tensor_parallel.test_vocabulary import (
    DIGITS,
    arg_max,
    expect_best,
    gather,
    noise,
    on_shares,
)
from grader.suites.tensor_parallel.token_kinds import Asked
from solutions.tensor_parallel.one_process import winners


@task("20.6")
def test_gathers_of_many_calls(part: ModuleType) -> None:
    """Gathered logits are made for their call, and nothing is left behind."""
    vocab = part.VocabLogits(5, LoneGroup())
    expect_calls_apart({"gather": lambda n: vocab.gather(drawn(2, 3, seed=n))})


@task("20.7")
def test_choices_of_many_calls(part: ModuleType) -> None:
    """Tokens are chosen for their call, and nothing is left behind."""
    vocab = part.VocabLogits(50, LoneGroup())

    def noise(tokens: range) -> Tensor:
        return torch.zeros(4, len(tokens))

    expect_calls_apart(
        {
            "arg_max": lambda n: vocab.arg_max(drawn(4, 25, seed=n)),
            "draw": lambda n: vocab.draw(drawn(4, 25, seed=n), noise),
        }
    )


@task("20.7")
def test_logits_keep_their_digits(part: ModuleType) -> None:
    """Of two logits that differ in the last digit of their dtype the higher one wins."""
    for dtype, digit in ((torch.float64, 2.0**-50), (torch.float32, 2.0**-22)):
        logits = torch.ones(2, 6, dtype=dtype)
        logits[0, 4] += digit
        logits[1, 1], logits[1, 5] = 1 + digit, 1 + 2 * digit
        expect_best(part, 2, logits, DIGITS)


ONE_OBJECT = (
    "The engine makes a VocabLogits once. Steps have any number of rows, and logits any dtype: what was "
    "made for one call does not fit another."
)
AS_IT_IS = "A logit comes as it is: a masked token has -inf, so no value tells padding from logits."


@task("20.6")
def test_logits_of_any_value(part: ModuleType) -> None:
    """gather gives logits as they are, also where a whole column is -inf, NaN or 0."""
    logits = drawn(2, 5, seed=3)
    logits[:, 1], logits[:, 3], logits[0, 4], logits[:, 2] = -math.inf, math.nan, math.inf, 0
    got, _ = on_shares(part, 2, logits, gather)
    for rank, x in enumerate(got):
        what = f"logits [2, 5] gathered on rank {rank} of 2"
        expect_equal(list(x.shape), [2, 5], f"{what}: their shape", why=AS_IT_IS)
        expect_equal(str(x.tolist()), str(logits.tolist()), what, why=AS_IT_IS)


@task("20.6")
def test_gathers_of_any_rows(part: ModuleType) -> None:
    """One VocabLogits gathers steps of any number of rows, in any dtype."""
    narrow, plain, wide = torch.bfloat16, torch.float32, torch.float64
    calls = [(2, plain), (3, plain), (1, narrow), (4, wide)]
    whole = [drawn(rows, 5, seed=rows, dtype=dtype) for rows, dtype in calls]

    def work(group: SimGroup) -> list[Tensor]:
        vocab, made = part.VocabLogits(5, group), []
        for logits in whole:
            note(f"rank {group.rank} gathers {list(logits.shape)} of {logits.dtype}")
            made.append(vocab.gather(cut(logits, group.rank, 2)))
        return made

    got, _ = run_together(part, 2, work)
    for number, right in enumerate(whole):
        x = got[1][number]
        what = f"logits {list(right.shape)} of {right.dtype}, call {number + 1} of one VocabLogits"
        expect_equal(list(x.shape), list(right.shape), f"{what}: their shape", why=ONE_OBJECT)
        expect_equal(x.dtype, right.dtype, f"{what}: their dtype", why=ONE_OBJECT)
        expect_equal(x.tolist(), right.tolist(), what, why=ONE_OBJECT)


@task("20.7")
def test_choices_of_any_rows(part: ModuleType) -> None:
    """One VocabLogits chooses for steps of any number of rows, with the noise of each step."""
    steps = [(2, 0), (2, 1), (3, 2), (1, 3), (1, 4), (3, 5)]

    def noise_of(seed: int, rows: int) -> Tensor:
        return 3 * drawn(rows, 7, seed=50 + seed)

    def work(group: SimGroup) -> list[list[int]]:
        vocab, made = part.VocabLogits(7, group), []
        for rows, seed in steps:
            note(f"rank {group.rank} draws for {rows} rows, with new noise")
            noise = noise_of(seed, rows)
            mine = cut(drawn(rows, 7, seed=seed), group.rank, 2)
            made.append(
                vocab.draw(mine, lambda tokens, of=noise: of[:, tokens.start : tokens.stop])
            )
        return [tokens.tolist() for tokens in made]

    got, _ = run_together(part, 2, work)
    for number, (rows, seed) in enumerate(steps):
        right = winners(drawn(rows, 7, seed=seed) + noise_of(seed, rows))
        what = f"draw for {rows} rows, call {number + 1} of one VocabLogits"
        expect_equal(got[1][number], right, what, why=EACH_STEP)


EACH_STEP = (
    "Each draw asks for its own noise: with that of an earlier step a request would draw by the same "
    "numbers again."
)
ASKED_ONCE = "Noise is computed for all tokens of a rank and all rows at once: one call gives it."
FINITE = (
    "A logit is finite up to the largest number of its dtype: only infinity and NaN have failed."
)


@task("20.7")
def test_noise_is_asked_for_once(part: ModuleType) -> None:
    """A draw asks for the noise of its tokens in one call on each rank."""
    asked = Asked(noise)
    on_shares(part, 2, drawn(3, 7, seed=1), asked.draw)
    expect_equal(len(asked.tokens), 2, "calls of `noise`, by two ranks", why=ASKED_ONCE)


@task("20.7")
def test_large_logits(part: ModuleType) -> None:
    """Logits as large as their dtype can hold are compared like others; draws keep all their digits."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        most = torch.finfo(dtype).max
        logits = torch.tensor(
            [[0, most, 1, -most], [-most, 0, -most, -most], [-most] * 4], dtype=dtype
        )
        got, _ = on_shares(part, 2, logits, arg_max)
        expect_equal(got[1].tolist(), [1, 1, 0], f"arg_max of logits up to {most:g}", why=FINITE)
    logits = torch.ones(3, 7, dtype=torch.float64)
    logits[0, 3], logits[1, 5], logits[2, 6] = (1 + 2.0**-40 for _ in range(3))
    even = Asked(lambda tokens: torch.zeros(3, len(tokens)))
    got, _ = on_shares(part, 2, logits, even.draw)
    what = "draw from logits of float64 that differ by 2**-40, with noise of 0"
    expect_equal(got[1].tolist(), [3, 5, 6], what, why=DIGITS)
