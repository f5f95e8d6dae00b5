"""What a piece of a stream costs does not grow with the stream, nor with other choices."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import task
from grader.kit.api import STOP, make_request
from grader.kit.growth import expect_growth

STREAM = (
    "A chunk is made for every token of every stream. It holds what is new: no text is collected, "
    "joined or counted again for it."
)
ONCE = "An output is about one choice; the answer is put together once, when all is there."


def answered(part: ModuleType, pieces: int, choices: int = 1, *, whole: bool) -> tuple[Any, Any]:
    """A reply that has had so many pieces of each choice; and the requests."""
    requests = [make_request(f"r{index}", n=choices, index=index) for index in range(choices)]
    reply = part.ChatReply("m", [request.submitted for request in requests])
    for _ in range(pieces):
        for request in requests:
            output = request.says("some words ")
            if whole:
                reply.add(output)
            else:
                list(reply.chunks(output))
    return reply, requests


@task("8.2")
def test_a_whole_answer_costs_its_pieces(part: ModuleType) -> None:
    """add costs the same beside any choice; result costs the pieces once."""

    def add(choices: int) -> Callable[[], Any]:
        reply, requests = answered(part, 2, choices, whole=True)
        return partial(reply.add, requests[0].says("more "))

    def result(n: int, choices: int = 1) -> Callable[[], Any]:
        reply, requests = answered(part, n, choices, whole=True)
        for request in requests:
            reply.add(request.says("", STOP))
        return reply.result

    expect_growth(part, "add", "choices", add, size=24, why=ONCE)
    expect_growth(part, "result", "pieces", result, exponent=1, why=ONCE)
    expect_growth(part, "result", "choices", lambda n: result(2, n), size=24, exponent=1, why=ONCE)


@task("8.3")
def test_a_chunk_costs_its_own_text(part: ModuleType) -> None:
    """chunks costs the same behind any text and beside any choice."""

    def chunk(n: int, choices: int = 1) -> Callable[[], Any]:
        reply, requests = answered(part, n, choices, whole=False)
        output = requests[0].says("more ")
        return lambda: list(reply.chunks(output))

    expect_growth(part, "chunks of one output", "pieces before", chunk, why=STREAM)
    expect_growth(
        part, "chunks of one output", "choices", lambda n: chunk(2, n), size=24, why=STREAM
    )
