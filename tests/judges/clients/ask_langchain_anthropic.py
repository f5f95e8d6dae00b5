"""LangChain's ChatAnthropic, on `/v1/messages`."""

from typing import Any, Literal

import anthropic
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from pydantic import BaseModel, ConfigDict

LONG = {"extra_body": {"ignore_eos": True}}
TALK = [("system", "Be short."), ("human", "日本語 🙂?")]


class Colour(BaseModel):
    """What the format leaves no doubt about."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "青"]
    is_warm: bool


def chat(url: str, model: str = "judged", **options: Any) -> ChatAnthropic:
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30, "max_tokens": 24}
    root = url.removesuffix("/v1")
    return ChatAnthropic(base_url=root, model=model, **{**defaults, **options})


def talk(at: Servers, **options: Any) -> ChatAnthropic:
    return chat(at.judged, **{"temperature": 0, "model_kwargs": LONG, **options})


def fussy(at: Servers, **options: Any) -> ChatAnthropic:
    """For formats: the model ends where the grammar lets it."""
    seeded = {"extra_body": {"seed": 1}}
    return chat(at.judged, temperature=1, model_kwargs=seeded, **{"max_tokens": 400, **options})


@case
def plain(at: Servers) -> None:
    answer = talk(at).invoke(TALK)
    assert isinstance(answer, AIMessage)
    assert answer.content
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 24
    assert answer.response_metadata["stop_reason"] == "max_tokens"


@case
def streamed_text_is_the_whole_text(at: Servers) -> None:
    whole = talk(at).invoke(TALK)
    chunks = list(talk(at).stream(TALK))
    assert len(chunks) > 1
    total = sum(chunks[1:], start=chunks[0])
    assert isinstance(total, AIMessageChunk)
    assert total.text == whole.text
    assert total.usage_metadata is not None
    assert whole.usage_metadata is not None
    for count in ("input_tokens", "output_tokens"):
        assert total.usage_metadata[count] == whole.usage_metadata[count]


@case
async def asynchronous_calls(at: Servers) -> None:
    whole = await talk(at).ainvoke(TALK)
    pieces = [chunk.text async for chunk in talk(at).astream(TALK)]
    assert "".join(pieces) == whole.text


@case
def options_of_a_call(at: Servers) -> None:
    assert talk(at, top_k=5, top_p=0.9, stop_sequences=["\0never"]).invoke(TALK).content
    assert talk(at).get_num_tokens_from_messages([HumanMessage("one two three")]) > 3


@case
def demanded_tool_is_called_and_its_result_goes_into_the_next_prompt(at: Servers) -> None:
    for choice in ("any", "Weather"):
        model = fussy(at).bind_tools([Weather], tool_choice=choice, parallel_tool_calls=False)
        answer = model.invoke(TALK)
        (call,) = answer.tool_calls
        assert call["name"] == "Weather"
        Weather.model_validate(call["args"])
        result = ToolMessage("sunny", tool_call_id=call["id"])
        last = fussy(at, max_tokens=8).bind_tools([Weather]).invoke([*TALK, answer, result])
        assert last.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"] + 10


@case
def streamed_tool_call_is_the_whole_one(at: Servers) -> None:
    model = fussy(at).bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
    whole = model.invoke(TALK)
    chunks = list(model.stream(TALK))
    total = sum(chunks[1:], start=chunks[0])
    assert [(call["name"], call["args"]) for call in total.tool_calls] == [
        (call["name"], call["args"]) for call in whole.tool_calls
    ]


@case
def structured_output_by_each_method(at: Servers) -> None:
    called = fussy(at).with_structured_output(Answer, method="function_calling")
    assert isinstance(called.invoke(TALK), Answer)
    # The client takes limits of numbers and lists out of a format's schema, as Anthropic knows none.
    formatted = fussy(at).with_structured_output(Colour, method="json_schema")
    assert isinstance(formatted.invoke(TALK), Colour)
    assert list(formatted.stream(TALK))[-1] == formatted.invoke(TALK)


@case
def wrong_value_is_a_bad_request(at: Servers) -> None:
    with raises(anthropic.BadRequestError) as raised:
        talk(at, top_p=1.5).invoke(TALK)
    assert "top_p" in raised.error.message


@case
def unknown_model_is_not_found(at: Servers) -> None:
    for streamed in (False, True):
        with raises(anthropic.NotFoundError):
            model = chat(at.judged, "claude-x")
            list(model.stream("x")) if streamed else model.invoke("x")


@case
def prompt_too_long_is_a_context_overflow(at: Servers) -> None:
    with raises(ContextOverflowError):
        chat(at.judged).invoke("long " * at.limit)
    with raises(ContextOverflowError):
        list(chat(at.judged).stream("long " * at.limit))


@case
def wrong_key_is_an_authentication_error(at: Servers) -> None:
    assert chat(at.locked, "fake", api_key=KEY).invoke("abc").content == "cba"
    with raises(anthropic.AuthenticationError):
        chat(at.locked, "fake", api_key="mistaken").invoke("abc")


@case
def full_queue_is_an_overloaded_error(at: Servers) -> None:
    with raises(anthropic.InternalServerError) as raised:
        chat(at.full, "fake").invoke("abc")
    assert raised.error.status_code in (503, 529)


@case
def failures_at_once_and_in_the_middle_are_raised(at: Servers) -> None:
    with raises(anthropic.InternalServerError):
        chat(at.failing, "fake").invoke(POISON)
    with raises(anthropic.InternalServerError):
        list(chat(at.failing, "fake").stream(POISON))
    pieces = []
    with raises(anthropic.APIError):
        for piece in chat(at.failing, "fake").stream(LATE):
            pieces.append(piece.text)  # noqa: PERF401
    assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("langchain-anthropic", "langchain-core", "anthropic")
