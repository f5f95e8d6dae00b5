"""openai-agents: agents on chat completions and on responses, with tools, handoffs and typed results."""

from typing import Any

import openai
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    StopAtTools,
    function_tool,
    set_tracing_disabled,
)
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent

set_tracing_disabled(True)
QUESTION = "日本語 🙂?"
CHAT, RESPONSES = KINDS = (OpenAIChatCompletionsModel, OpenAIResponsesModel)


@function_tool(name_override="get_weather")
def weather(asked: Weather) -> str:
    """The weather of a city."""
    return f"{asked.city}: sunny for {asked.days} days"


def model(kind: Any, url: str, name: str = "judged", key: str = "none") -> Any:
    client = AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=30)
    return kind(model=name, openai_client=client)


def agent(at: Servers, kind: Any, settings: dict[str, Any] | None = None, **more: Any) -> Agent:
    """Noise of at most 24 tokens, unless `settings` say otherwise."""
    wanted = {"max_tokens": 24, "temperature": 0, "extra_body": {"ignore_eos": True}}
    settings = ModelSettings(**{**wanted, **(settings or {})})
    return Agent(name="judge", instructions="Be short.", model=model(kind, at.judged),
                 model_settings=settings, **more)  # fmt: skip


def fussy(**more: Any) -> dict[str, Any]:
    """Settings for formats: the model ends where the grammar lets it."""
    return {"max_tokens": 400, "temperature": 1, "extra_body": {"seed": 1}, **more}


def ended(at: Servers, kind: Any) -> Agent:
    """One whose answer ends by itself: on responses the client takes a shorter one for a failure."""
    return Agent(name="fake", model=model(kind, at.failing, "fake"),
                 model_settings=ModelSettings(include_usage=True))  # fmt: skip


@case
async def plain(at: Servers) -> None:
    result = await Runner.run(agent(at, CHAT), QUESTION)
    assert result.final_output
    assert result.context_wrapper.usage.output_tokens == 24
    assert result.context_wrapper.usage.requests == 1
    for kind in KINDS:
        result = await Runner.run(ended(at, kind), QUESTION)
        assert result.final_output == QUESTION[::-1]
        assert result.context_wrapper.usage.output_tokens == len(QUESTION)


@case
async def streamed_text_is_the_whole_text(at: Servers) -> None:
    for kind in KINDS:
        streamed = Runner.run_streamed(ended(at, kind), QUESTION)
        pieces = [
            event.data.delta
            async for event in streamed.stream_events()
            if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
        ]
        assert len(pieces) > 1
        assert "".join(pieces) == streamed.final_output == QUESTION[::-1]
        assert streamed.context_wrapper.usage.output_tokens == len(QUESTION)


@case
async def answer_cut_short_is_an_answer_on_chat_and_a_failure_on_responses(at: Servers) -> None:
    """The client decides so; the server says `length` and `incomplete`, as OpenAI's does."""
    assert (await Runner.run(agent(at, CHAT), QUESTION)).final_output
    with raises(ModelBehaviorError) as raised:
        await Runner.run(agent(at, RESPONSES), QUESTION)
    assert "max_output_tokens" in str(raised.error)


@case
async def turns_of_a_session_are_remembered(at: Servers) -> None:
    for kind in KINDS:
        session = SQLiteSession("judged")
        asked = agent(at, kind, fussy(), output_type=Answer)
        first = await Runner.run(asked, "one", session=session)
        second = await Runner.run(asked, "two", session=session)
        tokens = [r.context_wrapper.usage.input_tokens for r in (first, second)]
        assert tokens[1] > tokens[0] + 24


@case
async def demanded_tool_is_called_and_its_result_goes_back(at: Servers) -> None:
    for kind in KINDS:
        for choice in ("required", "get_weather"):
            settings = fussy(tool_choice=choice, parallel_tool_calls=False)
            asked = agent(at, kind, settings, tools=[weather], output_type=Answer)
            result = await Runner.run(asked, QUESTION)
            kinds = [item.type for item in result.new_items]
            # The first turn must call; noise may call again before it answers.
            assert kinds[:2] == ["tool_call_item", "tool_call_output_item"]
            assert kinds[-1] == "message_output_item"
            assert "sunny for" in result.new_items[1].output
            assert isinstance(result.final_output, Answer)


