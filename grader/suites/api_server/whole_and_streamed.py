"""What tasks 8.2 and 8.3 ask alike, of `add` and of `chunks`."""

from collections.abc import Callable
from copy import deepcopy
from types import ModuleType
from typing import Any

from grader.kit import Mismatch, expect_equal, note, start_script
from grader.kit.apart import expect_unchanged
from grader.kit.api import STOP, FakeRequest, make_request, tell
from grader.suites.api_server.scripts import KINDS
from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind

TOTALS = (
    "num_output_tokens is the total of the request. Tokens may have been sent past the reply, so those "
    "of the outputs that it sees need not add up to it."
)
LENT = "The outputs and the list of requests belong to the caller, who goes on using them."
AS_IT_IS = (
    "`raise_if_failed` raises the output's own exception: its class has the status, which tells a "
    "client whether to send the request again. That some text came before changes nothing."
)

Take = Callable[[Any, RequestOutput], Any]
"""Gives an output to a reply: by `add`, or by all of `chunks`."""


def check_totals(part: ModuleType, take: Take, name: str) -> None:
    """Tokens that no output of this reply brought are counted."""
    request = make_request(prompt=9, cached=4)
    reply = part.TextReply("m", [request.submitted])
    take(reply, request.says("a"))
    request.made += 5
    output = request.says("b", STOP)
    take(reply, output)
    note(f"reply.{name}(an output of 1 token, then one of 1 token with num_output_tokens=7)")
    got = reply.usage()["completion_tokens"]
    expect_equal(got, 7, "completion_tokens where the last output's total is 7", why=TOTALS)


def check_lent(part: ModuleType, take: Take, name: str) -> None:
    """What a reply was given is as it was."""
    for kind in KINDS:
        start_script()
        requests = [make_request(f"r{i}", prompt=5, cached=3 - i, n=2, index=i) for i in (1, 0)]
        submitted = [request.submitted for request in requests]
        before = list(submitted)
        reply = getattr(part, kind)("m", submitted)
        for request in requests:
            for text, reason in (("Hel", None), ("lo", STOP)):
                request.cached += 1  # of a request that was preempted
                output = request.says(text, reason)
                given = deepcopy(output)
                note(f"reply.{name}({tell(output)})")
                take(reply, output)
                reply.usage()
                _expect_lent(output, given, f"the output that {name} was given")
        expect_unchanged(submitted, before, "the list of requests that the reply was made of")


def _expect_lent(output: RequestOutput, given: RequestOutput, what: str) -> None:
    """An output is unchanged, reasons by their class too: a str is equal to one of a StrEnum."""
    fields = ("text", "token_ids", "finish_reason", "stop_reason", "num_output_tokens",
              "num_cached_tokens")  # fmt: skip
    for field in fields:
        was, now = getattr(given, field), getattr(output, field)
        if was != now or type(was) is not type(now):
            raise Mismatch(f"{what}: its {field} was changed", repr(was), repr(now), LENT)


def check_failures(part: ModuleType, take: Take, name: str) -> None:
    """Every kind of failure is raised as it is, at once and behind some text."""
    for kind in FailureKind:
        for words in ("its logits are not finite", ""):
            for texts in ((), ("a", "b")):
                request = make_request()
                reply = part.ChatReply("m", [request.submitted])
                start_script()
                for text in texts:
                    take(reply, request.says(text))
                _fail(reply, request, kind, words, take, f"{name} behind {len(texts)} outputs")


def _fail(
    reply: Any, request: FakeRequest, kind: FailureKind, words: str, take: Take, what: str
) -> None:
    output = request.fails(words)
    output.failure = kind
    right = output.exception
    note(f"# {what}: the last one failed, failure={kind.value!r}, error={words!r}")
    try:
        take(reply, output)
    except YaieError as error:
        got = (type(error).__name__, error.message, error.param)
        wanted = (
            type(right).__name__,
            getattr(right, "message", ""),
            getattr(right, "param", None),
        )
        expect_equal(got, wanted, f"what {what} raises for the failure {kind.value}", why=AS_IT_IS)
    else:
        problem = f"{what} raises nothing for the failure {kind.value} with the words {words!r}"
        raise Mismatch(problem, repr(right), "no error", AS_IT_IS)
