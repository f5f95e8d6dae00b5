"""pydantic-ai: agents on chat completions and responses, with tools and every kind of typed output."""

import asyncio
from typing import Any

from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run
from openai import AsyncOpenAI
from pydantic_ai import (
    Agent,
    ModelAPIError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    NativeOutput,
    PromptedOutput,
    ToolOutput,
    UnexpectedModelBehavior,
    UsageLimits,
)
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

QUESTION = "日本語 🙂?"
KINDS = (OpenAIChatModel, OpenAIResponsesModel)


def model(kind: Any, url: str, name: str = "judged", key: str = "none") -> Any:
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=30)
    return kind(name, provider=OpenAIProvider(openai_client=client))


def agent(at: Servers, kind: Any, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    """Noise of at most 24 tokens, unless `settings` say otherwise."""
    wanted = {"max_tokens": 24, "temperature": 0, "extra_body": {"ignore_eos": True}}
    return Agent(model(kind, at.judged), instructions="Be short.", retries=0,
                 model_settings={**wanted, **(settings or {})}, **more)  # fmt: skip


def fussy(**more: Any) -> dict[str, Any]:
    """Settings for formats: the model ends where the grammar lets it."""
    return {"max_tokens": 400, "temperature": 1, "extra_body": {"seed": 1}, **more}


@case
async def plain(at: Servers) -> None:
    for kind in KINDS:
        result = await agent(at, kind).run(QUESTION)
        assert result.output
        assert result.usage.output_tokens == 24
        assert result.response.finish_reason == "length"
        assert result.response.model_name == "judged"


@case
async def streamed_text_is_the_whole_text(at: Servers) -> None:
    for kind in KINDS:
        whole = await agent(at, kind).run(QUESTION)
        async with agent(at, kind).run_stream(QUESTION) as streamed:
            pieces = [piece async for piece in streamed.stream_text(delta=True, debounce_by=None)]
        assert len(pieces) > 1
        assert "".join(pieces) == whole.output
        assert streamed.usage.output_tokens == 24


@case
async def many_at_once_are_answered_as_alone(at: Servers) -> None:
    asked = agent(at, KINDS[0])
    together = await asyncio.gather(*(asked.run(f"{i}?") for i in range(8)))
    alone = [await asked.run(f"{i}?") for i in range(8)]
    assert [result.output for result in together] == [result.output for result in alone]


@case
async def history_goes_into_the_next_prompt(at: Servers) -> None:
    for kind in KINDS:
        first = await agent(at, kind).run("one")
        second = await agent(at, kind).run("two", message_history=first.all_messages())
        assert second.usage.input_tokens > first.usage.input_tokens + 20


@case
async def typed_output_by_each_way(at: Servers) -> None:
    for kind in KINDS:
        for way in (ToolOutput, NativeOutput):
            result = await agent(at, kind, fussy(), output_type=way(Answer)).run(QUESTION)
            assert isinstance(result.output, Answer)


@case
async def streamed_typed_output_is_the_whole_one(at: Servers) -> None:
    for kind in KINDS:
        for way in (ToolOutput, NativeOutput):
            asked = agent(at, kind, fussy(), output_type=way(Answer))
            whole = await asked.run(QUESTION)
            async with asked.run_stream(QUESTION) as streamed:
                assert await streamed.get_output() == whole.output


@case
async def prompted_output_is_asked_for_as_a_json_object(at: Servers) -> None:
    """The schema stands in the prompt alone: noise cannot follow it, and the client says so."""
    with raises(UnexpectedModelBehavior):
        await agent(at, KINDS[0], fussy(), output_type=PromptedOutput(Answer)).run(QUESTION)


def with_weather(at: Servers, kind: Any, calls: list[Weather]) -> Any:
    asked = agent(at, kind, fussy(parallel_tool_calls=False), output_type=ToolOutput(Answer))

    @asked.tool_plain
    def get_weather(city: Weather) -> str:
        """The weather of a city."""
        calls.append(city)
        return "sunny"

    return asked


@case
async def tools_are_called_until_there_is_a_result(at: Servers) -> None:
    """Every turn must call something; which function is up to the noise."""
    for kind in KINDS:
        called: list[Weather] = []
        for seed in range(4):
            asked = with_weather(at, kind, called)
            settings = fussy(extra_body={"seed": seed}, parallel_tool_calls=False)
            limits = UsageLimits(request_limit=12)
            result = await asked.run(QUESTION, model_settings=settings, usage_limits=limits)
            assert isinstance(result.output, Answer)
            parts = [part for message in result.all_messages() for part in message.parts]
            calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
            returns = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
            assert calls == returns
        assert called


@case
async def demanded_tool_is_called_whole_and_streamed(at: Servers) -> None:
    """One request of one's own, as an agent may not be forced for ever."""
    tool = ToolDefinition(name="get_weather", parameters_json_schema=Weather.model_json_schema())
    messages = [ModelRequest(parts=[UserPromptPart(QUESTION)])]
    for kind in KINDS:
        for choice in ("required", ["get_weather"]):
            asked = model(kind, at.judged)
            options: Any = {
                "model_settings": fussy(parallel_tool_calls=False, tool_choice=choice),
                "model_request_parameters": ModelRequestParameters(function_tools=[tool]),
            }
            whole = await model_request(asked, messages, **options)
            (call,) = whole.tool_calls
            assert call.tool_name == "get_weather"
            Weather.model_validate(call.args_as_dict())
            async with model_request_stream(asked, messages, **options) as streamed:
                async for _ in streamed:
                    pass
            (again,) = streamed.get().tool_calls
            assert again.args_as_dict() == call.args_as_dict()


@case
async def every_setting_of_the_client_is_taken(at: Servers) -> None:
    settings: dict[str, Any] = {
        "top_p": 0.9, "timeout": 20, "openai_user": "me", "seed": 1, "top_k": 5,
        "openai_store": False, "openai_prompt_cache_key": "k", "openai_text_verbosity": "low",
    }  # fmt: skip
    penalties = {"presence_penalty": 0.1, "frequency_penalty": 0.1, "stop_sequences": ["\0never"],
                 "logit_bias": {"5": -1}, "openai_logprobs": True, "openai_top_logprobs": 2}  # fmt: skip
    for kind, more in zip(KINDS, (penalties, {}), strict=True):
        assert (await agent(at, kind, {**settings, **more}).run(QUESTION)).output


@case
async def wrong_value_is_an_http_error(at: Servers) -> None:
    for kind in KINDS:
        with raises(ModelHTTPError) as raised:
            await agent(at, kind, {"top_p": 1.5}).run(QUESTION)
        assert raised.error.status_code == 400
        assert raised.error.body["param"] == "top_p"


@case
async def unknown_model_is_not_found(at: Servers) -> None:
    for kind in KINDS:
        with raises(ModelHTTPError) as raised:
            await Agent(model(kind, at.judged, "gpt-4")).run(QUESTION)
        assert raised.error.status_code == 404


@case
async def prompt_too_long_is_an_exceeded_context(at: Servers) -> None:
    for kind in KINDS:
        with raises(ModelContextWindowExceededError):
            await agent(at, kind).run("long " * at.limit)


@case
async def wrong_key_is_told_by_its_status(at: Servers) -> None:
    for kind in KINDS:
        assert (await Agent(model(kind, at.locked, "fake", KEY)).run("abc")).output == "cba"
        with raises(ModelHTTPError) as raised:
            await Agent(model(kind, at.locked, "fake", "mistaken")).run("abc")
        assert raised.error.status_code == 401


@case
async def full_queue_and_failures_are_told_by_their_status(at: Servers) -> None:
    for kind in KINDS:
        with raises(ModelHTTPError) as raised:
            await Agent(model(kind, at.full, "fake")).run("abc")
        assert raised.error.status_code == 503
        with raises(ModelHTTPError) as raised:
            await Agent(model(kind, at.failing, "fake")).run(POISON)
        assert raised.error.status_code == 500


@case
async def failure_in_the_middle_of_a_stream_is_raised(at: Servers) -> None:
    for kind in KINDS:
        pieces = []
        with raises((ModelAPIError, UnexpectedModelBehavior)):
            async with Agent(model(kind, at.failing, "fake")).run_stream(LATE) as streamed:
                async for piece in streamed.stream_text(delta=True, debounce_by=None):
                    pieces.append(piece)  # noqa: PERF401
        assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("pydantic-ai-slim", "openai")
