"""LangChain: ChatOpenAI on chat completions and on responses, OpenAI on completions."""

from typing import Any

import openai
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run
from langchain_core.exceptions import ContextOverflowError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

LONG = {"ignore_eos": True}
TALK = [("system", "Be short."), ("human", "日本語 🙂?")]


def chat(url: str, model: str = "judged", **options: Any) -> ChatOpenAI:
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30, "max_tokens": 24}
    return ChatOpenAI(base_url=url, model=model, **{**defaults, **options})


def talk(at: Servers, **options: Any) -> ChatOpenAI:
    return chat(at.judged, **{"temperature": 0, "extra_body": LONG, **options})


def fussy(at: Servers, **options: Any) -> ChatOpenAI:
    """For formats: the model ends where the grammar lets it."""
    return chat(at.judged, **{"temperature": 1, "seed": 1, "max_tokens": 400, **options})


@case
def plain(at: Servers) -> None:
    answer = talk(at).invoke(TALK)
    assert isinstance(answer, AIMessage)
    assert answer.content
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 24
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.response_metadata["model_name"] == "judged"


@case
def streamed_text_is_the_whole_text(at: Servers) -> None:
    model = talk(at, stream_usage=True)
    whole = model.invoke(TALK)
    chunks = list(model.stream(TALK))
    assert len(chunks) > 1
    total = sum(chunks[1:], start=chunks[0])
    assert isinstance(total, AIMessageChunk)
    assert total.content == whole.content
    assert total.usage_metadata == whole.usage_metadata
    assert total.response_metadata["finish_reason"] == "length"


@case
async def asynchronous_batches(at: Servers) -> None:
    model = talk(at)
    questions = [f"{i}?" for i in range(8)]
    together = await model.abatch(questions)
    alone = [await model.ainvoke(question) for question in questions]
    assert [answer.content for answer in together] == [answer.content for answer in alone]
    pieces = [chunk.content async for chunk in model.astream(questions[0])]
    assert "".join(pieces) == alone[0].content


@case
def options_of_a_call(at: Servers) -> None:
    model = talk(at, logprobs=True, top_logprobs=3, n=1, stop=["\0never"], seed=1,
                 presence_penalty=0.1, frequency_penalty=0.1, top_p=0.9,
                 model_kwargs={"user": "me"})  # fmt: skip
    answer = model.invoke(TALK)
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == 24
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    results = talk(at, n=3, temperature=1, seed=1).generate([[HumanMessage("x")]])
    assert len(results.generations[0]) == 3


@case
def completions(at: Servers) -> None:
    model = OpenAI(base_url=at.judged, api_key="none", model="judged", temperature=0,
                        max_tokens=24, max_retries=0, extra_body=LONG)  # fmt: skip
    whole = model.invoke("hello")
    assert whole
    assert "".join(model.stream("hello")) == whole
    results = model.generate(["hello", "good bye"])
    assert results.generations[0][0].text == whole
    assert results.llm_output["token_usage"]["completion_tokens"] == 48


@case
def demanded_tool_is_called_and_its_result_goes_into_the_next_prompt(at: Servers) -> None:
    for choice in ("any", "Weather"):
        model = fussy(at).bind_tools([Weather], tool_choice=choice, parallel_tool_calls=False)
        answer = model.invoke(TALK)
        (call,) = answer.tool_calls
        assert not answer.invalid_tool_calls
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
    assert total.tool_calls[0]["id"]


@case
def structured_output_by_each_method(at: Servers) -> None:
    for method in ("json_schema", "function_calling"):
        model = fussy(at).with_structured_output(Answer, method=method)
        assert isinstance(model.invoke(TALK), Answer), method
    strict = fussy(at).with_structured_output(Answer, method="json_schema", strict=True)
    assert isinstance(strict.invoke(TALK), Answer)
    raw = fussy(at).with_structured_output(Answer, include_raw=True).invoke(TALK)
    assert raw["parsing_error"] is None
    assert isinstance(raw["parsed"], Answer)