@case
async def streamed_tool_call_is_carried_out(at: Servers) -> None:
    for kind in KINDS:
        settings = fussy(tool_choice="required", parallel_tool_calls=False)
        asked = agent(at, kind, settings, tools=[weather],
                      tool_use_behavior=StopAtTools(stop_at_tool_names=["get_weather"]))  # fmt: skip
        streamed = Runner.run_streamed(asked, QUESTION)
        names = [event.name async for event in streamed.stream_events()
                 if event.type == "run_item_stream_event"]  # fmt: skip
        assert names == ["tool_called", "tool_output"]
        whole = await Runner.run(asked, QUESTION)
        assert streamed.final_output == whole.final_output
        assert "sunny for" in whole.final_output


@case
async def typed_result(at: Servers) -> None:
    for kind in KINDS:
        asked = agent(at, kind, fussy(), output_type=Answer)
        whole = await Runner.run(asked, QUESTION)
        assert isinstance(whole.final_output, Answer)
        streamed = Runner.run_streamed(asked, QUESTION)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == whole.final_output


@case
async def result_cut_short_is_no_result(at: Servers) -> None:
    for kind in KINDS:
        with raises(ModelBehaviorError):
            await Runner.run(agent(at, kind, fussy(max_tokens=3), output_type=Answer), QUESTION)


@case
async def handoff_goes_to_the_other_agent(at: Servers) -> None:
    for kind in KINDS:
        other = agent(at, kind, fussy(), output_type=Answer)
        other.name = "other"
        settings = fussy(tool_choice="required", parallel_tool_calls=False)
        result = await Runner.run(agent(at, kind, settings, handoffs=[other]), QUESTION)
        assert result.last_agent.name == "other"
        assert isinstance(result.final_output, Answer)


@case
async def calls_without_an_end_stop_at_the_limit_of_turns(at: Servers) -> None:
    settings = fussy(tool_choice="required", parallel_tool_calls=False)
    stubborn = agent(at, CHAT, settings, tools=[weather], reset_tool_choice=False)
    with raises(MaxTurnsExceeded):
        await Runner.run(stubborn, QUESTION, max_turns=2)


@case
async def every_setting_of_the_client_is_taken_or_refused_by_name(at: Servers) -> None:
    """What an application sets for OpenAI's own models; no memory is there to store in."""
    settings: dict[str, Any] = {
        "top_p": 0.9, "store": False, "metadata": {"a": "b"}, "verbosity": "low",
        "prompt_cache_retention": "in_memory", "truncation": "disabled",
    }  # fmt: skip
    for kind in KINDS:
        asked = agent(at, kind, {**fussy(), **settings}, output_type=Answer)
        assert (await Runner.run(asked, QUESTION)).final_output
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.5}
    assert (await Runner.run(agent(at, CHAT, penalties), QUESTION)).final_output


@case
async def wrong_value_names_its_parameter(at: Servers) -> None:
    for kind in KINDS:
        with raises(openai.BadRequestError) as raised:
            await Runner.run(agent(at, kind, {"top_p": 1.5}), QUESTION)
        assert (raised.error.param, raised.error.code) == ("top_p", "invalid_value")


@case
async def unknown_model_is_not_found(at: Servers) -> None:
    for kind in KINDS:
        asked = Agent(name="x", model=model(kind, at.judged, "gpt-4"))
        with raises(openai.NotFoundError) as raised:
            await Runner.run(asked, QUESTION, run_config=RunConfig(tracing_disabled=True))
        assert raised.error.code == "model_not_found"


@case
async def prompt_too_long_is_told_by_its_code(at: Servers) -> None:
    for kind in KINDS:
        with raises(openai.BadRequestError) as raised:
            await Runner.run(agent(at, kind), "long " * at.limit)
        assert raised.error.code == "context_length_exceeded"
        assert f"maximum context length is {at.limit}" in raised.error.message


@case
async def wrong_key_is_an_authentication_error(at: Servers) -> None:
    for kind in KINDS:
        right = Agent(name="x", model=model(kind, at.locked, "fake", KEY))
        assert (await Runner.run(right, "abc")).final_output == "cba"
        wrong = Agent(name="x", model=model(kind, at.locked, "fake", "mistaken"))
        with raises(openai.AuthenticationError):
            await Runner.run(wrong, "abc")


@case
async def full_queue_and_failures_are_server_errors(at: Servers) -> None:
    for kind in KINDS:
        with raises(openai.InternalServerError) as raised:
            await Runner.run(Agent(name="x", model=model(kind, at.full, "fake")), "abc")
        assert raised.error.status_code == 503
        failing = Agent(name="x", model=model(kind, at.failing, "fake"))
        with raises(openai.InternalServerError):
            await Runner.run(failing, POISON)
        streamed = Runner.run_streamed(failing, LATE)
        with raises((openai.APIError, ModelBehaviorError)):
            async for _ in streamed.stream_events():
                pass


if __name__ == "__main__":
    run("openai-agents", "openai")
