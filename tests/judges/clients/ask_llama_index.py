"""LlamaIndex: OpenAILike on chat completions and completions, with tools and structured answers."""

from typing import Any

import openai
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

LONG = {"extra_body": {"ignore_eos": True}}
TALK = [ChatMessage(role="system", content="Be short."), ChatMessage(content="日本語 🙂?")]


def client(url: str, model: str = "judged", **options: Any) -> OpenAILike:
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30, "max_tokens": 24,
                "is_chat_model": True, "is_function_calling_model": True, "temperature": 0}  # fmt: skip
    return OpenAILike(model=model, api_base=url, **{**defaults, **options})


def talker(at: Servers, **options: Any) -> OpenAILike:
    return client(at.judged, context_window=at.limit, additional_kwargs=LONG, **options)


def fussy(at: Servers, **options: Any) -> OpenAILike:
    """For formats: the model ends where the grammar lets it."""
    defaults = {"temperature": 1, "max_tokens": 400, "additional_kwargs": {"seed": 1}}
    return client(at.judged, **{**defaults, **options})


def get_weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"{city}: sunny for {days} days"


TOOL = FunctionTool.from_defaults(get_weather, fn_schema=Weather)


@case
def plain(at: Servers) -> None:
    answer = talker(at).chat(TALK)
    assert answer.message.content
    assert answer.raw.usage.completion_tokens == 24
    assert answer.message.role == MessageRole.ASSISTANT


@case
def streamed_text_is_the_whole_text(at: Servers) -> None:
    whole = talker(at).chat(TALK)
    pieces = list(talker(at).stream_chat(TALK))
    assert len(pieces) > 1
    assert "".join(piece.delta or "" for piece in pieces) == whole.message.content
    assert pieces[-1].message.content == whole.message.content


@case
async def asynchronous_calls(at: Servers) -> None:
    whole = await talker(at).achat(TALK)
    stream = await talker(at).astream_chat(TALK)
    assert "".join([piece.delta or "" async for piece in stream]) == whole.message.content
    assert (await talker(at).acomplete("hello")).text


@case
def completions(at: Servers) -> None:
    model = talker(at, is_chat_model=False)
    whole = model.complete("hello").text
    assert whole
    assert "".join(piece.delta or "" for piece in model.stream_complete("hello")) == whole


@case
def log_probabilities(at: Servers) -> None:
    answer = talker(at, logprobs=True, top_logprobs=3).chat(TALK)
    assert len(answer.logprobs) == 24
    assert all(len(entries) == 3 for entries in answer.logprobs)
    completion = talker(at, is_chat_model=False, logprobs=True, top_logprobs=3).complete("hello")
    assert len(completion.logprobs) == 24


@case
def demanded_tool_is_called_and_its_result_goes_into_the_next_prompt(at: Servers) -> None:
    model = fussy(at)
    for options in ({"tool_required": True}, {"tool_choice": "get_weather"}):
        answer = model.chat_with_tools([TOOL], user_msg="?", **options)
        (call,) = model.get_tool_calls_from_response(answer)
        assert call.tool_name == "get_weather"
        Weather.model_validate(call.tool_kwargs)
        result = ChatMessage(role="tool", content=str(TOOL(**call.tool_kwargs)),
                             additional_kwargs={"tool_call_id": call.tool_id})  # fmt: skip
        turns = [ChatMessage(content="?"), answer.message, result]
        last = talker(at).chat_with_tools([TOOL], chat_history=turns)
        assert last.raw.usage.prompt_tokens > answer.raw.usage.prompt_tokens + 10


@case
def streamed_tool_call_is_the_whole_one(at: Servers) -> None:
    model = fussy(at)
    answer = model.chat_with_tools([TOOL], user_msg="?", tool_required=True)
    (whole,) = model.get_tool_calls_from_response(answer)
    *_, last = model.stream_chat_with_tools([TOOL], user_msg="?", tool_required=True)
    (call,) = model.get_tool_calls_from_response(last)
    assert (call.tool_name, call.tool_kwargs) == (whole.tool_name, whole.tool_kwargs)


@case
def structured_answers_by_each_way(at: Servers) -> None:
    """By calling a function, and by `response_format`."""
    for formatted in (False, True):
        model = fussy(at, should_use_structured_outputs=formatted).as_structured_llm(Answer)
        assert isinstance(model.chat(TALK).raw, Answer), formatted


@case
def streamed_structured_answer_is_the_whole_one(at: Servers) -> None:
    """By `response_format` alone: a stream of a function's arguments leaves the call to the model
    (`tool_choice: auto`), whose noise calls nothing."""
    model = fussy(at, should_use_structured_outputs=True).as_structured_llm(Answer)
    *_, last = model.stream_chat(TALK)
    assert last.raw == model.chat(TALK).raw


@case
def wrong_value_names_its_parameter(at: Servers) -> None:
    with raises(openai.BadRequestError) as raised:
        client(at.judged, additional_kwargs={"top_p": 1.5}).chat(TALK)
    assert (raised.error.param, raised.error.code) == ("top_p", "invalid_value")


@case
def unknown_model_is_not_found(at: Servers) -> None:
    with raises(openai.NotFoundError) as raised:
        client(at.judged, "gpt-x").chat(TALK)
    assert raised.error.code == "model_not_found"
    with raises(openai.NotFoundError):
        list(client(at.judged, "gpt-x").stream_chat(TALK))


@case
def prompt_too_long_is_told_by_its_code(at: Servers) -> None:
    for chat in (True, False):
        with raises(openai.BadRequestError) as raised:
            client(at.judged, is_chat_model=chat).complete("long " * at.limit)
        assert raised.error.code == "context_length_exceeded"
        assert f"maximum context length is {at.limit}" in str(raised.error)


@case
def wrong_key_is_an_authentication_error(at: Servers) -> None:
    assert client(at.locked, "fake", api_key=KEY).complete("abc").text == "cba"
    with raises(openai.AuthenticationError):
        client(at.locked, "fake", api_key="mistaken").complete("abc")


@case
def full_queue_and_failures_are_server_errors(at: Servers) -> None:
    with raises(openai.InternalServerError) as raised:
        client(at.full, "fake").complete("abc")
    assert raised.error.status_code == 503
    with raises(openai.InternalServerError):
        client(at.failing, "fake").complete(POISON)
    pieces = []
    with raises(openai.APIError):
        for piece in client(at.failing, "fake").stream_complete(LATE):
            pieces.append(piece.delta)  # noqa: PERF401
    assert LATE[::-1].startswith("".join(piece or "" for piece in pieces))


if __name__ == "__main__":
    run("llama-index-llms-openai-like", "llama-index-llms-openai", "openai")
