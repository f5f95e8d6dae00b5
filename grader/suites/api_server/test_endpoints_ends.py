"""Task 8.6: endpoints whose requests are refused, fail or are left."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from grader.kit import expect, expect_equal, task
from grader.kit.api import FakeService, Wire, ask, call
from grader.kit.waiting import run, settle, until, within
from grader.suites.api_server.apps import CHAT, TEXT, app_on, body_for, borrowed_for_routes
from yaie.core.errors import EngineOverloadedError, EngineUnavailableError

QUEUED = "A client that leaves must give back its place in the queue, streaming or not."


@pytest.fixture(autouse=True)
def _all_else_is_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed_for_routes(part):
        yield


@task("8.6")
def test_a_refused_submission_has_a_status(part: ModuleType) -> None:
    """What the service refuses is no 200, even if a stream was asked for."""
    for path in (CHAT, TEXT):
        for stream in (False, True):
            service = FakeService()
            service.fault = EngineOverloadedError("full")
            answer = ask(app_on(part, service), "POST", path, body_for(path, stream=stream))
            expect_equal(
                answer.status, 503, f"the status of {path} with a full queue, stream={stream}"
            )


@task("8.6")
def test_a_reply_that_cannot_be_made_closes_its_stream(part: ModuleType) -> None:
    """If extending the reply raises after the submission, the stream is closed and the error goes on."""
    faults = (EngineOverloadedError("no room"), KeyError("a bug"))
    for path, stream, fault in product((CHAT, TEXT), (False, True), faults):
        service = FakeService()
        service.extend_fault = fault
        with suppress(KeyError):  # the framework answers 500, and raises an accident once more
            answer = ask(app_on(part, service), "POST", path, body_for(path, stream=stream))
            what = f"the status of {path} if service.extend raises {fault!r}, stream={stream}"
            expect_equal(answer.status, 503, what)
        why = "The engine works for it already: unread, it would run to its end."
        closed = service.streams[0].closed
        expect(
            closed,
            "the stream of a reply that could not be made is not closed: service.extend has raised "
            f"{fault!r}",
            why=why,
        )


class LoadingService:
    """Knows nothing yet."""

    def __getattr__(self, name: str) -> Any:
        raise EngineUnavailableError("The model is still loading.")


@task("8.6")
def test_a_router_can_be_made_while_the_model_loads(part: ModuleType) -> None:
    """make_router asks nothing of the service; while the model loads every endpoint answers 503."""
    why = "The server listens while gigabytes are loaded, and says so to every client that asks."
    try:
        app = app_on(part, LoadingService())
    except EngineUnavailableError:
        expect(False, "make_router asks the service for something that is not known yet", why=why)
    for method, path, body in (
        ("GET", "/v1/models", None),
        ("GET", "/v1/models/x", None),
        ("POST", CHAT, body_for(CHAT)),
        ("POST", TEXT, body_for(TEXT)),
    ):
        answer = ask(app, method, path, body)
        expect_equal(
            answer.status, 503, f"the status of {method} {path} while the model loads", why=why
        )


@task("8.6")
def test_a_client_that_leaves_closes_its_stream(part: ModuleType) -> None:
    """Before the first output and in mid-answer, streaming or not: a client's leaving is noticed."""
    for path in (CHAT, TEXT):
        for stream in (False, True):
            for pieces in ((), ("a",)):
                body = json.dumps(body_for(path, stream=stream)).encode()
                run(_leave(part, path, Wire(body), FakeService(pieces)))


async def _leave(part: ModuleType, path: str, wire: Wire, service: FakeService) -> None:
    service.hangs = True
    serving = asyncio.ensure_future(call(app_on(part, service), wire, "POST", path))
    await until(lambda: service.streams or serving.done(), "the submission")
    await settle()
    expect(not serving.done() and not service.streams[0].closed, "it ended though its client waits")
    wire.hang_up()
    await asyncio.wait({serving}, timeout=1)
    expect(serving.done(), f"POST {path} goes on after its client has left", why=QUEUED)
    expect(service.streams[0].closed, "the stream is not closed", why=QUEUED)
    await within(serving, f"POST {path}, whose client has left")
