"""The engines and the ways of looking at them that the tests of tasks 6.4 to 6.9 share.

Blocks have four slots. A and B are texts for prompts that have no block in common.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal
from grader.kit.toy import PLAIN, Settings, Toy
from grader.kit.toy_scripts import Event, any_script, play
from grader.kit.toy_words import tell_share
from yaie.core.batch import StepPlan
from yaie.core.request import Request

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6


def expect_shares(
    plan: StepPlan, shares: list[str], why: str, what: str = "the shares of the step"
) -> None:
    """In whatever order the plan has them."""
    expect_equal(sorted(tell_share(item) for item in plan.scheduled), sorted(shares), what, why=why)


def expect_right(toy: Toy, why: str) -> None:
    """To the end: the outputs are those of a model without a cache."""
    outputs = toy.run()
    for request, got, expected in zip(toy.requests, outputs, toy.expected(), strict=True):
        expect_equal(got, expected, f"the output of {request.request_id}", why=why)


def cached(toy: Toy, token_ids: Sequence[int]) -> int:
    """How many leading tokens a request with this prompt would find in the cache."""
    return toy.cache.cached_tokens(Request("probe", [*token_ids, 0], PLAIN))


def counts_at_free(toy: Toy, request: Request) -> list[tuple[int, int]]:
    """Filled from now on: num_computed_tokens and num_in_flight of a request when `free` is called."""
    seen: list[tuple[int, int]] = []
    free = toy.cache.free

    def free_and_know(given: Request, *, keep: bool = True) -> None:
        if given is request:
            seen.append((given.num_computed_tokens, given.num_in_flight))
        free(given, keep=keep)

    toy.cache.free = free_and_know  # type: ignore[method-assign, assignment]
    return seen


def crowd(part: Any, num_host_blocks: int = 0, **settings: Any) -> Toy:
    """Two requests that fit alone, but not together once they have grown."""
    toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks, **settings), part)
    toy.add(A[:9], max_tokens=12)
    toy.add(B[:9], max_tokens=12)
    return toy


def the_preempted(toy: Toy) -> Request:
    """Step until a request is preempted: it must be one, and not none before all have ended."""
    preempted = until_preempted(toy)
    names = [request.request_id for request in preempted]
    expect(
        len(preempted) == 1,
        f"{names or 'none'} preempted before all requests have ended, and not one",
        why="These requests fit the pool when they come, so all are let in, and one too many when they "
        "have grown. If one of them was kept waiting instead, admission asks for too much room.",
    )
    return preempted[0]


def until_preempted(toy: Toy) -> list[Request]:
    """Step until a request is preempted; whether a step is in flight then, the settings say."""
    while toy.alive:
        if preempted := toy.step().preempted:
            return preempted
    return []


def play_any(
    part: Any, settings: st.SearchStrategy[Settings], count: int, most_siblings: int = 1
) -> None:
    """Random lives of an engine with these settings."""

    @examples(count)
    @given(settings, any_script(most_siblings, most_events=25))
    def live(setting: Settings, script: list[Event]) -> None:
        play(Toy(setting, part), script)

    live()
