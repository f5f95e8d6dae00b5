"""The official client of Anthropic's API, strict: messages whole and streamed, tools, counts."""

import json
from typing import Any, Literal

import anthropic
import pytest
from anthropic import Anthropic
from pydantic import BaseModel, ConfigDict

from tests.judges.asking import MODEL
from tests.judges.asking_anthropic import ANY, HELLO, LIMIT, LONG, WEATHER, ask, call, connect
from tests.server.conftest import LiveServer, serving
from tests.server.test_reasoning import THOUGHT, ThinkingEngine


@pytest.fixture
def judge(live: LiveServer) -> Anthropic:
    return connect(live)


def test_message_says_what_a_chat_completion_says(judge: Anthropic, live: LiveServer) -> None:
    message = ask(judge)
    chat = live.openai().chat.completions.create(
        model=MODEL,
        messages=HELLO,
        temperature=0,
        max_tokens=LIMIT,
        extra_body={"ignore_eos": True},
    )
    assert chat.usage is not None
    (block,) = message.content
    assert (block.type, block.text) == ("text", chat.choices[0].message.content)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat.usage.prompt_tokens
    assert usage.output_tokens == LIMIT


@pytest.mark.parametrize("text", ["hello", "日本語 🙂", "naïve café"])
def test_stream_tells_the_whole_message_in_order(judge: Anthropic, text: str) -> None:
    messages = [{"role": "user", "content": text}]
    events = list(ask(judge, messages=messages, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    start, end, whole = events[0].message, events[-2], ask(judge, messages=messages)
    assert (start.content, start.stop_reason, start.id[:4]) == ([], None, "msg_")
    assert start.usage.input_tokens + start.usage.cache_read_input_tokens > 0
    assert "".join(event.delta.text for event in events[2:-3]) == whole.content[0].text
    assert end.delta.stop_reason == whole.stop_reason == "max_tokens"
    assert end.usage.output_tokens == whole.usage.output_tokens == LIMIT


def test_stream_helper_puts_the_message_together(judge: Anthropic) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": LIMIT}
    with judge.messages.stream(**options, extra_body=LONG) as stream:
        said = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert said == ask(judge).content[0].text
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", LIMIT)


async def _said_by(live: LiveServer) -> str:
    options = {"api_key": "none", "max_retries": 0, "_strict_response_validation": True}
    async with anthropic.AsyncAnthropic(base_url=live.url, **options) as client:  # type: ignore[arg-type]
        stream = client.messages.stream(
            model=MODEL, messages=HELLO, max_tokens=LIMIT, extra_body=LONG
        )
        async with stream as events:
            return await events.get_final_text()


def test_async_client_hears_the_same(judge: Anthropic, live: LiveServer) -> None:
    import asyncio

    assert asyncio.run(_said_by(live)) == ask(judge).content[0].text


def test_stop_sequence_ends_the_message_and_is_told(judge: Anthropic) -> None:
    text = ask(judge).content[0].text
    stop = next(char for char in text[4:] if char.isalnum() and char not in text[:4])
    options: dict[str, Any] = {"stop_sequences": ["never", stop]}
    message = ask(judge, **options)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert message.content[0].text == text[: text.index(stop)]
    delta = list(ask(judge, **options, stream=True))[-2].delta
    assert (delta.stop_reason, delta.stop_sequence) == ("stop_sequence", stop)


def test_more_tokens_than_fit_are_allowed_and_the_end_is_told(judge: Anthropic) -> None:
    message = ask(judge, max_tokens=64_000)
    assert message.stop_reason == "model_context_window_exceeded"


def test_system_comes_before_the_messages_as_text_or_blocks(judge: Anthropic) -> None:
    blocks = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief.",
              "cache_control": {"type": "ephemeral"}}]  # fmt: skip
    as_turn: Any = [{"role": "system", "content": "Be brief."}, *HELLO]
    said = [ask(judge, system="Be brief."), ask(judge, system=blocks), ask(judge, messages=as_turn)]
    assert len({message.content[0].text for message in said}) == 1
    assert judge.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.").input_tokens > (
        judge.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
    )  # fmt: skip


def test_answer_goes_on_from_what_is_put_into_its_mouth(judge: Anthropic) -> None:
    begun: Any = [*HELLO, {"role": "assistant", "content": "I"}]
    counts = [judge.messages.count_tokens(model=MODEL, messages=turns) for turns in (HELLO, begun)]
    assert counts[1].input_tokens == counts[0].input_tokens + 1
    assert ask(judge, messages=begun).content[0].text != ask(judge).content[0].text


def test_count_of_tokens_is_that_of_the_prompt(judge: Anthropic) -> None:
    usage = call(judge).usage
    counted = judge.messages.count_tokens(model=MODEL, messages=HELLO, tools=[WEATHER])
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_repeated_prompt_is_read_from_the_cache(judge: Anthropic) -> None:
    messages = [{"role": "user", "content": "a question longer than a few blocks of tokens " * 3}]
    first = ask(judge, messages=messages).usage
    usage = ask(judge, messages=messages).usage
    assert usage.cache_read_input_tokens > 0
    assert usage.input_tokens > 0
    total = usage.input_tokens + usage.cache_read_input_tokens
    assert total == first.input_tokens + first.cache_read_input_tokens


