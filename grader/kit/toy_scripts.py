"""Random lives of a toy engine: requests arrive, are aborted, crowd each other out, and end.

`play` carries out a script and holds every request to the model without a cache.
"""

import operator
from dataclasses import dataclass

from hypothesis import strategies as st

from grader.kit.expect import expect, expect_equal
from grader.kit.toy import Settings, Toy
from grader.kit.toy_model import VOCAB, toy_output
from yaie.core.request import FinishReason, Request

# Two long texts that begin alike; a prompt is the start of one, and some tokens of its own.
TEXTS = [
    [(i * i + i // 3) % VOCAB for i in range(70)],
    [(i * i + i // 4) % VOCAB for i in range(70)],
]


@dataclass(frozen=True)
class Arrive:
    """n requests with this prompt."""

    prompt: tuple[int, ...]
    max_tokens: int = 1
    priority: int = 0
    n: int = 1


@dataclass(frozen=True)
class Abort:
    """One of those alive ends: between two steps, or after a step has begun."""

    index: int
    in_flight: bool = False


@dataclass(frozen=True)
class Step:
    """One step of the engine."""


Event = Arrive | Abort | Step


@st.composite
def any_settings(
    draw: st.DrawFn, least_tokens: int = 14, most_tokens: int = 40, most_drafts: int = 0
) -> Settings:
    """A pool for that many tokens: requests that fit alone and crowd each other out together."""
    block_size = draw(st.sampled_from([1, 2, 4]))
    num_blocks = draw(st.integers(least_tokens, most_tokens)) // block_size
    chunked = draw(st.booleans())
    drafts = draw(st.integers(0, most_drafts))
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
        ahead=draw(st.integers(0, 2)),
        drafts=drafts,
    )


@st.composite
def arrivals(draw: st.DrawFn, most_siblings: int) -> Arrive:
    text = draw(st.sampled_from(TEXTS))
    length = draw(st.sampled_from([0, 1, 3, 4, 6, 8, 9, 12, 20]))
    prompt = text[:length] + draw(st.lists(st.integers(0, 4), max_size=2))
    return Arrive(
        prompt=tuple(prompt or [0]),
        max_tokens=draw(st.sampled_from([1, 2, 5, 9, 14])),
        priority=draw(st.integers(-1, 1)),
        n=draw(st.integers(1, most_siblings)),
    )


def any_script(most_siblings: int = 1, most_events: int = 40) -> st.SearchStrategy[list[Event]]:
    """Some arrivals, then anything; most of it steps."""
    arrival = arrivals(most_siblings)
    abort = st.builds(Abort, st.integers(0, 20), st.booleans())
    event: st.SearchStrategy[Event] = st.one_of(arrival, abort, *[st.just(Step())] * 5)
    start = st.lists(arrival, min_size=2, max_size=6)
    return st.builds(operator.add, start, st.lists(event, max_size=most_events))


def play(toy: Toy, script: list[Event]) -> None:
    """Every event, then steps to the end; `Toy` checks all that it sees."""
    for event in script:
        match event:
            case Arrive():
                toy.add(event.prompt, event.max_tokens, priority=event.priority, n=event.n)
            case Abort() if toy.alive:
                _abort(toy, toy.alive[event.index % len(toy.alive)], event.in_flight)
            case Step():
                toy.step()
    toy.run()
    for request in toy.requests:
        _expect_right(request, toy.settings)
    toy.cache.reset_prefix_cache()
    expect_equal(toy.blocks.num_free, toy.settings.num_blocks, "free blocks of an empty engine")


def _abort(toy: Toy, request: Request, in_flight: bool) -> None:
    if in_flight:
        toy.begin()
    if not request.is_finished:  # it may have failed in this step
        toy.finish(request)
    while len(toy.in_flight) > toy.settings.ahead:
        toy.take()


def _expect_right(request: Request, settings: Settings) -> None:
    """Its tokens are right as far as they go, and only one that cannot fit has failed."""
    name, prompt = request.request_id, request.token_ids[: request.num_prompt_tokens]
    expected = toy_output(prompt, request.max_tokens, request.seed)
    if request.finish_reason is not FinishReason.LENGTH:
        expected = expected[: request.num_output_tokens]
    why = (
        "Chunks, shared blocks and preemptions change when a token is computed, never which it is."
    )
    expect_equal(request.output_token_ids, expected, f"the output of {name}", why=why)
    if request.finish_reason is FinishReason.ERROR:
        room = settings.num_blocks * settings.block_size
        most = len(prompt) + request.max_tokens - 1
        expect(most > room, f"{name} failed, but its {most} tokens fit into the {room} slots")
