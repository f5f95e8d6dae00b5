"""Task 8.6: the endpoints, on a service without an engine."""

import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, expect_raises, note, start_script, task
from grader.kit.api import FakeService, ask
from grader.suites.api_server.apps import CHAT, TEXT, USER, app_on, body_for, borrowed_for_routes
from grader.suites.api_server.reading import events_of
from yaie.core.errors import ModelNotFoundError

PLAIN = "A client that did not ask for a stream reads the body as one JSON object."
ORDER = (
    "The first thing wrong is the one reported: the model, then the parameters, then the messages."
)
IGNORED = "A parameter that is accepted and has no effect is worse than one that is refused."


@pytest.fixture(autouse=True)
def _all_else_is_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed_for_routes(part):
        yield


@task("8.6")
def test_the_models_card(part: ModuleType) -> None:
    """model_card names the served model, when it began, whose it is, and how long a sequence may be."""
    expected = {
        "id": "org/model",
        "object": "model",
        "created": 5,
        "owned_by": "yaie",
        "max_model_len": 128,
    }
    expect_equal(part.model_card(FakeService(), 5), expected, "the card")


@task("8.6")
def test_only_the_served_model_is_answered(part: ModuleType) -> None:
    """check_model lets the served model and None pass; another name is a ModelNotFoundError."""
    service = FakeService()
    for name in (None, "org/model"):
        note(f"check_model(service, {name!r})")
        part.check_model(service, name)
    for name in ("gpt-4", "model", "org/model2", "ORG/Model", ""):
        note(f"check_model(service, {name!r})")
        why = "A client that asked for one model must not be answered by another without a word."
        with expect_raises(ModelNotFoundError, f"asking for the model {name!r}", why=why):
            part.check_model(service, name)
    try:
        part.check_model(service, "gpt-4")
    except ModelNotFoundError as error:
        expect_equal(error.param, "model", "the error's param")
        why = "The client learns what it could have asked for."
        for name in ("gpt-4", "org/model"):
            expect(
                name in error.message, f"the message does not name {name}: {error.message}", why=why
            )


@task("8.6")
def test_models_are_listed_and_found(part: ModuleType) -> None:
    """/v1/models lists the one card, and /v1/models/{id} finds it by a name with a slash."""
    app = app_on(part, FakeService())
    listed = ask(app, "GET", "/v1/models")
    expect_equal(listed.status, 200, "the status of GET /v1/models")
    expect_equal(listed.json().get("object"), "list", "the object that /v1/models is")
    cards = listed.json().get("data", [])
    expect_equal([card.get("id") for card in cards], ["org/model"], "the ids of the models")
    found = ask(app, "GET", "/v1/models/org/model")
    why = 'Names of the hub have a slash: {model} in a path ends at it, "{model:path}" does not.'
    expect_equal(found.status, 200, "the status of GET /v1/models/org/model", why=why)
    # When it was created is the next test's subject: a second may pass between the two requests.
    one, same = ({**card, "created": None} for card in (found.json(), cards[0]))
    expect_equal(one, same, "the card found by name")
    missing = ask(app, "GET", "/v1/models/other")
    expect_equal(missing.status, 404, "the status of GET /v1/models/other")


@task("8.6")
def test_a_model_is_as_old_as_its_router(part: ModuleType) -> None:
    """ "created" is when the router was made, in the list and by name, whenever a client asks."""
    now = time.time
    time.time = lambda: 1000.0
    try:
        app = app_on(part, FakeService())
        time.time = lambda: 2000.0
        cards = [ask(app, "GET", "/v1/models").json()["data"][0]]
        cards.append(ask(app, "GET", "/v1/models/org/model").json())
    finally:
        time.time = now
    why = "One model, one card: it does not become younger by being asked for."
    got = [card.get("created") for card in cards]
    expect_equal(got, [1000, 1000], "created in the list and by name", why=why)


@task("8.6")
def test_an_answer_is_whole_unless_a_stream_is_asked_for(part: ModuleType) -> None:
    """With stream false, or left out, an answer is one JSON object; with true, events."""
    app = app_on(part, FakeService())
    for path, said in ((CHAT, "message"), (TEXT, "text")):
        for options in ({}, {"stream": False}):
            answer = ask(app, "POST", path, body_for(path, **options))
            expect_equal(answer.status, 200, f"the status of POST {path} {options}")
            kind = answer.headers.get("content-type")
            expect_equal(kind, "application/json", f"the content type for {options}", why=PLAIN)
            choice = answer.json()["choices"][0]
            text = choice[said]["content"] if path == CHAT else choice.get(said)
            expect_equal(text, "Hello", f"the text of the answer to {path}")
        answer = ask(app, "POST", path, body_for(path, stream=True))
        kind = answer.headers.get("content-type", "")
        why = "stream: true is ignored: the client waits for the whole text."
        expect(kind.startswith("text/event-stream"), f"asked for a stream, it gets {kind}", why=why)
        events = events_of(answer.body)
        objects = {event["object"] for event in events}
        named = {"chat.completion.chunk"} if path == CHAT else {"text_completion"}
        expect_equal(objects, named, f"the objects that the chunks of {path} are")


