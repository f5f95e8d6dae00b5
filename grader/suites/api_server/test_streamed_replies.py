"""Task 8.3: an answer in chunks."""

from types import ModuleType
from typing import Any

from hypothesis import given

from grader.kit import (
    Mismatch,
    examples,
    expect,
    expect_equal,
    expect_raises,
    note,
    start_script,
    task,
)
from grader.kit.api import LENGTH, STOP, make_request, tell
from grader.suites.api_server.apps import has_client
from grader.suites.api_server.scripts import KINDS, CallScript, call_scripts
from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput

ROLE = "A client starts a new message where it reads a role: once for each choice, before its text."
LAST = "finish_reason is in the last chunk of a choice, which has no text, and in no other."
ENDS = "Clients stop reading a choice at its finish_reason: text in that chunk or after it is lost."
MID_ANSWER = "A client may leave in mid-answer, and the log says what was computed until then."
UNCOUNTED = "A stream has no `add`: only `chunks` sees the outputs that are to be counted."


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
    reply = part.ChatReply("m", [request.submitted])
    choices = choices_of(reply, [request.says("Hel"), request.says("lo"), request.says("", STOP)])
    expect(choices, "there are no chunks at all")
    opening = {"role": "assistant", "content": ""}
    expect_equal(choices[0]["delta"], opening, "the delta of the first chunk", why=ROLE)
    roles = sum("role" in choice["delta"] for choice in choices)
    expect_equal(roles, 1, "how many chunks name a role", why=ROLE)


@task("8.3")
def test_every_choice_names_its_role(part: ModuleType) -> None:
    """Each of several choices is opened by a role of its own, when its first output comes."""
    requests = [make_request(f"r{index}", n=2, index=index) for index in range(2)]
    reply = part.ChatReply("m", [request.submitted for request in requests])
    order = (1, 0, 1, 0)
    choices = choices_of(reply, [requests[index].says("x") for index in order])
    got = [(choice["index"], choice["delta"].get("role")) for choice in choices]
    expected = [(1, "assistant"), (1, None), (0, "assistant"), (0, None), (1, None), (0, None)]
    expect_equal(got, expected, "index and role of each chunk of r1, r0, r1, r0", why=ROLE)


@task("8.3")
def test_a_role_does_not_wait_for_text(part: ModuleType) -> None:
    """Where the first text is held back the role comes nevertheless, and no chunk is empty."""
    request = make_request()
    reply = part.ChatReply("m", [request.submitted])
    deltas = [choice["delta"] for choice in choices_of(reply, [request.says("")])]
    why = "The role says that the answer has begun; a chunk without news is a packet for nothing."
    expect_equal(deltas, [{"role": "assistant", "content": ""}], "the first deltas", why=why)
    deltas = [choice["delta"] for choice in choices_of(reply, [request.says("")])]
    why = (
        "Text is held back, there is nothing to say: a chunk without news is a packet for nothing."
    )
    expect_equal(deltas, [], "the deltas of a second output without text", why=why)


@task("8.3")
def test_a_choice_ends_with_its_own_last_output(part: ModuleType) -> None:
    """Of two siblings one may be over long before the other."""
    requests = [make_request(f"r{index}", n=2, index=index) for index in range(2)]
    reply = part.TextReply("m", [request.submitted for request in requests])
    outputs = [requests[0].says("", STOP), requests[1].says("b"), requests[1].says("", LENGTH)]
    got = [(c["index"], c["finish_reason"]) for c in choices_of(reply, outputs)]
    expected = [(0, "stop"), (1, None), (1, "length")]
    why = "Each output says for its own choice whether it is the last."
    expect_equal(got, expected, "index and finish_reason of each chunk", why=why)


