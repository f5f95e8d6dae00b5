"""Task 8.3: whose the dicts of a chunk are, and what a reply keeps of a stream."""

from itertools import count
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, start_script, task
from grader.kit.api import STOP, make_request, tell
from grader.kit.memory import expect_keeps_nothing
from grader.suites.api_server.scripts import KINDS
from grader.suites.api_server.test_streamed_replies import choices_of, spelled

OWN = (
    "What is sent is extended: log-probabilities, tool calls and counts are written into a chunk. Each "
    "chunk is made of new dicts, and what was added to one is in no other."
)


def extended(value: Any) -> None:
    """Adds an entry to each of the dicts that a chunk is made of."""
    if isinstance(value, dict):
        for inner in list(value.values()):
            extended(inner)
        value["added"] = True
    if isinstance(value, list):
        for inner in value:
            extended(inner)


@task("8.3")
def test_chunks_share_no_dicts(part: ModuleType) -> None:
    """What a caller adds to a chunk is in no later chunk: not of this choice, nor of another one."""
    for kind in KINDS:
        requests = [make_request(f"r{index}", n=2, index=index) for index in range(2)]
        reply = getattr(part, kind)("m", [request.submitted for request in requests])
        for number, (text, reason) in enumerate((("a", None), ("b", None), ("c", STOP))):
            for index, request in enumerate(requests):
                output = request.says(text, reason)
                got = choices_of(reply, [output])
                expected = spelled(kind, index, output, first=number == 0)
                what = f"the choices of the chunks of the {tell(output)}"
                expect_equal(got, expected, what, why=OWN if "added" in str(got) else "")
                extended(got)
                note('# the caller adds "added": True to each dict of these chunks')


@task("8.3")
def test_a_stream_keeps_no_text(part: ModuleType) -> None:
    """A reply that is streamed keeps no text that was sent, however long the stream is."""
    for kind in KINDS:
        start_script()
        request = make_request()
        reply, numbers = getattr(part, kind)("m", [request.submitted]), count()

        def stream(request: Any = request, reply: Any = reply, numbers: Any = numbers) -> None:
            start_script()
            for _ in reply.chunks(request.says(f"{next(numbers):09} " * 40)):
                pass

        note(f"# a {kind}, whose chunks are made for outputs of 400 characters each")
        expect_keeps_nothing(stream, "chunks of one reply, called again and again,")