@task("8.6")
def test_usage_is_streamed_if_asked_for(part: ModuleType) -> None:
    """stream_options with include_usage gives the stream a last chunk with usage."""
    app = app_on(part, FakeService())
    for path in (CHAT, TEXT):
        for asked in (True, False):
            options = {"stream": True, "stream_options": {"include_usage": asked}}
            events = events_of(ask(app, "POST", path, body_for(path, **options)).body)
            what = f"whether the last chunk of {path} has usage with include_usage={asked}"
            expect_equal(bool(events[-1].get("usage")), asked, what, why=IGNORED)


@task("8.6")
def test_what_was_asked_reaches_the_service(part: ModuleType) -> None:
    """Messages, sampling parameters, defaults and priority reach the service."""
    service = FakeService()
    service.sampling_defaults = {"temperature": 0.3, "top_k": 20}
    app = app_on(part, service)
    body = {
        "messages": [{"role": "user", "content": "Hi", "name": None}],
        "top_k": 5,
        "priority": -2,
    }
    ask(app, "POST", CHAT, body)
    encoded, (_, prompts, params, priority) = service.calls
    why = "Templates do not know fields that are null: give them each message `for_template`."
    expect_equal(encoded, ("encode_chat", USER, None), "what encode_chat was given", why=why)
    expect_equal(prompts, [[7] * 5], "the prompts that were submitted")
    why = "The model's own defaults hold for what a client leaves out, and only for that."
    got = (params.temperature, params.top_k)
    expect_equal(got, (0.3, 5), "temperature (a default) and top_k (given)", why=why)
    expect_equal(priority, -2, "the priority", why=IGNORED)
    for path in (CHAT, TEXT):
        service.calls.clear()
        ask(app, "POST", path, body_for(path))
        *_, (_, _, params, priority) = service.calls
        expect_equal(params.temperature, 0.3, f"the temperature, a default, for {path}", why=why)
        expect_equal(priority, 0, f"the priority of a body without one, for {path}")


@task("8.6")
def test_tools_reach_the_prompt(part: ModuleType) -> None:
    """encode_chat is given the tools of the request, as `body.prompt_tools` has them."""
    service = FakeService()
    function = {"name": "get_weather", "description": "Now."}
    ask(app_on(part, service), "POST", CHAT,
        body_for(CHAT, tools=[{"type": "function", "function": function}]))  # fmt: skip
    why = "A model can only call what its prompt describes."
    _, _, tools = service.calls[0]
    names = [tool["function"]["name"] for tool in tools or []]
    expect_equal(names, ["get_weather"], "the tools that encode_chat was given", why=why)


@task("8.6")
def test_messages_reach_the_template_as_it_reads_them(part: ModuleType) -> None:
    """Every message goes through `for_template`: the arguments of a call are an object there."""
    service = FakeService()
    call_made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call_made]},
        {"role": "tool", "tool_call_id": "c", "content": "y"},
    ]
    ask(app_on(part, service), "POST", CHAT, {"messages": messages})
    expected = [message.for_template() for message in part.ChatRequest(messages=messages).messages]
    why = "A chat template walks through the arguments as an object; a client sends them as a text."
    _, got, _ = service.calls[0]
    expect_equal(got, expected, "the messages that encode_chat was given", why=why)


@task("8.6")
def test_options_of_the_prompt_reach_it(part: ModuleType) -> None:
    """encode_chat is given the options of the prompt, as `body.prompt_options` has them."""
    service = FakeService()
    body = body_for(CHAT, add_generation_prompt=False, reasoning_effort="low")
    ask(app_on(part, service), "POST", CHAT, body)
    why = "A client that continues a message, or asks for little reasoning, says so there."
    expect_equal(service.prompt_options, [part.ChatRequest(**body).prompt_options],
                 "the options that encode_chat was given", why=why)  # fmt: skip


@task("8.6")
def test_what_is_beyond_text_is_added_by_the_service(part: ModuleType) -> None:
    """The reply that is sent is the one that service.extend returns, given the reply and the body."""
    why = "Log-probabilities and tool calls are in the extended reply alone."
    for path in (CHAT, TEXT):
        for stream in (False, True):
            service = FakeService()
            answer = ask(app_on(part, service), "POST", path, body_for(path, stream=stream))
            expect_equal(
                len(service.extended), 1, f"how often {path} calls service.extend", why=why
            )
            reply, body = service.extended[0]
            expect_equal(reply.requests, service.streams[0].requests, "the requests of the reply")
            expect_equal(body.stream, stream, "stream of the body that service.extend was given")
            said = events_of(answer.body) if stream else [answer.json()]
            what = f"whether what is sent is of the extended reply, with stream={stream}"
            expect_equal([it.get("extended") for it in said], [True] * len(said), what, why=why)


