"""pydantic-ai's AnthropicModel, on `/v1/messages`."""

from typing import Any

from anthropic import AsyncAnthropic
from judging import KEY, LATE, POISON, Answer, Servers, case, raises, run
from pydantic_ai import (
    Agent,
    ModelAPIError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ToolOutput,
    UnexpectedModelBehavior,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

QUESTION = "日本語 🙂?"


def model(url: str, name: str = "judged", key: str = "none") -> AnthropicModel:
    root = url.removesuffix("/v1")
    client = AsyncAnthropic(base_url=root, api_key=key, max_retries=0, timeout=30)
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def agent(at: Servers, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    """Noise of at most 24 tokens, unless `settings` say otherwise."""
    wanted = {"max_tokens": 24, "temperature": 0, "extra_body": {"ignore_eos": True}}
    return Agent(model(at.judged), instructions="Be short.", retries=0,
                 model_settings={**wanted, **(settings or {})}, **more)  # fmt: skip


FUSSY = {"max_tokens": 400, "temperature": 1, "extra_body": {"seed": 1}}


@case
async def plain_and_streamed(at: Servers) -> None:
    whole = await agent(at).run(QUESTION)
    assert whole.output
    assert whole.usage.output_tokens == 24
    assert whole.response.finish_reason == "length"
    async with agent(at).run_stream(QUESTION) as streamed:
        pieces = [piece async for piece in streamed.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 1
    assert "".join(pieces) == whole.output
    assert streamed.usage.output_tokens == 24


@case
async def history_goes_into_the_next_prompt(at: Servers) -> None:
    first = await agent(at).run("one")
    second = await agent(at).run("two", message_history=first.all_messages())
    assert second.usage.input_tokens > first.usage.input_tokens + 20


@case
async def typed_output_whole_and_streamed(at: Servers) -> None:
    asked = agent(at, FUSSY, output_type=ToolOutput(Answer))
    whole = await asked.run(QUESTION)
    assert isinstance(whole.output, Answer)
    async with asked.run_stream(QUESTION) as streamed:
        assert await streamed.get_output() == whole.output


@case
async def refusals_are_the_exceptions_of_the_client(at: Servers) -> None:
    for asked, status in ((agent(at, {"top_p": 1.5}), 400), (Agent(model(at.judged, "x")), 404),
                          (Agent(model(at.locked, "fake", "mistaken")), 401)):  # fmt: skip
        with raises(ModelHTTPError) as raised:
            await asked.run(QUESTION)
        assert raised.error.status_code == status
    assert (await Agent(model(at.locked, "fake", KEY)).run("abc")).output == "cba"
    with raises(ModelContextWindowExceededError):
        await agent(at).run("long " * at.limit)


@case
async def failures_are_the_exceptions_of_the_client(at: Servers) -> None:
    with raises(ModelHTTPError) as raised:
        await Agent(model(at.full, "fake")).run("abc")
    assert raised.error.status_code in (503, 529)
    with raises(ModelHTTPError) as raised:
        await Agent(model(at.failing, "fake")).run(POISON)
    assert raised.error.status_code == 500
    pieces = []
    with raises((ModelAPIError, UnexpectedModelBehavior)):
        async with Agent(model(at.failing, "fake")).run_stream(LATE) as streamed:
            async for piece in streamed.stream_text(delta=True, debounce_by=None):
                pieces.append(piece)  # noqa: PERF401
    assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("pydantic-ai-slim", "anthropic")
