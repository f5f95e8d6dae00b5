"""Task 8.3: an answer in chunks."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given

from grader.kit import Mismatch, examples, expect, expect_equal, expect_raises, note, task
from grader.kit.api import ERROR, LENGTH, STOP, borrowed, make_request, piece, tell
from grader.suites.api_server.scripts import KINDS, CallScript, call_scripts
from yaie.core.errors import YaieError
from yaie.core.request import RequestOutput

ROLE = "A client starts a new message where it reads a role: once for each choice, before its text."
LAST = "finish_reason stands in the last chunk of a choice, which has no text, and in no other."
ENDS = "Clients stop reading a choice at its finish_reason: text in that chunk or after it is lost."


@pytest.fixture(autouse=True)
def _usage_is_another_task(part: ModuleType) -> Iterator[None]:
    with borrowed(part.replies, "usage"):
        yield


def chunks_of(reply: Any, outputs: list[RequestOutput]) -> list[Any]:
    """All chunks that these outputs make, each checked to have one choice."""
    found = []
    for output in outputs:
        chunks = list(reply.chunks(output))
        note(f"reply.chunks({tell(output)})  # -> {[chunk.get('choices') for chunk in chunks]}")
        found += chunks
    for chunk in found:
        expect_equal(len(chunk["choices"]), 1, "how many choices a chunk has")
    return found


def choices_of(reply: Any, outputs: list[RequestOutput]) -> list[Any]:
    return [chunk["choices"][0] for chunk in chunks_of(reply, outputs)]


@task("8.3")
def test_the_role_comes_first_and_once(part: ModuleType) -> None:
    """A conversation's first chunk names the role, with "" as content; no other chunk has a role."""
    request = make_request()
    reply = part.ChatReply("m", [request])
    choices = choices_of(
        reply, [piece(request, "Hel"), piece(request, "lo"), piece(request, "", STOP)]
    )
    expect(choices, "there are no chunks at all")
    opening = {"role": "assistant", "content": ""}
    expect_equal(choices[0]["delta"], opening, "the delta of the first chunk", why=ROLE)
    roles = sum("role" in choice["delta"] for choice in choices)
    expect_equal(roles, 1, "how many chunks name a role", why=ROLE)


@task("8.3")
def test_every_choice_names_its_role(part: ModuleType) -> None:
    """Each of several choices is opened by a role of its own, when its first output comes."""
    requests = [make_request(f"r{index}", n=2) for index in range(2)]
    reply = part.ChatReply("m", requests)
    order = (1, 0, 1, 0)
    choices = choices_of(reply, [piece(requests[index], "x") for index in order])
    got = [(choice["index"], choice["delta"].get("role")) for choice in choices]
    expected = [(1, "assistant"), (1, None), (0, "assistant"), (0, None), (1, None), (0, None)]
    expect_equal(got, expected, "index and role of each chunk of r1, r0, r1, r0", why=ROLE)


@task("8.3")
def test_a_role_does_not_wait_for_text(part: ModuleType) -> None:
    """Where the first text is held back the role comes nevertheless, and no chunk is empty."""
    request = make_request()
    reply = part.ChatReply("m", [request])
    deltas = [choice["delta"] for choice in choices_of(reply, [piece(request, "")])]
    why = "The role says that the answer has begun; a chunk without news is a packet for nothing."
    expect_equal(deltas, [{"role": "assistant", "content": ""}], "the first deltas", why=why)
    deltas = [choice["delta"] for choice in choices_of(reply, [piece(request, "")])]
    why = (
        "Text is held back, there is nothing to say: a chunk without news is a packet for nothing."
    )
    expect_equal(deltas, [], "the deltas of a second output without text", why=why)


@task("8.3")
def test_the_output_says_when_it_is_the_last(part: ModuleType) -> None:
    """A request may have finished while its earlier outputs are still on their way."""
    request = make_request()
    early, last = piece(request, "a"), piece(request, "b", STOP)  # both made before one is sent
    reply = part.TextReply("m", [request])
    reasons = [choice["finish_reason"] for choice in choices_of(reply, [early])]
    why = "The engine is ahead of the stream: ask the output, not the request, whether it is over."
    expect_equal(reasons, [None], "finish_reason after the first of two outputs", why=why)
    reasons = [choice["finish_reason"] for choice in choices_of(reply, [last])]
    expect_equal(reasons, [None, "stop"], "finish_reason after the last", why=LAST)


@task("8.3")
def test_the_reason_has_a_chunk_of_its_own(part: ModuleType) -> None:
    """The last output's text goes first, then a chunk without text that has the finish_reason."""
    request = make_request()
    request.stop_reason = "END"
    reply = part.ChatReply("m", [request])
    choices = choices_of(reply, [piece(request, "Hel"), piece(request, "lo", LENGTH)])
    expect_equal(
        [choice["delta"].get("content") for choice in choices],
        ["", "Hel", "lo", None],
        "the contents of the chunks", why=ENDS,
    )  # fmt: skip
    reasons = [choice["finish_reason"] for choice in choices]
    expect_equal(reasons, [None, None, None, "length"], "the chunks' finish_reason", why=LAST)
    expect_equal(choices[-1]["delta"], {}, "the delta of the last chunk", why=ENDS)
    got = [choice.get("stop_reason") for choice in choices]
    expect_equal(got, [None, None, None, "END"], "the chunks' stop_reason")


