"""Tasks 20.6 and 20.7 beyond one call: results that stay, nothing left, logits with all digits."""

from types import ModuleType

import torch
from torch import Tensor

from grader.kit import task
from grader.kit.storage import expect_calls_apart
from grader.suites.tensor_parallel.bench import drawn
from grader.suites.tensor_parallel.lone import LoneGroup
from grader.suites.tensor_parallel.test_vocabulary import DIGITS, expect_best


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
