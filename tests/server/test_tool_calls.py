"""Calls among what a model says of its own accord: from an engine that says what it must."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from grader.kit.api import STOP, make_request
from solutions.api_server import ChatReply
from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.test_logprobs import Letters
from tests.server.tool_asking import TOOLS, USER, ask, joined, of_answer
from tests.server.tool_models import STYLES
from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput
from yaie.server.extras.logprobs import ChatLogprobs
from yaie.server.extras.reader import ChatReader
from yaie.server.extras.reply import ExtendedReply
from yaie.server.extras.step import Step
from yaie.server.tools import choose_format

CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"unit": "kelvin", "days": 2}}\n</tool_call>'
)
ARGUMENTS = '{"unit": "kelvin", "days": 2}'
SAID = [
    ("Hello, <b>you</b>.", "Hello, <b>you</b>.", [], "stop"),
    (CALL, "", [("get_weather", ARGUMENTS)], "tool_calls"),
    (f"I look.\n\n{CALL}", "I look.", [("get_weather", ARGUMENTS)], "tool_calls"),
    (f"{CALL}\n{CALL}", "", [("get_weather", ARGUMENTS)] * 2, "tool_calls"),
    ("<tool_call>{nonsense}", "<tool_call>{nonsense}", [], "stop"),
    (CALL.replace("get_weather", "rm"), CALL.replace("get_weather", "rm"), [], "stop"),
    ("wait <tool_c", "wait <tool_c", [], "stop"),
]


class Backwards(FakeTokenizer):
    """Puts the last message into the prompt upside down. seen: those of the last conversation."""

    chat_template = STYLES["hermes"][0]

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        self.seen = messages
        return super().apply_chat_template(messages, **options)[::-1]


class Parrot(FakeEngine):
    """Says the last message of a conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = Backwards()


@pytest.fixture(scope="module")
def parrot() -> Iterator[LiveServer]:
    with serving(Parrot) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("said", "content", "calls", "reason"), SAID)
def test_calls_are_told_from_text(
    parrot: LiveServer, stream: bool, said: str, content: str, calls: Any, reason: str
) -> None:
    messages = [{"role": "user", "content": said}]
    answer = ask(parrot, messages, stream=stream, max_tokens=openai.omit)
    assert (joined(answer) if stream else of_answer(answer)) == (content, calls, reason)


def test_a_tools_message_reaches_the_template_with_the_name_of_its_function(
    parrot: LiveServer,
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "halt", "arguments": "{}"}}
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "halted"},
    ]
    ask(parrot, messages, max_tokens=openai.omit)
    seen = parrot.llm.tokenizer.seen
    assert seen[1]["tool_calls"][0]["function"]["arguments"] == {}
    assert seen[2]["name"] == "halt"


def test_without_tools_a_call_is_text(parrot: LiveServer) -> None:
    messages = [{"role": "user", "content": CALL}]
    for options in ({"tools": openai.omit}, {"tool_choice": "none"}):
        answer = ask(parrot, messages, max_tokens=openai.omit, **options)
        assert of_answer(answer) == (CALL, [], "stop")


def test_a_call_that_is_cut_off_says_so(parrot: LiveServer) -> None:
    messages = [{"role": "user", "content": CALL}]
    whole = of_answer(ask(parrot, messages, max_tokens=60))
    begun = CALL[CALL.index(ARGUMENTS) : 60]
    assert whole == ("", [("get_weather", begun)], "length")
    assert joined(ask(parrot, messages, max_tokens=60, stream=True)) == whole


def test_the_clients_own_accumulation_of_a_stream_agrees(parrot: LiveServer) -> None:
    client: OpenAI = parrot.openai()
    messages: Any = [{"role": "user", "content": f"So: {CALL}"}]
    tools: Any = TOOLS
    with client.chat.completions.stream(model="fake", messages=messages, tools=tools) as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == "So:"
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == ARGUMENTS
    assert final.choices[0].finish_reason == "tool_calls"


def test_arguments_are_streamed_while_they_are_made(parrot: LiveServer) -> None:
    said = CALL.index('"kelvin"')
    parrot.llm.pause_after(said)  # in the middle of the arguments
    messages = [{"role": "user", "content": CALL}]
    pieces: list[Any] = []
    early: list[str] = []

    def seen() -> str:
        return "".join(piece.function.arguments for piece in pieces)

    def go_on() -> None:
        """On a thread of its own: the client may have read all that there is before the pause."""
        with suppress(AssertionError):
            assert parrot.llm.paused.wait(30)
            within(30, lambda: seen() != "")
            early.append(seen())
        parrot.llm.paused.clear()
        parrot.llm.gate.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    for chunk in ask(parrot, messages, stream=True, max_tokens=openai.omit):
        pieces += chunk.choices[0].delta.tool_calls or []
    thread.join()
    assert pieces[0].function.arguments == ""
    assert early
    assert ARGUMENTS.startswith(early[0])
    assert early[0] != ARGUMENTS
    assert seen() == ARGUMENTS