@task("8.3")
def test_the_reason_has_a_chunk_of_its_own(part: ModuleType) -> None:
    """The last output's text goes first, then a chunk without text that has the finish_reason."""
    request = make_request(stop_reason="END")
    reply = part.ChatReply("m", [request.submitted])
    choices = choices_of(reply, [request.says("Hel"), request.says("lo", LENGTH)])
    contents = [choice["delta"].get("content") for choice in choices]
    lost = any(c["finish_reason"] and c["delta"].get("content") for c in choices)
    why = ENDS if lost else ""
    expect_equal(contents, ["", "Hel", "lo", None], "the contents of the chunks", why=why)
    reasons = [choice["finish_reason"] for choice in choices]
    expect_equal(reasons, [None, None, None, "length"], "the chunks' finish_reason", why=LAST)
    expect_equal(choices[-1]["delta"], {}, "the delta of the last chunk", why=ENDS)
    got = [choice.get("stop_reason") for choice in choices]
    expect_equal(got, [None, None, None, "END"], "the chunks' stop_reason")
    zero = make_request(stop_reason=0)
    last = choices_of(part.TextReply("m", [zero.submitted]), [zero.says("", STOP)])[-1]
    why = "Token 0 is a token like any other: what is absent is None."
    expect_equal(
        last.get("stop_reason"), 0, "the stop_reason of an output that token 0 ended", why=why
    )


@task("8.3")
def test_a_stream_is_counted_as_it_goes(part: ModuleType) -> None:
    """`usage` counts the outputs that have come, also of a stream that has not ended."""
    request = make_request(prompt=9, cached=4)
    reply = part.TextReply("m", [request.submitted])
    chunks_of(reply, [request.says("Hel"), request.says("lo")])
    got = used(reply)
    if got == (0, 0):  # and behind the last output?
        chunks_of(reply, [request.says("", STOP)])
        at_end = used(reply)
        why = MID_ANSWER if at_end == (3, 4) else UNCOUNTED
        what = "completion_tokens and cached_tokens after two outputs, and after the last one"
        expect_equal((got, at_end), ((2, 4), (3, 4)), what, why=why)
    why = "An output has the totals of its request: the newest one counts." * (got[0] in (1, 3))
    expect_equal(got, (2, 4), "completion_tokens and cached_tokens after two outputs", why=why)


def used(reply: Any) -> tuple[int, int]:
    """(completion_tokens, cached_tokens) of what has come."""
    usage = reply.usage()
    found = usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    note(f"reply.usage()  # -> completion_tokens {found[0]}, cached_tokens {found[1]}")
    return found


@task("8.3")
def test_a_chunk_finds_its_output_counted(part: ModuleType) -> None:
    """What an output counts is in `usage` when its first chunk is given, not only after its last."""
    request = make_request(prompt=9)
    reply = part.TextReply("m", [request.submitted])
    first = iter(reply.chunks(request.says("Hel", tokens=3)))
    note("next(reply.chunks(output of 3 tokens)), then reply.usage()")
    next(first)
    why = "A client may ask for the usage so far in every chunk: it is read between two of them."
    got = reply.usage()["completion_tokens"]
    expect_equal(got, 3, "completion_tokens at the first chunk of an output of 3 tokens", why=why)


@task("8.3")
def test_a_last_output_without_tokens_ends_its_choice(part: ModuleType) -> None:
    """An output may bring a reason and nothing else."""
    request = make_request()
    reply = part.TextReply("m", [request.submitted])
    choices = choices_of(reply, [request.says("Hel"), request.says("", STOP, tokens=0)])
    got = [choice["finish_reason"] for choice in choices]
    why = "A client waits for the finish_reason of every choice, whatever came with it."
    expect_equal(got, [None, "stop"], "finish_reason of the chunks, the last output empty", why=why)


