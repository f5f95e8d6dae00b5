"""Task 8.6: names that are nearly right, many prompts, and what stays from request to request."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from grader.kit import expect_equal, expect_raises, note, start_script, task
from grader.kit.api import FakeService, ask
from grader.kit.memory import expect_keeps_nothing
from grader.suites.api_server.apps import CHAT, TEXT, app_on, body_for, borrowed_for_routes
from grader.suites.api_server.reading import events_of
from yaie.core.errors import ModelNotFoundError
from yaie.core.fields import MAX_PROMPTS

NAMES = (
    " org/model",
    "org/model ",
    "org/model\n",
    "org/model:free",
    "org/model@main",
    "org/model/",
    "org//model",
    "org",
)
"""They are the served model's, but for a character or a suffix that some services know."""


@pytest.fixture(autouse=True)
def _all_else_is_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed_for_routes(part):
        yield


@task("8.6")
def test_a_name_that_is_nearly_right_is_another(part: ModuleType) -> None:
    """check_model compares whole names: a space or a suffix makes another model."""
    service = FakeService()
    for name in NAMES:
        spaced = name.strip() == service.model_name
        part_of_it = "White space is part of the name" if spaced else "It is another name"
        why = f"{part_of_it}: names are compared as they are, and nothing is guessed."
        note(f"check_model(service, {name!r})")
        with expect_raises(ModelNotFoundError, f"asking for the model {name!r}", why=why):
            part.check_model(service, name)


@task("8.6")
def test_many_prompts_are_many_choices(part: ModuleType) -> None:
    """As many prompts as a body may hold are all submitted, and answered whole or as a stream."""
    prompts, service = ["ab"] * MAX_PROMPTS, FakeService(["x"])
    why = f"A body may have {MAX_PROMPTS} prompts, and the client gets an answer to each, as it asked."
    app = app_on(part, service)
    for stream in (False, True):
        note(f"# {MAX_PROMPTS} prompts, stream={stream}")
        answer = ask(app, "POST", TEXT, {"prompt": prompts, "stream": stream})
        _, submitted, _, _ = service.calls[-1]
        if (number := len(submitted)) != MAX_PROMPTS:
            start_script()  # what the answer holds tells nothing of this
            note(f"POST {TEXT}  # a body of {MAX_PROMPTS} prompts, stream={stream}")
            note(f"service.submit_all({number} prompts, ...)")
            lost = MAX_PROMPTS - number
            told = f"{lost} of the body's {MAX_PROMPTS} prompts were never submitted. " * (lost > 0)
            expect_equal(number, MAX_PROMPTS, "prompts that were submitted", why=told + why)
        kind = answer.headers.get("content-type", "").partition(";")[0]
        right = "text/event-stream" if stream else "application/json"
        expect_equal(kind, right, f"the content type with stream={stream}", why=why)
        if stream:
            pieces = [event["choices"][0] for event in events_of(answer.body)]
            numbers = [piece["index"] for piece in pieces if piece["finish_reason"]]
        else:
            numbers = [choice["index"] for choice in answer.json()["choices"]]
        what = f"the choices that were answered, with stream={stream}"
        expect_equal(sorted(numbers), list(range(MAX_PROMPTS)), what, why=why)


@task("8.6")
def test_the_defaults_hold_for_every_request(part: ModuleType) -> None:
    """A request takes the service's defaults and leaves them as they were."""
    service, defaults = FakeService(), {"temperature": 0.3, "top_k": 20, "seed": 7, "top_p": 0.9}
    service.sampling_defaults = dict(defaults)
    app = app_on(part, service)
    why = "They are the model's, and hold for the next request as well."
    for path in (CHAT, TEXT, CHAT, TEXT):
        ask(app, "POST", path, body_for(path, top_p=0.5))
        *_, (_, _, params, _) = service.calls
        got = (params.temperature, params.top_k, params.seed, params.top_p)
        what = f"temperature, top_k, seed and top_p of a request to {path} that gives top_p 0.5"
        expect_equal(got, (0.3, 20, 7, 0.5), what, why=why)
        what = "the service's sampling_defaults afterwards"
        expect_equal(service.sampling_defaults, defaults, what, why=why)


@task("8.6")
def test_a_list_of_models_is_made_for_its_request(part: ModuleType) -> None:
    """However often the models are listed, there is one, and nothing is kept of a request."""
    app = app_on(part, FakeService())
    for _ in range(3):
        cards = ask(app, "GET", "/v1/models").json().get("data", [])
        expect_equal(len(cards), 1, "models in the list")

    def listing() -> None:
        start_script()
        ask(app, "GET", "/v1/models")

    expect_keeps_nothing(listing, "GET /v1/models")