def test_no_call_is_possible_where_the_template_knows_of_none(fake_live: LiveServer) -> None:
    for options in ({}, {"tool_choice": "required"}):
        with pytest.raises(openai.BadRequestError, match="chat template") as refused:
            ask(fake_live, **options)
        assert refused.value.param == "tools"
    assert of_answer(ask(fake_live, tool_choice="none"))[2] == "stop"


def test_the_parser_is_a_setting() -> None:
    refused = pytest.raises(openai.BadRequestError, match="chat template")
    with serving(Parrot, tool_parser="none") as server, refused:
        ask(server)
    with serving(Parrot, tool_parser="mistral") as server:
        said = '[TOOL_CALLS] [{"name": "halt", "arguments": {}}]'
        answer = ask(server, [{"role": "user", "content": said}], max_tokens=openai.omit)
        assert of_answer(answer) == ("", [("halt", "{}")], "tool_calls")


# --- shaping alone, with any cut of the text ---


def extended(
    reply: ChatReply, steps: Sequence[Step] = (), *, tells_usage: bool = False
) -> ExtendedReply:
    """A reply that looks for calls of one function."""
    form = choose_format("hermes", "tools", lambda _: None)
    body = SimpleNamespace(callable_functions={"get_weather": {}})
    reader = ChatReader(reply.requests, body, None, tools=form, reasoning=None)
    return ExtendedReply(reply, reader, steps, tells_usage=tells_usage)


def reply_to(said: str, places: list[int]) -> tuple[ExtendedReply, list[RequestOutput]]:
    """A reply, and the outputs of an engine that says this in pieces."""
    request = make_request(prompt=1)
    begins = [0, *sorted(places)]
    ends = [*begins[1:], len(said)]
    outputs = [request.says(said[a:b]) for a, b in zip(begins, ends, strict=True)]
    outputs[-1].finish_reason = STOP
    return extended(ChatReply("m", [request.submitted])), outputs


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.lists(st.sampled_from([CALL, "text", " ", "<tool_call>", "{", "\n"]), max_size=4),
    data=st.data(),
)
def test_a_stream_joins_to_the_whole_answer_for_every_cut(
    parts: list[str], data: st.DataObject
) -> None:
    said = "".join(parts)
    places = data.draw(st.lists(st.integers(0, len(said)), max_size=5))
    whole, outputs = reply_to(said, [])
    for output in outputs:
        whole.add(output)
    (choice,) = whole.result()["choices"]
    calls = [call["function"] for call in choice["message"].get("tool_calls", [])]
    streamed, outputs = reply_to(said, places)
    content, joined_calls, reasons = "", [], []
    for output in outputs:
        for chunk in streamed.chunks(output):
            (piece,) = chunk["choices"]
            content += piece["delta"].get("content", "")
            reasons.append(piece["finish_reason"])
            for delta in piece["delta"].get("tool_calls", []):
                if "id" in delta:
                    joined_calls.append({"name": delta["function"]["name"], "arguments": ""})
                joined_calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
    assert content == (choice["message"]["content"] or "")
    assert joined_calls == calls
    assert reasons[-1] == choice["finish_reason"]
    assert set(reasons[:-1]) <= {None}


def test_the_entries_of_an_output_travel_once_however_many_pieces_it_makes() -> None:
    reply, (output,) = reply_to(f"I look. {CALL}", [])
    entries = [TokenLogprob(97, -0.5), TokenLogprob(98, -1.0)]
    output.token_ids, output.logprobs = [97, 98], entries
    logprobs = ChatLogprobs(reply.requests, Letters())
    chunks = list(extended(ChatReply("m", reply.requests), [logprobs]).chunks(output))
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert sum(shape is not None for shape in told) == 1
    [shape] = [shape for shape in told if shape is not None]
    assert [entry["logprob"] for entry in shape["content"]] == [-0.5, -1.0]


def test_the_first_chunk_of_an_output_counts_it_though_its_piece_is_no_text() -> None:
    reply, outputs = reply_to(CALL, [50, 60])
    counting = extended(ChatReply("m", reply.requests), tells_usage=True)
    for number, output in enumerate(outputs, 1):
        output.num_output_tokens = number
        chunks = list(counting.chunks(output))
        assert chunks
        assert {chunk["usage"]["completion_tokens"] for chunk in chunks} == {number}
