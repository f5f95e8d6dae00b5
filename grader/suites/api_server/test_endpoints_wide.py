"""Task 8.6: clients side by side, clients that leave early, bodies and errors that go to others."""

import asyncio
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from grader.kit import expect, expect_equal, expect_raises, note, start_script, task
from grader.kit.api import FakeService, Wire, ask, call
from grader.kit.waiting import run, settle, until, within
from grader.suites.api_server.apps import CHAT, TEXT, app_on, body_for, borrowed_for_routes
from grader.suites.api_server.reading import events_of
from yaie.core.errors import EngineOverloadedError, ModelNotFoundError, YaieError
from yaie.core.params import SamplingParams

SIDE_BY_SIDE = (
    "The engine computes the requests of all clients in one batch: nothing in an endpoint waits for "
    "another client."
)
GIVEN_UP = (
    "A client may leave while its prompt is made or submitted. `until_disconnect` cancels the work "
    "then. What goes on in a task of its own, or behind a shield, opens a stream that nothing closes."
)
HANDLERS = (
    "Exceptions are left to the handlers of the app: they log, and a server around the router may have "
    "others."
)
AS_ASKED = "stream alone says how an answer is sent, whatever else the body asks for."


@pytest.fixture(autouse=True)
def _all_else_is_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed_for_routes(part):
        yield


class WaitingService(FakeService):
    """A service whose `waits` member, "encode_chat" or "submit_all", waits for ever. begun, ended: how
    many calls of it have."""

    def __init__(self, waits: str) -> None:
        super().__init__()
        self.waits = waits
        self.begun = self.ended = 0

    async def _wait(self, name: str) -> None:
        if name == self.waits:
            self.begun += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1

    async def encode_chat(self, *arguments: Any, **named: Any) -> list[int]:
        found = await super().encode_chat(*arguments, **named)
        await self._wait("encode_chat")
        return found

    async def submit_all(self, *arguments: Any, **named: Any) -> Any:
        await self._wait("submit_all")
        return await super().submit_all(*arguments, **named)


def posted(app: FastAPI, path: str, **options: Any) -> tuple[Wire, "asyncio.Task[None]"]:
    """A request that is being answered, and its wire."""
    wire = Wire(json.dumps(body_for(path, **options)).encode())
    return wire, asyncio.ensure_future(call(app, wire, "POST", path))


async def given_up(*serving: "asyncio.Task[None]") -> None:
    for each in serving:
        each.cancel()
    await asyncio.wait({*serving}, timeout=1)


@task("8.6")
def test_clients_are_answered_side_by_side(part: ModuleType) -> None:
    """While one client's answer is computed, or its prompt is made, another one's is too."""

    async def computed(path: str) -> None:
        service = FakeService(("a",))
        service.hangs = True
        app = app_on(part, service)
        _, first = posted(app, path)
        await until(lambda: service.streams or first.done(), "the first submission")
        _, second = posted(app, path)
        await settle(100)
        number = len(service.streams)
        await given_up(first, second)
        problem = f"POST {path} submits nothing while another client's answer is computed"
        expect(number == 2, problem, why=SIDE_BY_SIDE)

    async def encoded() -> None:
        service = WaitingService("encode_chat")
        app = app_on(part, service)
        serving = [posted(app, CHAT)[1] for _ in range(2)]
        await settle(100)
        number = service.begun
        await given_up(*serving)
        problem = f"of two conversations {number} came to encode_chat while both wait there"
        expect(number == 2, problem, why=SIDE_BY_SIDE)

    for path in (CHAT, TEXT):
        start_script()
        run(computed(path))
    start_script()
    run(encoded())


@task("8.6")
def test_a_client_may_leave_before_its_stream_is_there(part: ModuleType) -> None:
    """While a prompt is encoded, or submitted, a client's leaving ends that."""

    async def leave(path: str, waits: str) -> None:
        service = WaitingService(waits)
        wire, serving = posted(app_on(part, service), path)
        await until(lambda: service.begun or serving.done(), f"the call of {waits}")
        note(f"# service.{waits} goes on")
        await settle()
        wire.hang_up()
        await asyncio.wait({serving}, timeout=1)
        is_done, ended = serving.done(), service.ended
        await given_up(serving)
        expect(is_done, f"POST {path} goes on after its client has left", why=GIVEN_UP)
        problem = f"service.{waits} still runs when POST {path}, whose client has left, is over"
        expect(ended, problem, why=GIVEN_UP)

    for path, waits in ((CHAT, "encode_chat"), (CHAT, "submit_all"), (TEXT, "submit_all")):
        start_script()
        run(leave(path, waits))


@task("8.6")
def test_a_reply_that_cannot_be_made_closes_its_stream_too(part: ModuleType) -> None:
    """If make_reply raises, the stream is closed and the error goes on, as if extending had failed."""

    def make_reply(*arguments: Any, **named: Any) -> Any:
        raise KeyError("a bug")

    for stream in (False, True):
        service = FakeService()
        body = part.CompletionRequest(prompt="abc", stream=stream)
        start_script()
        note("answer(service, body, ['abc'], params, make_reply), where make_reply raises KeyError")
        with expect_raises(KeyError, "answer whose make_reply raises"):
            run(part.routes.answer(service, body, ["abc"], SamplingParams(), make_reply))
        why = "The engine works for it already: unread, it would run to its end."
        expect(
            service.streams[0].closed, "the stream is not closed: make_reply has raised", why=why
        )