@case
def streamed_structured_output(at: Servers) -> None:
    model = fussy(at).with_structured_output(Answer, method="json_schema")
    whole = model.invoke(TALK)
    assert list(model.stream(TALK))[-1] == whole
    schema = {"title": "Answer", **Answer.model_json_schema()}
    pieces = list(fussy(at).with_structured_output(schema, method="function_calling").stream(TALK))
    Answer.model_validate(pieces[-1])


@case
def json_mode(at: Servers) -> None:
    """The model is noise: an answer that its limit cuts short is told as one that does not parse."""
    try:
        found = fussy(at).with_structured_output(method="json_mode").invoke(TALK)
        assert isinstance(found, dict)
    except OutputParserException as error:
        assert "{" in str(error)  # noqa: PT017


@case
def structured_output_cut_short_is_told(at: Servers) -> None:
    with raises(openai.LengthFinishReasonError):
        fussy(at, max_tokens=2).with_structured_output(Answer, method="json_schema").invoke(TALK)


@case
def responses(at: Servers) -> None:
    model = talk(at, use_responses_api=True, max_tokens=24)
    whole = model.invoke(TALK)
    assert whole.text
    chunks = list(model.stream(TALK))
    total = sum(chunks[1:], start=chunks[0])
    assert total.text == whole.text
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"] == 24


@case
def tools_and_formats_of_responses(at: Servers) -> None:
    model = fussy(at, use_responses_api=True, seed=None, model_kwargs={"extra_body": {"seed": 1}})
    answer = model.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False).invoke(TALK)
    (call,) = answer.tool_calls
    Weather.model_validate(call["args"])
    result = ToolMessage("sunny", tool_call_id=call["id"])
    assert model.invoke([*TALK, answer, result], max_tokens=8).usage_metadata["input_tokens"] > 0
    chunks = list(model.bind_tools([Weather], tool_choice="any").stream(TALK))
    total = sum(chunks[1:], start=chunks[0])
    Weather.model_validate(total.tool_calls[0]["args"])
    formatted = model.with_structured_output(Answer, method="json_schema").invoke(TALK)
    assert isinstance(formatted, Answer)


@case
def wrong_value_names_its_parameter(at: Servers) -> None:
    with raises(openai.BadRequestError) as raised:
        talk(at, top_p=1.5).invoke(TALK)
    assert (raised.error.param, raised.error.code) == ("top_p", "invalid_value")


@case
def unknown_model_is_not_found(at: Servers) -> None:
    for streamed in (False, True):
        with raises(openai.NotFoundError) as raised:
            model = chat(at.judged, "gpt-4")
            list(model.stream("x")) if streamed else model.invoke("x")
        assert raised.error.code == "model_not_found"


@case
def prompt_too_long_is_a_context_overflow(at: Servers) -> None:
    for options in ({}, {"use_responses_api": True}):
        with raises(ContextOverflowError) as raised:
            chat(at.judged, **options).invoke("long " * at.limit)
        assert raised.error.code == "context_length_exceeded"
        with raises(ContextOverflowError):
            list(chat(at.judged, **options).stream("long " * at.limit))


@case
def wrong_key_is_an_authentication_error(at: Servers) -> None:
    assert chat(at.locked, "fake", api_key=KEY).invoke("abc").content == "cba"
    with raises(openai.AuthenticationError):
        chat(at.locked, "fake", api_key="mistaken").invoke("abc")


@case
def full_queue_is_a_server_error(at: Servers) -> None:
    with raises(openai.InternalServerError) as raised:
        chat(at.full, "fake").invoke("abc")
    assert raised.error.status_code == 503


@case
def failures_at_once_and_in_the_middle_are_raised(at: Servers) -> None:
    with raises(openai.InternalServerError):
        chat(at.failing, "fake").invoke(POISON)
    with raises(openai.InternalServerError):
        list(chat(at.failing, "fake").stream(POISON))
    pieces = []
    with raises(openai.APIError):
        for piece in chat(at.failing, "fake").stream(LATE):
            pieces.append(piece.content)  # noqa: PERF401
    assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("langchain-openai", "langchain-core", "openai")