@task("8.3")
def test_a_text_has_no_role(part: ModuleType) -> None:
    """A TextReply's chunks have texts: no opening, and "" beside the finish_reason."""
    request = make_request()
    reply = part.TextReply("m", [request])
    choices = choices_of(reply, [piece(request, ""), piece(request, "Hi", STOP)])
    common = {"index": 0, "logprobs": None}
    expected = [
        {**common, "text": "Hi", "finish_reason": None},
        {**common, "text": "", "finish_reason": "stop", "stop_reason": None},
    ]
    expect_equal(choices, expected, "the choices of the chunks", why=ENDS)


@task("8.3")
def test_all_chunks_belong_to_one_answer(part: ModuleType) -> None:
    """Every chunk has the answer's id, time and model, and the object that its kind of answer has."""
    for kind, name in (("ChatReply", "chat.completion.chunk"), ("TextReply", "text_completion")):
        request = make_request()
        reply = getattr(part, kind)("m", [request])
        outputs = [piece(request, "a"), piece(request, "b", STOP)]
        chunks = [*chunks_of(reply, outputs), reply.usage_chunk()]
        for chunk in chunks:
            got = {key: chunk.get(key) for key in ("id", "object", "model")}
            expected = {"id": reply.id, "object": name, "model": "m"}
            expect_equal(got, expected, "id, object and model of a chunk")
        expect_equal(
            len({chunk.get("created") for chunk in chunks}), 1, "how many times `created` has"
        )


@task("8.3")
def test_usage_comes_without_choices_and_only_if_asked(part: ModuleType) -> None:
    """Asked for, usage is null in all chunks and stands in a last one without choices."""
    request = make_request(prompt=3)
    outputs = [piece(request, "a"), piece(request, "b", STOP)]
    for chunk in chunks_of(part.ChatReply("m", [request]), outputs):
        expect("usage" not in chunk, "a chunk has usage that was not asked for")
    reply = part.ChatReply("m", [request], include_usage=True)
    why = "OpenAI: all other chunks will include a usage field, but with a null value."
    for chunk in chunks_of(reply, outputs):
        expect_equal(
            chunk.get("usage", "no usage"), None, "usage in a chunk with a choice", why=why
        )
    last = reply.usage_chunk()
    why = "Clients take the chunk without choices for the usage; with one it looks like text."
    expect_equal(last.get("choices"), [], "the choices of the usage chunk", why=why)
    got = (last.get("usage") or {}).get("total_tokens")
    expect_equal(got, 5, "total_tokens of the usage chunk")


@task("8.3")
def test_the_official_client_reads_the_chunks(part: ModuleType) -> None:
    """The chunks of a conversation are what OpenAI's own client library takes for chunks."""
    from openai.types.chat import ChatCompletionChunk
    from pydantic import ValidationError

    request = make_request()
    reply = part.ChatReply("m", [request], include_usage=True)
    for chunk in [*chunks_of(reply, [piece(request, "a", STOP)]), reply.usage_chunk()]:
        note(f"ChatCompletionChunk.model_validate({chunk})")
        try:
            ChatCompletionChunk.model_validate(chunk)
        except ValidationError as error:
            raise Mismatch("the official client cannot read a chunk", got=str(error)) from None


@task("8.3")
def test_a_failed_request_ends_in_an_error(part: ModuleType) -> None:
    """The last output of a request that failed raises before any chunk comes of it."""
    request = make_request()
    request.error = "its logits are not finite"
    failed = piece(request, "", ERROR)
    why = 'finish_reason "error" is no word of OpenAI\'s: clients refuse it or take it for an end.'
    with expect_raises(YaieError, "making chunks of a request that failed", why=why):
        next(iter(part.ChatReply("m", [request]).chunks(failed)))


@task("8.3")
@examples(60)
@given(script=call_scripts())
def test_any_outputs_make_chunks(part: ModuleType, script: CallScript) -> None:
    """Whatever comes in which order, every choice is opened, told and ended once, in this order."""
    for kind in KINDS:
        reply = getattr(part, kind)("m", script.requests)
        opened: set[int] = set()
        for output in script.outputs():
            got = choices_of(reply, [output])
            index = script.requests.index(output.request)
            expected = spelled(kind, index, output, first=index not in opened)
            expect_equal(got, expected, f"the choices of the chunks of the {tell(output)}")
            opened.add(index)


def spelled(kind: str, index: int, output: RequestOutput, *, first: bool) -> list[Any]:
    """The choices of an output's chunks, spelled out."""
    chat = kind == "ChatReply"
    common = {"index": index, "logprobs": None, "finish_reason": None}
    found: list[dict[str, Any]] = []
    if first and chat:
        found.append({**common, "delta": {"role": "assistant", "content": ""}})
    if output.text:
        told = {"delta": {"content": output.text}} if chat else {"text": output.text}
        found.append({**common, **told})
    if output.finish_reason:
        end = {
            "finish_reason": output.finish_reason.value,
            "stop_reason": output.request.stop_reason,
        }
        found.append({**common, **({"delta": {}} if chat else {"text": ""}), **end})
    return found
