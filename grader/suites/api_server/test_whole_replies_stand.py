"""Task 8.2 with counts that are kept, and outputs that bring nothing but an end."""

from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, task
from grader.kit.api import STOP, make_request
from grader.kit.standing import BUFFER, expect_results_stand
from grader.suites.api_server.test_whole_replies import add, choice_of


@task("8.2")
def test_usage_stays_what_it_was(part: ModuleType) -> None:
    """Each call of usage makes its own counts: later outputs do not change those of an earlier call."""
    request = make_request(prompt=10, cached=8)
    reply = part.TextReply("m", [request.submitted])

    def count(text: str) -> Any:
        add(reply, request.says(text))
        note("reply.usage()")
        return reply.usage()

    expect_results_stand([lambda: count("a"), lambda: count("b"), lambda: count("c")], "usage")
    first, right = reply.usage(), reply.usage()
    first["prompt_tokens_details"]["cached_tokens"] += 1
    first["completion_tokens"] += 1
    note("# the caller changes the counts that it was given")
    expect_equal(reply.usage(), right, "usage, asked for again", why=BUFFER)


@task("8.2")
def test_an_output_may_bring_nothing_but_the_end(part: ModuleType) -> None:
    """The last output of a choice may have no token and no text: its reason counts all the same."""
    why = "The reason is that of the last output, whatever else came with it."
    for kind in ("ChatReply", "TextReply"):
        request = make_request(stop_reason="END")
        reply = getattr(part, kind)("m", [request.submitted])
        add(reply, request.says("Hel"))
        add(reply, request.says("", STOP, tokens=0))
        expected = [choice_of(kind, 0, "Hel", "stop", "END")]
        expect_equal(reply.result()["choices"], expected, "the choices of the answer", why=why)
        expect_equal(reply.usage()["completion_tokens"], 1, "completion_tokens")