@task("8.3")
def test_a_text_has_no_role(part: ModuleType) -> None:
    """A TextReply's chunks have texts: no opening, and "" beside the finish_reason."""
    request = make_request()
    reply = part.TextReply("m", [request.submitted])
    choices = choices_of(reply, [request.says(""), request.says("Hi", STOP)])
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
        reply = getattr(part, kind)("m", [request.submitted])
        outputs = [request.says("a"), request.says("b", STOP)]
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
    """Asked for, usage is null in all chunks and is in a last one without choices."""
    for asked in (False, True):
        start_script()
        request = make_request(prompt=3)
        reply = part.ChatReply("m", [request.submitted], include_usage=asked)
        for chunk in chunks_of(reply, [request.says("a"), request.says("b", STOP)]):
            if asked:
                why = "OpenAI: all other chunks will include a usage field, but with a null value."
                got = chunk.get("usage", "no usage")
                expect_equal(got, None, "usage in a chunk with a choice", why=why)
            else:
                expect("usage" not in chunk, "a chunk has usage that was not asked for")
    last = reply.usage_chunk()
    shown = {key: last.get(key) for key in ("choices", "usage")}
    note(f"reply.usage_chunk()  # -> {{..., {str(shown)[1:]}")
    why = "Clients take the chunk without choices for the usage; with one it looks like text."
    expect_equal(last.get("choices"), [], "the choices of the usage chunk", why=why)
    expect_equal(last.get("usage"), reply.usage(), "usage of the last chunk: what `usage` counts")


@task("8.3")
def test_usage_counts_what_was_streamed(part: ModuleType) -> None:
    """chunks keeps what its outputs count, for `usage`."""
    request = make_request(prompt=3, cached=2)
    reply = part.ChatReply("m", [request.submitted], include_usage=True)
    chunks_of(reply, [request.says("a"), request.says("b", STOP, tokens=2)])
    usage = reply.usage_chunk()["usage"]
    note(f"reply.usage_chunk()['usage']  # -> {usage}")
    got, cached = usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    why = "" if got else UNCOUNTED
    expect_equal(got, 3, "completion_tokens of outputs of 1 and 2", why=why)
    expect_equal(cached, 2, "cached_tokens where the outputs say 2", why=why)


@task("8.3")
def test_the_official_client_reads_the_chunks(part: ModuleType) -> None:
    """The chunks of a conversation are what OpenAI's own client library takes for chunks."""
    if not has_client():
        return
    from openai.types.chat import ChatCompletionChunk
    from pydantic import ValidationError

    request = make_request()
    reply = part.ChatReply("m", [request.submitted], include_usage=True)
    for chunk in [*chunks_of(reply, [request.says("a", STOP)]), reply.usage_chunk()]:
        note(f"ChatCompletionChunk.model_validate({chunk})")
        try:
            ChatCompletionChunk.model_validate(chunk)
        except ValidationError as error:
            raise Mismatch("the official client cannot read a chunk", got=str(error)) from None


@task("8.3")
def test_a_failed_request_ends_in_an_error(part: ModuleType) -> None:
    """The last output of a request that failed raises before any chunk comes of it."""
    request = make_request()
    failed = request.fails("its logits are not finite")
    why = 'finish_reason "error" is no word of OpenAI\'s: clients refuse it or take it for an end.'
    with expect_raises(YaieError, "making chunks of a request that failed", why=why):
        next(iter(part.ChatReply("m", [request.submitted]).chunks(failed)))


@task("8.3")
@examples(60)
@given(script=call_scripts())
def test_any_outputs_make_chunks(part: ModuleType, script: CallScript) -> None:
    """Whatever comes in which order, every choice is opened, told and ended once, in this order."""
    for kind in KINDS:
        reply = getattr(part, kind)("m", script.submitted)
        numbers = {request.request_id: index for index, request in enumerate(script.submitted)}
        opened: set[int] = set()
        for output in script.outputs():
            got = choices_of(reply, [output])
            index = numbers[output.request_id]
            expected = spelled(kind, index, output, first=index not in opened)
            expect_equal(got, expected, f"the choices of the chunks of the {tell(output)}")
            opened.add(index)
        got, made = reply.usage()["completion_tokens"], sum(r.made for r in script.requests)
        expect_equal(got, made, "completion_tokens after the stream")


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
        end = {"finish_reason": output.finish_reason.value, "stop_reason": output.stop_reason}
        found.append({**common, **({"delta": {}} if chat else {"text": ""}), **end})
    return found
