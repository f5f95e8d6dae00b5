"""Task 8.3: whose the outputs are, what they count, and how a choice may end."""

from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, task
from grader.kit.api import make_request
from grader.suites.api_server.scripts import KINDS
from grader.suites.api_server.test_streamed_replies import choices_of
from grader.suites.api_server.whole_and_streamed import check_failures, check_lent, check_totals
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason


def stream(reply: Any, output: RequestOutput) -> None:
    for _ in reply.chunks(output):
        pass


@task("8.3")
def test_a_streamed_output_has_the_totals_of_its_request(part: ModuleType) -> None:
    """completion_tokens of a stream are what the newest output of each choice says."""
    check_totals(part, stream, "chunks")


@task("8.3")
def test_chunks_changes_nothing_that_it_was_given(part: ModuleType) -> None:
    """An output whose chunks were made, and the list of requests, are what they were."""
    check_lent(part, stream, "chunks")


@task("8.3")
def test_every_failure_is_raised_by_chunks(part: ModuleType) -> None:
    """chunks raises what the output says, whichever kind of failure it is and whatever came before."""
    check_failures(part, stream, "chunks")


@task("8.3")
def test_every_reason_is_told(part: ModuleType) -> None:
    """The last chunk of a choice has the value of its output's reason, whichever it is."""
    why = "Only the reason's own value is true: an answer that was aborted is not a whole one."
    for kind in KINDS:
        for reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT):
            request = make_request()
            note(f"# a {kind}, whose only output ends with {reason}")
            reply = getattr(part, kind)("m", [request.submitted])
            got = choices_of(reply, [request.says("a", reason)])[-1]["finish_reason"]
            expect_equal(got, reason.value, "finish_reason of the last chunk", why=why)
