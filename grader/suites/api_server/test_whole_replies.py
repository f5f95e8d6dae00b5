"""Task 8.2: a whole answer, and what it counts."""

from types import ModuleType
from typing import Any

from hypothesis import given

from grader.kit import Mismatch, examples, expect, expect_equal, expect_raises, note, task
from grader.kit.api import LENGTH, STOP, make_request, tell
from grader.suites.api_server.apps import has_client
from grader.suites.api_server.scripts import KINDS, REASONS, CallScript, call_scripts, counted
from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason

ONCE = (
    "The n siblings share one prompt, which is computed once and must be counted (and paid) once."
)
CACHED = "Cached tokens are part of the prompt's, not added to them and not taken from them."
ZERO = "Token 0 is a token like any other: what is absent is None."
TOTALS = "What an output counts are totals of its request, this output included."


def add(reply: Any, output: RequestOutput) -> None:
    note(f"reply.add({tell(output)})")
    reply.add(output)


def choice_of(kind: str, index: int, text: str, reason: str, stop_reason: Any = None) -> Any:
    """A finished choice, spelled out."""
    message = {"role": "assistant", "content": text, "refusal": None}
    said = {"message": message} if kind == "ChatReply" else {"text": text}
    end = {"logprobs": None, "finish_reason": reason, "stop_reason": stop_reason}
    return {"index": index, **said, **end}


@task("8.2")
def test_the_end_of_a_choice_tells_why(part: ModuleType) -> None:
    """ending gives the last output's own finish_reason and stop_reason."""
    why = 'A client that reads "length" knows that the text was cut, and asks for more.'
    for reason in (STOP, LENGTH, FinishReason.ABORT, None):
        got = part.replies.ending(make_request().says("", reason))
        expected = {
            "logprobs": None,
            "finish_reason": reason.value if reason else None,
            "stop_reason": None,
        }
        expect_equal(
            got, expected, f"the ending after an output with finish_reason {reason}", why=why
        )
    for stop_reason in ("END", 7, 0):
        last = make_request(stop_reason=stop_reason).says("", STOP)
        got = part.replies.ending(last)["stop_reason"]
        expect_equal(got, stop_reason, "stop_reason: which stop string or token it was", why=ZERO)


@task("8.2")
def test_usage_adds_up(part: ModuleType) -> None:
    """usage counts the prompt's, the output's and all tokens, and which were cached."""
    request = make_request(prompt=10, cached=8)
    reply = part.TextReply("m", [request.submitted])
    for output in (request.says("a"), request.says("b"), request.says("c", STOP)):
        add(reply, output)
    expected = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    got = reply.usage()
    what = "usage of 10 prompt tokens (8 cached) and 3 of output"
    prompt, completion = got.get("prompt_tokens"), got.get("completion_tokens")
    why = CACHED if prompt in (2, 18) else TOTALS if completion == 1 + 2 + 3 else ""
    expect_equal(got, expected, what, why=why)


