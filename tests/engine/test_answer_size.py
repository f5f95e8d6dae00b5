"""How large an answer may be asked for."""

import pytest

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.engine.input.beyond_text import MAX_LOGPROB_ENTRIES, check_answer_size

CONTEXT = 1000
PROMPT = [1] * 10


def most(n: int, logprobs: int) -> int:
    """Tokens of each of `n` answers that just fit."""
    return MAX_LOGPROB_ENTRIES // (n * (1 + logprobs))


@pytest.mark.parametrize("n", [1, 2])
def test_log_probabilities_multiply_and_have_a_limit(n: int) -> None:
    fits = most(n, 15)
    check_answer_size([PROMPT], SamplingParams(n=n, logprobs=15, max_tokens=fits), CONTEXT)
    with pytest.raises(InvalidRequestError, match=f"prompts by n \\({n}\\)") as refused:
        check_answer_size([PROMPT], SamplingParams(n=n, logprobs=15, max_tokens=fits + 1), CONTEXT)
    assert refused.value.param == "logprobs"


def test_a_single_answer_is_no_longer_than_the_context_and_two_are_counted() -> None:
    long, params = most(1, 15), SamplingParams(logprobs=15)
    check_answer_size([PROMPT], params, 2 * long)
    for prompts, n in (([PROMPT], 2), ([PROMPT, PROMPT], 1)):
        with pytest.raises(InvalidRequestError, match=f"up to {2 * long - 10}"):
            check_answer_size(prompts, SamplingParams(n=n, logprobs=15), 2 * long)


def test_the_prompts_own_are_counted_as_well() -> None:
    prompt = [1] * (MAX_LOGPROB_ENTRIES // 4)
    check_answer_size([prompt], SamplingParams(prompt_logprobs=3), CONTEXT)
    with pytest.raises(InvalidRequestError, match="prompt tokens by 4 for each"):
        check_answer_size([[*prompt, 1]], SamplingParams(prompt_logprobs=3), CONTEXT)