@task("8.6")
def test_errors_go_to_the_handlers(part: ModuleType) -> None:
    """What an endpoint raises is raised: the app's own handlers make the response."""
    heard: list[str] = []

    async def handle(request: Request, error: Exception) -> Response:
        heard.append(type(error).__name__)
        note(f"# the app's handler is given {type(error).__name__}")
        return Response(status_code=418)

    def app_of(service: FakeService) -> FastAPI:
        app = FastAPI()
        for kind in (YaieError, ClientDisconnect):
            app.add_exception_handler(kind, handle)
        app.include_router(part.make_router(service))
        return app

    full = FakeService()
    full.fault = EngineOverloadedError("full")
    for method, path, body, right in (
        ("GET", "/v1/models/other", None, "ModelNotFoundError"),
        ("POST", CHAT, body_for(CHAT), "EngineOverloadedError"),
        ("POST", TEXT, body_for(TEXT), "EngineOverloadedError"),
    ):
        start_script()
        heard.clear()
        ask(app_of(full), method, path, body)
        expect_equal(heard, [right], f"what the app's handler was given by {path}", why=HANDLERS)

    async def leave(path: str) -> None:
        service = FakeService(())
        service.hangs = True
        wire, serving = posted(app_of(service), path)
        await until(lambda: service.streams or serving.done(), "the submission")
        wire.hang_up()
        await within(serving, f"POST {path}, whose client has left")

    for path in (CHAT, TEXT):
        start_script()
        heard.clear()
        run(leave(path))
        what = f"what the app's handler was given by {path}, whose client has left"
        expect_equal(heard, ["ClientDisconnect"], what, why=HANDLERS)


@task("8.6")
def test_a_body_of_the_wrong_type_is_refused(part: ModuleType) -> None:
    """What the body may hold is checked by the framework: a wrong one is a 400."""
    app = app_on(part, FakeService())
    for path, body, param in (
        (CHAT, {"messages": 5}, "messages"),
        (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (TEXT, {"prompt": "x", "max_tokens": "many"}, "max_tokens"),
        (TEXT, [1], None),
        (CHAT, [1], None),
    ):
        start_script()
        why = "Give the body's class as the parameter's type: FastAPI then checks it, and raises."
        try:
            answer = ask(app, "POST", path, body)
        except Exception as error:  # noqa: BLE001, whatever gets out of the app
            problem = f"POST {path} with the body {body} raises {type(error).__name__}"
            expect(False, problem, why=why)
        expect_equal(answer.status, 400, f"the status of POST {path} with the body {body}", why=why)
        got = answer.json().get("error", {}).get("param")
        expect_equal(got, param, f"the parameter that POST {path} names for the body {body}")


@task("8.6")
def test_each_router_has_its_own_service(part: ModuleType) -> None:
    """Two services in one process are asked each for itself: names, cards and checks."""
    services = [FakeService(), FakeService()]
    services[1].model_name, services[1].max_model_len = "other", 64
    apps = [app_on(part, service) for service in services]
    for _ in range(2):
        for app, service in zip(apps, services, strict=True):
            card = ask(app, "GET", f"/v1/models/{service.model_name}").json()
            got = (card.get("id"), card.get("max_model_len"))
            wanted = (service.model_name, service.max_model_len)
            what = "id and max_model_len of a card, where two routers have a model each"
            why = "Nothing of a service is kept in the module: it is asked for each request."
            expect_equal(got, wanted, what, why=why)
    first, second = services
    note(f"check_model(service of {second.model_name!r}, {first.model_name!r})")
    with expect_raises(ModelNotFoundError, "asking one service for the other's model"):
        part.check_model(second, first.model_name)
    cards = [part.model_card(first, 5) for _ in range(2)]
    cards[0]["id"] = "changed"
    what = "the card, asked for again after the caller has changed the first"
    expect_equal(cards[1]["id"], first.model_name, what)


@task("8.6")
def test_the_answer_names_the_served_model(part: ModuleType) -> None:
    """The model of an answer is the service's, whether the client has named it or not."""
    app = app_on(part, FakeService())
    for path in (CHAT, TEXT):
        for options in ({}, {"model": "org/model"}, {"model": None}):
            said = [ask(app, "POST", path, body_for(path, **options)).json()]
            said += events_of(ask(app, "POST", path, body_for(path, stream=True, **options)).body)
            got = {document.get("model") for document in said}
            what = f"the model that answers of {path} name, for a body with {options or 'no model'}"
            expect_equal(got, {"org/model"}, what)


@task("8.6")
def test_a_request_is_submitted_once_as_it_is(part: ModuleType) -> None:
    """stream alone says how an answer is sent; a request is submitted once, refused or not."""
    service = FakeService()
    app = app_on(part, service)
    for path in (CHAT, TEXT):
        several: dict[str, Any] = {"logprobs": 1 if path == TEXT else True, "n": 2, "seed": 5}
        for options in (several, {"stop": ["x"], "priority": -1000}, {"max_tokens": 1}):
            service.calls.clear()
            start_script()
            answer = ask(app, "POST", path, body_for(path, stream=True, **options))
            kind = answer.headers.get("content-type", "").partition(";")[0]
            what = f"the content type of a streamed {path} with {options}"
            expect_equal(kind, "text/event-stream", what, why=AS_ASKED)
            *_, (_, _, _, priority) = service.calls
            expect_equal(priority, options.get("priority", 0), f"the priority with {options}")
    service.fault = EngineOverloadedError("full")
    for path in (CHAT, TEXT):
        service.calls.clear()
        start_script()
        ask(app, "POST", path, body_for(path))
        number = sum(made[0] == "submit_all" for made in service.calls)
        why = "A full queue is the client's to try again, when Retry-After says."
        what = f"submissions of one request to {path}, where the queue is full"
        expect_equal(number, 1, what, why=why)