@task("8.2")
def test_usage_counts_as_far_as_outputs_have_come(part: ModuleType) -> None:
    """Before the first output nothing is cached or completed; then the newest output has the total."""
    request = make_request(prompt=10, cached=8)
    reply = part.TextReply("m", [request.submitted])
    empty = {
        "prompt_tokens": 10,
        "completion_tokens": 0,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    why = "A client may leave while its request waits, and the log says what it has cost."
    expect_equal(reply.usage(), empty, "usage before the first output", why=why)
    for number, (tokens, total, summed) in enumerate(((1, 1, 1), (3, 4, 5), (2, 6, 11)), 1):
        add(reply, request.says("x", tokens=tokens))
        got = reply.usage()["completion_tokens"]
        note(f"reply.usage()  # -> completion_tokens {got}")
        what = f"completion_tokens after an output of {tokens} tokens"
        why = "One output may have several tokens." if got == number else ""
        why = TOTALS if got in (tokens, summed) else why
        expect_equal(got, total, what, why=why)


@task("8.2")
def test_siblings_count_their_prompt_once(part: ModuleType) -> None:
    """Of n siblings the prompt counts once, and each one's output counts."""
    requests = [
        make_request(f"r{i}", prompt=10, cached=4 if i == 0 else 8, n=3, index=i) for i in range(3)
    ]
    reply = part.TextReply("m", [request.submitted for request in requests])
    for number, request in enumerate(requests):
        add(reply, request.says("x", STOP, tokens=number + 1))
    got = reply.usage()
    expect_equal(got["prompt_tokens"], 10, "prompt_tokens of 3 siblings on 10 tokens", why=ONCE)
    expect_equal(got["completion_tokens"], 6, "completion_tokens of outputs of 1, 2 and 3")
    why = "What the first sibling found cached was cached before; the others find the first's work."
    cached = got["prompt_tokens_details"]["cached_tokens"]
    expect_equal(cached, 4, "cached_tokens where the first found 4", why=why)


@task("8.2")
def test_every_prompt_counts(part: ModuleType) -> None:
    """Several prompts of one call count each, with or without siblings."""
    requests = [
        make_request(f"r{i}", prompt=p, cached=p - 2, n=2, index=i % 2)
        for i, p in enumerate((9, 9, 5, 5))
    ]
    reply = part.TextReply("m", [request.submitted for request in requests])
    for request in requests:
        add(reply, request.says("x", STOP))
    got = reply.usage()
    requests_are = "The requests are two siblings on 9 tokens and two on 5: the prompts have 9 + 5."
    prompt = got["prompt_tokens"]
    why = ONCE if prompt == 28 else requests_are
    why = f"{prompt} is one prompt alone. {why}" if prompt in (9, 5) else why
    expect_equal(prompt, 14, "prompt_tokens of prompts of 9 and 5, n=2", why=why)
    cached = got["prompt_tokens_details"]["cached_tokens"]
    why = (
        "Each prompt's cached tokens count: those of its first sibling." if cached == 7 else CACHED
    )
    expect_equal(cached, 10, "cached_tokens where 7 and 3 were cached", why=why)


@task("8.2")
def test_a_whole_conversation(part: ModuleType) -> None:
    """A ChatReply's result is a chat.completion with the message, the reason and the usage."""
    request = make_request(prompt=3)
    reply = part.ChatReply("m", [request.submitted])
    for output in (request.says("Hel"), request.says(""), request.says("lo", LENGTH)):
        add(reply, output)
    got = reply.result()
    head = {key: got.get(key) for key in ("id", "object", "model")}
    expected_head = {"id": reply.id, "object": "chat.completion", "model": "m"}
    expect_equal(head, expected_head, "id, object and model of the answer")
    why = "The text of a choice is that of all its outputs, and its reason that of its last one."
    expected = [choice_of("ChatReply", 0, "Hello", "length")]
    expect_equal(got.get("choices"), expected, "the choices of the answer", why=why)
    why = "Clients that pay by the token, or watch the cache, read the usage of every answer."
    expect("usage" in got, "the answer has no usage", why=why)
    expect_equal(got["usage"].get("total_tokens"), 6, "total_tokens", why=why)


@task("8.2")
def test_a_whole_text(part: ModuleType) -> None:
    """A TextReply's result is a text_completion, whose choice has a text and no message."""
    request = make_request(stop_reason="END")
    reply = part.TextReply("m", [request.submitted])
    add(reply, request.says("Hello", STOP))
    got = reply.result()
    expect_equal(got.get("object"), "text_completion", "the answer's object")
    expected = [choice_of("TextReply", 0, "Hello", "stop", "END")]
    expect_equal(got.get("choices"), expected, "the choices of the answer")


@task("8.2")
def test_the_official_client_reads_the_answers(part: ModuleType) -> None:
    """Whole answers are what OpenAI's own client library takes for answers."""
    if not has_client():
        return
    from openai.types import Completion
    from openai.types.chat import ChatCompletion
    from pydantic import ValidationError

    for kind, judge in (("ChatReply", ChatCompletion), ("TextReply", Completion)):
        request = make_request()
        reply = getattr(part, kind)("m", [request.submitted])
        add(reply, request.says("Hello", LENGTH))
        try:
            judge.model_validate(reply.result())
        except ValidationError as error:
            problem = f"the official client cannot read the answer of a {kind}"
            raise Mismatch(problem, got=str(error)) from None


@task("8.2")
def test_choices_stand_in_the_order_of_their_requests(part: ModuleType) -> None:
    """However the outputs of several requests mingle, choice i has the text of request i."""
    requests = [make_request(f"r{index}", n=2) for index in range(2)]
    reply = part.TextReply("m", [request.submitted for request in requests])
    for index in (1, 0, 0, 1):
        add(reply, requests[index].says(f"<{index}>"))
    for request in reversed(requests):
        add(reply, request.says("", STOP))
    choices = reply.result()["choices"]
    why = "A client distinguishes the choices of one call only by their index."
    got = [(choice["index"], choice["text"]) for choice in choices]
    expect_equal(got, [(0, "<0><0>"), (1, "<1><1>")], "index and text of the choices", why=why)


@task("8.2")
def test_a_failed_request_is_no_answer(part: ModuleType) -> None:
    """The last output of a request that failed in the engine raises what the engine said."""
    request = make_request()
    failed = request.fails("its logits are not finite")
    why = "A client must not take half a text, or none, for an answer."
    with expect_raises(YaieError, "adding the output of a request that failed", why=why):
        add(part.ChatReply("m", [request.submitted]), failed)


@task("8.2")
@examples(50)
@given(script=call_scripts())
def test_any_outputs_make_a_whole_answer(part: ModuleType, script: CallScript) -> None:
    """Whatever comes in which order, every choice has its text and its end, and usage adds up."""
    for kind in KINDS:
        reply = getattr(part, kind)("m", script.submitted)
        for output in script.outputs():
            add(reply, output)
        got = reply.result()
        expected = [
            choice_of(
                kind, index, script.text(index), REASONS[index % 2].value, request.stop_reason
            )
            for index, request in enumerate(script.requests)
        ]
        expect_equal(got["choices"], expected, "the choices of the answer")
        expect_equal(got["usage"], counted(script.requests, script.n), "usage", why=ONCE)
