"""Task 8.6: the official client.

In the last test, and only there, the part's tasks meet. Each task's own tests say what is wrong with it;
there it is enough that an answer comes through.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI

from grader.kit import Mismatch, expect, expect_equal, note, task
from grader.kit.api import FakeService, ask
from grader.kit.waiting import run, within
from grader.suites.api_server.apps import (
    CHAT,
    USER,
    app_on,
    body_for,
    borrowed_for_routes,
    has_client,
)

SECONDS = 5.0
STRICT = "The client is told to refuse whatever does not have the shape that OpenAI documents."


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Imports the client before a test's patience begins: that takes a second, and more under load."""
    if not has_client():
        return
    import openai.resources.chat
    import openai.resources.completions
    import openai.resources.models  # noqa: F401


@asynccontextmanager
async def official(app: FastAPI) -> AsyncIterator[Any]:
    """OpenAI's client, strict about shapes, speaking to an app without a network."""
    import httpx
    from openai import APIConnectionError, APIResponseValidationError, AsyncOpenAI

    http: Any  # the client takes httpx's as well as that of its own
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        client = AsyncOpenAI(
            base_url="http://api/v1",
            api_key="-",
            http_client=http,
            max_retries=0,
            _strict_response_validation=True,
        )
        try:
            yield client
        except APIConnectionError as error:
            raise (error.__cause__ or error) from None  # what the part raised
        except (APIResponseValidationError, json.JSONDecodeError) as error:
            problem = "the official client cannot read the response"
            raise Mismatch(problem, "OpenAI's shape", str(error), why=STRICT) from None


@pytest.fixture
def alone(part: ModuleType) -> Iterator[None]:
    """The endpoints on the reference's other tasks: what is wrong with the part's is graded there."""
    with borrowed_for_routes(part):
        yield


@task("8.6")
@pytest.mark.usefixtures("alone")
def test_the_official_client_holds_a_conversation(part: ModuleType) -> None:
    """OpenAI's own client reads a whole answer and a streamed one, with n = 2."""

    if not has_client():
        return

    async def test() -> None:
        async with official(app_on(part, FakeService())) as client:
            note("client.chat.completions.create(messages=..., n=2)")
            answer = await client.chat.completions.create(model="org/model", messages=USER, n=2)
            texts = [choice.message.content for choice in answer.choices]
            expect_equal(texts, ["Hello", "Hello"], "the texts that the client reads", why=STRICT)
            note("client.chat.completions.create(messages=..., n=2, stream=True)")
            texts = ["", ""]
            async for chunk in await client.chat.completions.create(
                model="org/model", messages=USER, n=2, stream=True
            ):
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
            expect_equal(texts, ["Hello", "Hello"], "the streamed texts that the client reads")

    run(within(test(), "the official client's conversation", SECONDS), 2 * SECONDS)


@task("8.6")
@pytest.mark.usefixtures("alone")
def test_the_official_client_continues_texts(part: ModuleType) -> None:
    """OpenAI's own client has texts continued, and lists the models."""

    if not has_client():
        return

    async def test() -> None:
        async with official(app_on(part, FakeService())) as client:
            note("client.completions.create(prompt=[...])")
            answer = await client.completions.create(model="org/model", prompt=["abc", "d"])
            texts = [choice.text for choice in answer.choices]
            expect_equal(texts, ["Hello", "Hello"], "the texts that the client reads", why=STRICT)
            note("client.models.list()")
            models = [model.id async for model in client.models.list()]
            expect_equal(models, ["org/model"], "the models that the client lists", why=STRICT)

    run(within(test(), "the official client's texts", SECONDS), 2 * SECONDS)


async def refusal(client: Any, **options: Any) -> Any:
    """The error that the client raises for a conversation with these options."""
    from openai import APIStatusError

    note(f"client.chat.completions.create(messages=..., **{options})")
    try:
        await client.chat.completions.create(messages=USER, **options)
    except APIStatusError as error:
        return error
    raise Mismatch(f"the client gets an answer to {options}")


@task("8.6")
@pytest.mark.usefixtures("alone")
def test_the_official_client_is_refused(part: ModuleType) -> None:
    """What is refused raises the error of OpenAI's client that fits."""

    if not has_client():
        return

    async def test() -> None:
        async with official(app_on(part, FakeService())) as client:
            error = await refusal(client, model="gpt-4")
            got = (type(error).__name__, error.code)
            expect_equal(
                got, ("NotFoundError", "model_not_found"), "the error for an unknown model"
            )
            error = await refusal(client, model="org/model", top_p=2)
            got = (type(error).__name__, error.param)
            expect_equal(got, ("BadRequestError", "top_p"), "the error for top_p = 2")

    run(within(test(), "the official client's refusal", SECONDS), 2 * SECONDS)


@task("8.6")
def test_all_tasks_together(part: ModuleType) -> None:
    """All six tasks together answer the official client, a stream and a mistake."""
    app = FastAPI()
    part.install_error_handlers(app)
    app.include_router(part.make_router(FakeService()))

    if not has_client():
        return

    async def test() -> None:
        async with official(app) as client:
            note("client.chat.completions.create(messages=..., n=2)")
            answer = await client.chat.completions.create(model="org/model", messages=USER, n=2)
            expect_equal(len(answer.choices), 2, "how many choices the client reads", why=STRICT)
            error = await refusal(client, model="gpt-4")
            expect(error.body, "the error for an unknown model has no body")

    run(within(test(), "the official client's answer", SECONDS), 2 * SECONDS)
    streamed = ask(app, "POST", CHAT, body_for(CHAT, stream=True))
    got = (streamed.status, bool(streamed.body))
    expect_equal(got, (200, True), "status of a stream, and whether it says anything")
