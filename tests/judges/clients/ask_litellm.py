"""LiteLLM: its `openai`, `hosted_vllm` and `text-completion-openai` providers."""

import asyncio
import json
from typing import Any

import litellm
import openai
from judging import KEY, LATE, POISON, Answer, Servers, Weather, case, raises, run

litellm.telemetry = False
litellm.suppress_debug_info = True
PROVIDERS = ("openai", "hosted_vllm")
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "日本語 🙂?"}]
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": Weather.model_json_schema()}}  # fmt: skip
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def ask(url: str, provider: str = "openai", model: str = "judged", text: str | None = None,
        **options: Any) -> Any:  # fmt: skip
    messages = MESSAGES if text is None else [{"role": "user", "content": text}]
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30, "messages": messages,
                "max_tokens": 24}  # fmt: skip
    return litellm.completion(model=f"{provider}/{model}", api_base=url, **{**defaults, **options})


def talk(at: Servers, provider: str = "openai", **options: Any) -> Any:
    options = {"temperature": 0, "extra_body": {"ignore_eos": True}, **options}
    return ask(at.judged, provider, **options)


def fussy(at: Servers, provider: str = "openai", **options: Any) -> Any:
    """For formats: the model ends where the grammar lets it."""
    return ask(at.judged, provider, **{"temperature": 1, "seed": 1, "max_tokens": 400, **options})


@case
def plain(at: Servers) -> None:
    for provider in PROVIDERS:
        answer = talk(at, provider)
        assert answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens == 24


@case
def streamed_text_is_the_whole_text(at: Servers) -> None:
    for provider in PROVIDERS:
        whole = talk(at, provider)
        chunks = list(talk(at, provider, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == whole.choices[0].message.content
        built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
        assert built.choices[0].message.content == text
        assert built.usage.completion_tokens == 24
        assert built.usage.prompt_tokens == whole.usage.prompt_tokens


@case
async def many_at_once_are_answered_as_alone(at: Servers) -> None:
    async def one(text: str) -> str:
        answer = await litellm.acompletion(
            model="openai/judged", api_base=at.judged, api_key="none", max_tokens=24,
            messages=[{"role": "user", "content": text}], temperature=0, max_retries=0,
            extra_body={"ignore_eos": True})  # fmt: skip
        content: str = answer.choices[0].message.content
        return content

    texts = [f"{i}?" for i in range(8)]
    together = await asyncio.gather(*map(one, texts))
    assert together == [await one(text) for text in texts]


@case
def options_of_a_call(at: Servers) -> None:
    answer = talk(at, logprobs=True, top_logprobs=2, n=2, temperature=1, seed=1, top_p=0.9,
                  presence_penalty=0.1, frequency_penalty=0.1, stop=["\0never"], user="me",
                  logit_bias={"5": -1})  # fmt: skip
    assert len(answer.choices) == 2
    assert len(answer.choices[0].logprobs.content) == 24


@case
def completions(at: Servers) -> None:
    options: Any = {"model": "text-completion-openai/judged", "api_base": at.judged, "prompt": "hello",
                    "api_key": "none", "max_tokens": 24, "temperature": 0, "max_retries": 0,
                    "extra_body": {"ignore_eos": True}}  # fmt: skip
    whole = litellm.text_completion(**options)
    assert whole.choices[0].text
    chunks = litellm.text_completion(stream=True, **options)
    assert "".join(chunk.choices[0].text or "" for chunk in chunks) == whole.choices[0].text


@case
def demanded_tool_is_called_whole_and_streamed(at: Servers) -> None:
    for provider in PROVIDERS:
        for choice in ("required", NAMED):
            options: Any = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
            answer = fussy(at, provider, **options)
            (call,) = answer.choices[0].message.tool_calls
            assert call.function.name == "get_weather"
            Weather.model_validate_json(call.function.arguments)
            chunks = list(fussy(at, provider, stream=True, **options))
            built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
            (again,) = built.choices[0].message.tool_calls
            assert again.function.arguments == call.function.arguments
            turns = [*MESSAGES, answer.choices[0].message.model_dump(),
                     {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]  # fmt: skip
            last = talk(at, provider, messages=turns, tools=[TOOL])
            assert last.usage.prompt_tokens > answer.usage.prompt_tokens + 10


@case
def structured_output_by_class_and_by_schema(at: Servers) -> None:
    schema = {"type": "json_schema", "json_schema": {
        "name": "answer", "strict": True, "schema": Answer.model_json_schema()}}  # fmt: skip
    for provider in PROVIDERS:
        for wanted in (Answer, schema):
            answer = fussy(at, provider, response_format=wanted)
            Answer.model_validate_json(answer.choices[0].message.content)
    chunks = fussy(at, response_format=schema, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    Answer.model_validate(json.loads(text))


@case
def responses(at: Servers) -> None:
    options: Any = {"model": "openai/judged", "api_base": at.judged, "api_key": "none", "input": "?",
                    "max_output_tokens": 24, "temperature": 0}  # fmt: skip
    whole = litellm.responses(**options)
    assert whole.output[0].content[0].text
    deltas = [event.delta for event in litellm.responses(stream=True, **options)
              if event.type == "response.output_text.delta"]  # fmt: skip
    assert "".join(deltas) == whole.output[0].content[0].text


@case
def wrong_value_is_a_bad_request(at: Servers) -> None:
    for provider in PROVIDERS:
        with raises(litellm.BadRequestError) as raised:
            talk(at, provider, top_p=1.5)
        assert "top_p" in str(raised.error)


@case
def unknown_model_is_not_found(at: Servers) -> None:
    for provider in PROVIDERS:
        for stream in (False, True):
            with raises(litellm.NotFoundError):
                ask(at.judged, provider, "gpt-x", stream=stream)


@case
def prompt_too_long_is_an_exceeded_context(at: Servers) -> None:
    for provider in PROVIDERS:
        for stream in (False, True):
            with raises(litellm.ContextWindowExceededError):
                ask(at.judged, provider, text="long " * at.limit, stream=stream)


@case
def wrong_key_is_an_authentication_error(at: Servers) -> None:
    for provider in PROVIDERS:
        answer = ask(at.locked, provider, "fake", "abc", api_key=KEY)
        assert answer.choices[0].message.content == "cba"
        with raises(litellm.AuthenticationError):
            ask(at.locked, provider, "fake", "abc", api_key="mistaken")


@case
def full_queue_is_an_unavailable_service(at: Servers) -> None:
    for provider in PROVIDERS:
        with raises(litellm.ServiceUnavailableError):
            ask(at.full, provider, "fake", "abc")


@case
def failures_at_once_and_in_the_middle_are_raised(at: Servers) -> None:
    for provider in PROVIDERS:
        with raises(litellm.InternalServerError):
            ask(at.failing, provider, "fake", POISON)
        pieces = []
        with raises(openai.APIError):
            for chunk in ask(at.failing, provider, "fake", LATE, stream=True):
                pieces.append(chunk.choices[0].delta.content or "")  # noqa: PERF401
        assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("litellm", "openai")