@task("8.6")
def test_every_prompt_is_continued(part: ModuleType) -> None:
    """A prompt may be a text, token ids, or a list of either: all are submitted, in one call."""
    service = FakeService()
    app = app_on(part, service)
    for prompt, prompts in (
        ("abc", ["abc"]),
        (["abc", "d"], ["abc", "d"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [4]], [[1, 2], [4]]),
    ):
        service.calls.clear()
        answer = ask(app, "POST", TEXT, {"prompt": prompt})
        expect_equal(answer.status, 200, f"the status for the prompt {prompt}")
        got = [made[1] for made in service.calls]
        why = "submit_all admits all prompts of a call or none." if len(got) > 1 else ""
        if got == [prompts[:1]]:
            why = f"Only the first of the {len(prompts)} prompts was submitted."
        expect_equal(got, [prompts], "the prompts of each call of submit_all", why=why)
        expect_equal(len(answer.json()["choices"]), len(prompts), "how many choices there are")


@task("8.6")
def test_an_unknown_model_is_refused_before_anything_is_done(part: ModuleType) -> None:
    """A request for another model is a 404 on both endpoints, and the service does not hear of it."""
    for path in (CHAT, TEXT):
        service = FakeService()
        answer = ask(app_on(part, service), "POST", path, body_for(path, model="gpt-4"))
        why = "A client that asked for one model must not be answered by another without a word."
        expect_equal(answer.status, 404, f"the status of POST {path} for an unknown model", why=why)
        expect_equal(answer.json()["error"]["code"], "model_not_found", "the code of the error")
        expect_equal(service.calls, [], "what the service was asked", why=ORDER)


@task("8.6")
def test_the_first_thing_wrong_is_reported(part: ModuleType) -> None:
    """Model, sampling parameters and messages are checked in this order."""
    service = FakeService()
    app = app_on(part, service)
    body: dict[str, Any] = {"messages": [{"role": "robot", "content": "x"}]}
    wrong = []
    for model, temperature in (("other", -1), ("org/model", -1), ("org/model", 1)):
        answer = ask(app, "POST", CHAT, body | {"model": model, "temperature": temperature})
        wrong.append(answer.json()["error"]["param"])
    expected = ["model", "temperature", "messages[0].role"]
    expect_equal(
        wrong, expected, "the parameters reported, as one after the other is put right", why=ORDER
    )
    wrong = []
    start_script()  # the other endpoint is right
    for model, temperature in (("other", -1), ("org/model", -1), ("org/model", 1)):
        body = {"prompt": [], "model": model, "temperature": temperature}
        wrong.append(ask(app, "POST", TEXT, body).json()["error"]["param"])
    what = "the parameters reported by /v1/completions, as one after the other is put right"
    why = "The model is checked first, then the parameters, then the prompt."
    expect_equal(wrong, ["model", "temperature", "prompt"], what, why=why)
    answer = ask(app, "POST", TEXT, {"prompt": "x", "temperature": -1})
    expect_equal(answer.status, 400, "the status for a temperature of -1")


@task("8.6")
@examples(25)
@given(
    prompts=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
    n=st.integers(1, 3),
    pieces=st.lists(st.sampled_from(["x", "", "é "]), min_size=1, max_size=3),
    temperature=st.sampled_from([None, 0, 0.5]),
    priority=st.sampled_from([None, 0, 3]),
)
def test_any_request(
    part: ModuleType,
    prompts: list[str],
    n: int,
    pieces: list[str],
    temperature: float | None,
    priority: int | None,
) -> None:
    """Whatever is asked reaches the service, and streamed chunks join to the whole answer."""
    service = FakeService(pieces)
    app = app_on(part, service)
    body = {"prompt": prompts, "n": n, "temperature": temperature, "priority": priority}
    whole = ask(app, "POST", TEXT, body).json()
    texts = [""] * (len(prompts) * n)
    for event in events_of(ask(app, "POST", TEXT, body | {"stream": True}).body):
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    expect_equal(texts, ["".join(pieces)] * len(texts), "the streamed texts by index")
    expect_equal(
        [choice["text"] for choice in whole["choices"]], texts, "the texts of the whole answer"
    )
    for _, submitted, params, given_priority in service.calls:
        expect_equal(submitted, prompts, "the prompts that were submitted")
        got = (params.n, params.temperature, given_priority)
        asked = 1.0 if temperature is None else temperature
        expect_equal(got, (n, asked, priority or 0), "n, temperature and priority")
