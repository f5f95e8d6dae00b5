"""Whatever arrives, leaves, or is taken back: the tokens are those of a model without any cache."""

from dataclasses import replace

import pytest
from hypothesis import example, given

from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import Arrive, Event, Step, any_script, any_settings, play
from tests.solutions.properties import effort

pytestmark = pytest.mark.slow


@effort(200)
@given(any_settings(most_drafts=3), any_script())
def test_outputs_are_right_whatever_happens(settings: Settings, script: list[Event]) -> None:
    play(Toy(settings), script)


@pytest.mark.nightly
@effort(3000)
@given(any_settings(most_drafts=3), any_script())
def test_outputs_are_right_whatever_happens_at_length(
    settings: Settings, script: list[Event]
) -> None:
    play(Toy(settings), script)


# Beside another request the prompt is computed token by token, and no chunk of one is committed.
TRICKLE = [Arrive((4,), max_tokens=4), Arrive((1, 2, 3), max_tokens=4, n=2)]


@pytest.mark.nightly
@effort(300)
@given(any_settings(most_drafts=2), any_script(most_siblings=3))
@example(Settings(block_size=1, token_budget=2), TRICKLE)
def test_siblings_share_a_prompt_whatever_happens(settings: Settings, script: list[Event]) -> None:
    play(Toy(settings), script)


@pytest.mark.nightly
@effort(1000)
@given(any_settings(), any_script())
def test_static_batches_are_right_at_length(settings: Settings, script: list[Event]) -> None:
    play(Toy(replace(settings, static=True)), script)


# The last token of a request comes after it was preempted.
LATE = [
    Arrive((0,), max_tokens=9),
    Arrive((0, 1, 4, 4), max_tokens=9, priority=-1),
    Arrive((0, 1, 4, 0), max_tokens=14, priority=1),
    Arrive((0, 1, 4, 4), max_tokens=5, priority=-1),
    Step(),
    Step(),
]


@effort(100)
@given(any_settings(), any_script())
@example(
    Settings(num_blocks=4, max_num_seqs=2, static=True),
    [Arrive((1,) * 4, max_tokens=1), Arrive((2,) * 4, max_tokens=12)],
)
@example(
    Settings(num_blocks=33, block_size=1, num_host_blocks=40, token_budget=8,
             prefix_caching=False, ahead=1),
    LATE,
)  # fmt: skip
def test_static_batches_are_right_whatever_happens(settings: Settings, script: list[Event]) -> None:
    play(Toy(replace(settings, static=True)), script)