# --- tools and JSON ---


@pytest.mark.parametrize("choice", [ANY, {"type": "tool", "name": "get_weather"}], ids=str)
def test_demanded_tool_is_used(judge: Anthropic, choice: Any) -> None:
    message = call(judge, tool_choice=choice)
    (block,) = message.content
    assert (block.type, block.name, message.stop_reason) == ("tool_use", "get_weather", "tool_use")
    assert block.input["city"] in ("Paris", "東京")


def test_streamed_input_is_the_same_in_pieces(judge: Anthropic) -> None:
    events = list(call(judge, stream=True))
    start = events[1].content_block
    assert (start.type, start.name, start.input) == ("tool_use", "get_weather", {})
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert {delta.type for delta in deltas} == {"input_json_delta"}
    written = "".join(delta.partial_json for delta in deltas)
    assert json.loads(written) == call(judge).content[0].input
    options: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 400, "tools": [WEATHER]}
    with judge.messages.stream(**options, tool_choice=ANY, extra_body={"temperature": 0}) as stream:
        assert stream.get_final_message().content[0].to_dict()["input"] == json.loads(written)


def test_input_that_was_cut_holds_what_is_complete(judge: Anthropic) -> None:
    whole = call(judge)
    limit = whole.usage.output_tokens - 12
    message = call(judge, max_tokens=limit)
    assert message.stop_reason == "max_tokens"
    options: Any = {"model": MODEL, "messages": HELLO, "max_tokens": limit, "tools": [WEATHER]}
    with judge.messages.stream(**options, tool_choice=ANY, extra_body={"temperature": 0}) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].to_dict().get("input") == message.content[0].input


def test_result_of_a_tool_goes_back_in(judge: Anthropic) -> None:
    first = call(judge)
    for content in ("sunny", [{"type": "text", "text": "sunny"}]):
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": content}
        turns = [*HELLO, {"role": "assistant", "content": first.content},
                 {"role": "user", "content": [result, {"type": "text", "text": "and?"}]}]  # fmt: skip
        second = call(judge, messages=turns, tool_choice={"type": "auto"}, max_tokens=4)
        assert second.usage.cache_read_input_tokens > 0
        before, after = first.usage, second.usage
        assert after.input_tokens + after.cache_read_input_tokens > (
            before.input_tokens + before.cache_read_input_tokens + 20
        )


def test_no_tool_is_used_where_none_may_be(judge: Anthropic) -> None:
    message = call(judge, tool_choice={"type": "none"}, extra=LONG, max_tokens=LIMIT)
    assert message.content[0].text == ask(judge).content[0].text


def test_model_that_thinks_does_so_in_blocks_of_their_own() -> None:
    with serving(ThinkingEngine) as server:
        judge = connect(server)
        options: Any = {"model": "fake", "max_tokens": 2048,
                        "messages": [{"role": "user", "content": THOUGHT}],
                        "thinking": {"type": "enabled", "budget_tokens": 1024}}  # fmt: skip
        message = judge.messages.create(**options)
        with judge.messages.stream(**options) as stream:
            streamed = stream.get_final_message()
        hidden = {"thinking": {"type": "adaptive", "display": "omitted"}}
        silent = judge.messages.create(**{**options, **hidden})
        again: Any = [*options["messages"], message.to_param(), {"role": "user", "content": "Why?"}]
        assert judge.messages.create(**{**options, "messages": again}).stop_reason == "end_turn"
    for told, thought in ((message, "Hm, 1 < 2."), (streamed, "Hm, 1 < 2."), (silent, "")):
        thinking, text = (block.to_dict() for block in told.content)
        assert (thinking["type"], thinking["thinking"]) == ("thinking", thought)
        assert (text["type"], text["text"]) == ("text", "Yes.")
    details = message.usage.output_tokens_details
    assert details is not None
    assert 0 < details.thinking_tokens < message.usage.output_tokens


class Answer(BaseModel):
    """What the model must say, and nothing besides."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "青"]
    is_warm: bool


def test_parse_gives_an_object(judge: Anthropic) -> None:
    parsed = judge.messages.parse(model=MODEL, messages=HELLO, max_tokens=400, output_format=Answer)
    assert isinstance(parsed.parsed_output, Answer)


def test_beta_messages_are_the_same(judge: Anthropic) -> None:
    message = judge.beta.messages.create(
        model=MODEL, messages=HELLO, max_tokens=LIMIT, extra_body=LONG, betas=["some-beta"]
    )
    assert message.content[0].to_dict()["text"] == ask(judge).content[0].text


def test_what_agents_send_along_is_taken(judge: Anthropic) -> None:
    hint = {"type": "ephemeral", "ttl": "1h"}
    blocks = [{"type": "text", "text": "hello", "cache_control": hint}]
    said = ask(
        judge,
        messages=[{"role": "user", "content": blocks}],
        cache_control={"type": "ephemeral"},
        metadata={"user_id": "someone"},
        service_tier="auto",
        thinking={"type": "adaptive"},
        output_config={"effort": "max"},
    )
    assert said.content[0].text == ask(judge).content[0].text
