"""instructor: typed answers by functions, by schemas and by partial streams, on top of `openai`."""

from typing import Any

import instructor
import openai
from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException
from judging import LATE, POISON, Answer, Servers, case, raises, run
from openai import AsyncOpenAI, OpenAI

# Not PARALLEL_TOOLS: there the client leaves it to the model whether to call, and noise does not.
MODES = (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA)
MESSAGES: Any = [{"role": "user", "content": "日本語 🙂?"}]
FUSSY: Any = {
    "messages": MESSAGES,
    "max_tokens": 400,
    "temperature": 1,
    "seed": 1,
    "max_retries": 0,
}


def client(url: str, mode: Any = instructor.Mode.TOOLS, key: str = "none") -> Any:
    asked = OpenAI(base_url=url, api_key=key, max_retries=0, timeout=30)
    return instructor.from_openai(asked, mode=mode)


@case
def answer_is_typed_in_every_mode(at: Servers) -> None:
    for mode in MODES:
        found = client(at.judged, mode).create(model="judged", response_model=Answer, **FUSSY)
        assert isinstance(found, Answer), mode


@case
def answer_comes_with_its_completion(at: Servers) -> None:
    found, completion = client(at.judged).create_with_completion(
        model="judged", response_model=Answer, **FUSSY
    )
    assert isinstance(found, Answer)
    assert completion.usage.completion_tokens > 5


@case
def json_mode_asks_for_an_object(at: Servers) -> None:
    """The schema stands in the prompt alone: noise does not follow it, and the client says so."""
    with raises((InstructorRetryException, IncompleteOutputException)):
        client(at.judged, instructor.Mode.JSON).create(
            model="judged", response_model=Answer, **FUSSY
        )


@case
def partial_answers_grow_into_a_whole_one(at: Servers) -> None:
    """Of another name than the whole answer's class: what functions are called is in the prompt."""
    for mode in MODES:
        asked = client(at.judged, mode)
        pieces = list(asked.create_partial(model="judged", response_model=Answer, **FUSSY))
        assert len(pieces) > 1, mode
        whole = Answer.model_validate(pieces[-1].model_dump())
    found = asked.create(model="judged", response_model=Answer, **FUSSY)
    assert whole.model_dump() == found.model_dump()


@case
async def asynchronous_answers(at: Servers) -> None:
    asked: Any = instructor.from_openai(
        AsyncOpenAI(base_url=at.judged, api_key="none", max_retries=0, timeout=30)
    )
    found = await asked.create(model="judged", response_model=Answer, **FUSSY)
    assert isinstance(found, Answer)
    pieces = [
        piece async for piece in asked.create_partial(
            model="judged", response_model=Answer, **FUSSY)
    ]  # fmt: skip
    Answer.model_validate(pieces[-1].model_dump())


@case
def plain_text_and_its_stream(at: Servers) -> None:
    options: Any = {**FUSSY, "max_tokens": 24, "extra_body": {"ignore_eos": True}}
    whole = client(at.judged).create(model="judged", response_model=None, **options)
    chunks = client(at.judged).create(model="judged", response_model=None, stream=True, **options)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content


@case
def answer_cut_short_is_incomplete(at: Servers) -> None:
    for mode in MODES:
        with raises(IncompleteOutputException):
            client(at.judged, mode).create(
                model="judged", response_model=Answer, **{**FUSSY, "max_tokens": 3}
            )


def failing(at: Servers, url: str, kind: Any, model: str = "fake", text: str = "abc",
            key: str = "none", **more: Any) -> Any:  # fmt: skip
    """The exception of the client below, which instructor passes on or wraps."""
    options = {**FUSSY, "messages": [{"role": "user", "content": text}], **more}
    with raises((kind, InstructorRetryException)) as raised:
        client(url, key=key).create(model=model, response_model=None, **options)
    error = raised.error
    return error if isinstance(error, kind) else error.__cause__


@case
def refusals_and_failures_are_exceptions_of_openai(at: Servers) -> None:
    wrong = failing(at, at.judged, openai.BadRequestError, "judged", top_p=1.5)
    assert (wrong.param, wrong.code) == ("top_p", "invalid_value")
    missing = failing(at, at.judged, openai.NotFoundError, "gpt-4")
    assert missing.code == "model_not_found"
    long = failing(at, at.judged, openai.BadRequestError, "judged", "long " * at.limit)
    assert long.code == "context_length_exceeded"
    assert f"maximum context length is {at.limit}" in str(long)
    assert failing(at, at.locked, openai.AuthenticationError, key="mistaken").status_code == 401
    assert failing(at, at.full, openai.InternalServerError).status_code == 503
    assert failing(at, at.failing, openai.InternalServerError, text=POISON).status_code == 500


@case
def typed_answers_fail_alike(at: Servers) -> None:
    with raises((openai.NotFoundError, InstructorRetryException)) as raised:
        client(at.judged).create(model="gpt-4", response_model=Answer, **FUSSY)
    assert "gpt-4" in str(raised.error)


@case
def failure_in_the_middle_of_a_stream_is_raised(at: Servers) -> None:
    options = {**FUSSY, "messages": [{"role": "user", "content": LATE}], "stream": True}
    pieces = []
    with raises(openai.APIError):
        for chunk in client(at.failing).create(model="fake", response_model=None, **options):
            pieces.append(chunk.choices[0].delta.content or "")  # noqa: PERF401
    assert LATE[::-1].startswith("".join(pieces))


if __name__ == "__main__":
    run("instructor", "openai")
