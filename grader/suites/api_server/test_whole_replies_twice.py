"""Task 8.2: whose the outputs and the answers are, and what is kept of an output."""

from copy import deepcopy
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, start_script, task
from grader.kit.api import STOP, make_request
from grader.kit.memory import expect_keeps_nothing
from grader.suites.api_server.scripts import KINDS
from grader.suites.api_server.test_streamed_replies_objects import extended
from grader.suites.api_server.whole_and_streamed import check_failures, check_lent, check_totals
from yaie.core.output import RequestOutput

AGAIN = "`result` says what has come: it uses nothing up, and makes a dict for each call."


def add(reply: Any, output: RequestOutput) -> None:
    reply.add(output)


@task("8.2")
def test_an_output_has_the_totals_of_its_request(part: ModuleType) -> None:
    """completion_tokens are what the newest output of each choice says."""
    check_totals(part, add, "add")


@task("8.2")
def test_add_changes_nothing_that_it_was_given(part: ModuleType) -> None:
    """An output that was added, and the list of requests, are what they were."""
    check_lent(part, add, "add")


@task("8.2")
def test_every_failure_is_raised_by_add(part: ModuleType) -> None:
    """add raises what the output says, whichever kind of failure it is and whatever came before."""
    check_failures(part, add, "add")


@task("8.2")
def test_an_answer_may_be_asked_for_twice(part: ModuleType) -> None:
    """result gives the same answer again, also when the caller has changed the first."""
    for kind in KINDS:
        start_script()
        request = make_request()
        reply = getattr(part, kind)("m", [request.submitted])
        for output in (request.says("Hel"), request.says("lo", STOP)):
            reply.add(output)
        note(f"# a {kind} that was given all outputs")
        note("first = reply.result()")
        first = reply.result()
        right = deepcopy(first)
        expect_equal(reply.result(), right, "reply.result(), asked for again", why=AGAIN)
        extended(first)
        note('# the caller adds "added": True to each dict of the first')
        what = "reply.result(), after a caller has written to an earlier one"
        expect_equal(reply.result(), right, what, why=AGAIN)


@task("8.2")
def test_no_more_of_an_output_is_kept_than_its_text(part: ModuleType) -> None:
    """add keeps the text of an output and its newest counts, and no token list of earlier ones."""
    request = make_request()
    reply = part.TextReply("m", [request.submitted])
    note("# outputs of 100 tokens without text are added, one after the other")
    expect_keeps_nothing(lambda: reply.add(request.says("", tokens=100)), "add")
