"""Whatever arrives, leaves, or is taken back: the tokens are those of a model without any cache."""

import operator
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.solutions.properties import effort
from tests.solutions.toy import VOCAB, Settings, Toy, toy_output
from yaie.core.request import FinishReason, Request

# Two long texts that begin alike; a prompt is the start of one, and some tokens of its own.
TEXTS = [
    [(i * i + i // 3) % VOCAB for i in range(70)],
    [(i * i + i // 4) % VOCAB for i in range(70)],
]


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """A pool of 14 to 40 tokens: requests that fit alone and crowd each other out together."""
    block_size = draw(st.sampled_from([1, 2, 4]))
    num_blocks = draw(st.integers(14, 40)) // block_size
    chunked = draw(st.booleans())
    return Settings(
        num_blocks=num_blocks,
        block_size=block_size,
        num_host_blocks=draw(st.sampled_from([0, 0, 4, 40])),
        max_num_seqs=draw(st.integers(2, 5)),
        # Without chunks a prompt must fit the budget, as the engine sees to.
        token_budget=draw(st.integers(1, 20)) if chunked else 80,
        chunked_prefill=chunked,
        watermark=draw(st.sampled_from([0, 0, 2])),
        policy=draw(st.sampled_from(["fcfs", "priority", "lpm"])),
        prefix_caching=draw(st.booleans()),
    )


@st.composite
def arrival(draw: st.DrawFn, most_siblings: int) -> dict[str, Any]:
    text = draw(st.sampled_from(TEXTS))
    length = draw(st.sampled_from([0, 1, 3, 4, 6, 8, 9, 12, 20]))
    prompt = text[:length] + draw(st.lists(st.integers(0, 4), max_size=2))
    return {
        "prompt": prompt or [0],
        "max_tokens": draw(st.sampled_from([1, 2, 5, 9, 14])),
        "priority": draw(st.integers(-1, 1)),
        "n": draw(st.integers(1, most_siblings)),
    }


def scripts(most_siblings: int = 1) -> st.SearchStrategy[list[Any]]:
    """A dictionary is an arrival, a number aborts one of those alive, None is a step."""
    arrivals = st.lists(arrival(most_siblings), min_size=2, max_size=6)
    event = st.one_of(arrival(most_siblings), st.integers(0, 20), *[st.none()] * 5)
    return st.builds(operator.add, arrivals, st.lists(event, max_size=40))


def play(settings: Settings, script: list[Any]) -> Toy:
    """Every event, then steps to the end; `Toy` checks all that it sees."""
    toy = Toy(settings)
    for event in script:
        if isinstance(event, dict):
            toy.add(**event)
        elif isinstance(event, int) and toy.alive:
            toy.scheduler.finish(toy.alive[event % len(toy.alive)], FinishReason.ABORT)
            toy.check()
        else:
            toy.step()
    toy.run()
    for request in toy.requests:
        assert_right(request, toy.settings)
    toy.cache.reset_prefix_cache()
    assert toy.blocks.num_free == settings.num_blocks
    return toy


def assert_right(request: Request, settings: Settings) -> None:
    """Its tokens are right as far as they go, and only one that cannot fit has failed."""
    prompt = request.token_ids[: request.num_prompt_tokens]
    expected = toy_output(prompt, request.max_tokens, request.seed)
    most_tokens = len(prompt) + request.max_tokens - 1
    fits = most_tokens <= settings.num_blocks * settings.block_size
    assert request.output_token_ids == expected[: request.num_output_tokens]
    if request.finish_reason is FinishReason.LENGTH:
        assert request.output_token_ids == expected
    elif request.finish_reason is FinishReason.ERROR:
        assert not fits, f"{request.request_id} failed although it fits"


@effort(1000)
@given(any_settings(), scripts())
def test_outputs_are_right_whatever_happens(settings: Settings, script: list[Any]) -> None:
    play(settings, script)


# Beside another request the prompt is computed token by token, and no chunk of one is committed.
TRICKLE = [{"prompt": [4], "max_tokens": 4}, {"prompt": [1, 2, 3], "max_tokens": 4, "n": 2}]


@effort(300)
@given(any_settings(), scripts(most_siblings=3))
@example(Settings(block_size=1, token_budget=2), TRICKLE)
def test_siblings_share_a_prompt_whatever_happens(settings: Settings, script: list[Any]) -> None:
    play(settings, script)


@effort(300)
@given(any_settings(), scripts())
@example(
    Settings(num_blocks=4, max_num_seqs=2, static=True),
    [{"prompt": [1] * 4, "max_tokens": 1}, {"prompt": [2] * 4, "max_tokens": 12}],
)
def test_static_batches_are_right_whatever_happens(settings: Settings, script: list[Any]) -> None:
    play(replace(settings, static=True), script)
