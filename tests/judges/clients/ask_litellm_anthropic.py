"""LiteLLM's `anthropic` provider, which asks `/v1/messages` by its own HTTP client."""

from typing import Any

import litellm
import openai
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run

litellm.telemetry = False
litellm.suppress_debug_info = True
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "日本語 🙂?"}]
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": Weather.model_json_schema()}}  # fmt: skip


def ask(url: str, model: str = "judged", text: str | None = None, **options: Any) -> Any:
    messages = MESSAGES if text is None else [{"role": "user", "content": text}]
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30, "messages": messages,
                "max_tokens": 24, "api_base": url.removesuffix("/v1")}  # fmt: skip
    return litellm.completion(model=f"anthropic/{model}", **{**defaults, **options})


def talk(at: Servers, **options: Any) -> Any:
    return ask(at.judged, **{"temperature": 0, "ignore_eos": True, **options})


def fussy(at: Servers, **options: Any) -> Any:
    """For formats: the model ends where the grammar lets it."""
    seeded = {"seed": 1, "allowed_openai_params": ["seed"]}
    return ask(at.judged, **{"temperature": 1, "max_tokens": 400, **seeded, **options})


@case
def plain(at: Servers) -> None:
    answer = talk(at)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 24


@case
def streamed_text_is_the_whole_text(at: Servers) -> None:
    whole = talk(at)
    chunks = list(talk(at, stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert built.choices[0].message.content == whole.choices[0].message.content
    assert built.usage.completion_tokens == 24


@case
def demanded_tool_is_called_whole_and_streamed(at: Servers) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        options: Any = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
        answer = fussy(at, **options)
        (call,) = answer.choices[0].message.tool_calls
        Weather.model_validate_json(call.function.arguments)
        chunks = list(fussy(at, stream=True, **options))
        built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
        (again,) = built.choices[0].message.tool_calls
        Weather.model_validate_json(again.function.arguments)
        turns = [*MESSAGES, answer.choices[0].message.model_dump(),
                 {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]  # fmt: skip
        last = talk(at, messages=turns, tools=[TOOL])
        assert last.usage.prompt_tokens > answer.usage.prompt_tokens + 10


@case
def structured_output(at: Servers) -> None:
    """Of a model that it does not know the client makes a function of the format."""
    answer = fussy(at, response_format=Answer)
    Answer.model_validate_json(answer.choices[0].message.content)


@case
def refusals_are_the_exceptions_of_the_client(at: Servers) -> None:
    with raises(litellm.BadRequestError) as raised:
        talk(at, top_p=1.5)
    assert "top_p" in str(raised.error)
    with raises(litellm.NotFoundError):
        ask(at.judged, "claude-x")
    for stream in (False, True):
        with raises(litellm.ContextWindowExceededError):
            ask(at.judged, text="long " * at.limit, stream=stream)
    assert ask(at.locked, "fake", "abc", api_key=KEY).choices[0].message.content == "cba"
    with raises(litellm.AuthenticationError):
        ask(at.locked, "fake", "abc", api_key="mistaken")


@case
def failures_are_the_exceptions_of_the_client(at: Servers) -> None:
    with raises((litellm.ServiceUnavailableError, litellm.InternalServerError)):
        ask(at.full, "fake", "abc")
    with raises(litellm.InternalServerError):
        ask(at.failing, "fake", POISON)
    pieces = []
    with raises(openai.APIError):
        for chunk in ask(at.failing, "fake", LATE, stream=True):
            pieces.append(chunk.choices[0].delta.content or "")  # noqa: PERF401
    assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("litellm", "openai")
