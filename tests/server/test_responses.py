"""`/v1/responses` with the official client in strict validation, on a tiny random model, and on a
scripted engine where something has to go wrong."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.server.conftest import LiveServer, posted, within
from tests.server.fake_engine import FakeEngine

PATH = "/v1/responses"
LONG = {"extra_body": {"ignore_eos": True}, "max_output_tokens": 24, "temperature": 0}
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


def respond(client: OpenAI, input: Any = "hello", **options: Any) -> Any:
    return client.responses.create(model="tiny-llama", input=input, **{**LONG, **options})


def chat_text(client: OpenAI, messages: list[dict[str, str]]) -> str | None:
    answer = client.chat.completions.create(
        model="tiny-llama",
        messages=messages,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=24,
        extra_body={"ignore_eos": True},
    )
    return answer.choices[0].message.content


def refusal(live: LiveServer, **body: Any) -> dict[str, Any]:
    answer = live.http.post(PATH, json=body)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    told = []
    for event in answer.text.strip().split("\n\n"):
        name, data = event.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def test_the_text_is_that_of_the_chat_completion(client: OpenAI) -> None:
    answer = respond(client)
    assert answer.output_text == chat_text(client, [{"role": "user", "content": "hello"}])
    assert answer.usage.output_tokens == 24
    assert answer.usage.total_tokens == answer.usage.input_tokens + 24


def test_instructions_and_items_make_the_same_conversation(client: OpenAI) -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hel"},
                                     {"type": "input_text", "text": "lo"}]},
        {"role": "assistant", "content": "yes?"},
        {"type": "message", "role": "user", "content": "go on"},
    ]  # fmt: skip
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "go on"},
    ]
    answer = respond(client, items, instructions="Be brief.")
    assert answer.output_text == chat_text(client, messages)
    assert answer.instructions == "Be brief."


def test_an_output_can_be_sent_back_as_input(client: OpenAI) -> None:
    first = respond(client)
    said = [*first.output, *(item.model_dump() for item in first.output)]
    items = [{"role": "user", "content": "hello"}, *said, {"role": "user", "content": "more"}]
    assert respond(client, items).status == "incomplete"


def test_the_limit_makes_it_incomplete(client: OpenAI) -> None:
    answer = respond(client)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"
    assert answer.completed_at is None


def test_the_end_of_the_text_completes_it(fake_live: LiveServer) -> None:
    answer = fake_live.openai().responses.create(model="fake", input="abc")
    assert answer.status == "completed"
    assert answer.incomplete_details is None
    assert answer.output[0].to_dict()["status"] == "completed"
    assert answer.output_text == "cba"
    assert answer.completed_at is not None


def test_format_and_labels_are_repeated_and_the_format_is_followed(client: OpenAI) -> None:
    text = {"format": {"type": "json_schema", "name": "sky", "schema": COLOUR}}
    answer = respond(client, text=text, metadata={"run": "1"}, user="someone", extra_body={},
                     max_output_tokens=64)  # fmt: skip
    assert json.loads(answer.output_text)["colour"] in ("red", "green", "blue")
    assert answer.text.format.name == "sky"
    assert answer.metadata == {"run": "1"}
    assert answer.user == "someone"


def test_parse_gives_an_object(client: OpenAI) -> None:
    from pydantic import BaseModel

    class Sky(BaseModel):
        is_blue: bool

    answer = client.responses.parse(model="tiny-llama", input="sky?", text_format=Sky)
    assert answer.output_parsed is not None
    assert answer.output_parsed.is_blue in (True, False)


@pytest.mark.parametrize("text", ["hello", "日本語 🙂", "naïve café"])
def test_the_stream_ends_with_what_the_whole_answer_says(client: OpenAI, text: str) -> None:
    events = list(respond(client, text, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert [event.type for event in events[-4:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    whole = respond(client, text)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    last, same = (answer.model_dump(exclude={"id", "created_at", "output"})
                  for answer in (events[-1].response, whole))  # fmt: skip
    last["usage"].pop("input_tokens_details"), same["usage"].pop("input_tokens_details")
    assert last == same
    assert events[-1].response.output_text == whole.output_text


def test_the_clients_own_stream_helper_follows(client: OpenAI) -> None:
    with client.responses.stream(model="tiny-llama", input="hello", **LONG) as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.incomplete"


def test_log_probabilities_come_with_the_text(client: OpenAI) -> None:
    asked: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = respond(client, **asked).output[0].content[0]
    assert len(part.logprobs) == 24
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)
    events = list(respond(client, stream=True, **asked))
    told = [entry.token for event in events if event.type == "response.output_text.delta"
            for entry in event.logprobs]  # fmt: skip
    assert told == [entry.token for entry in part.logprobs]
    assert respond(client).output[0].content[0].logprobs == []


def test_the_stream_that_is_asked_for_its_usage_has_it(client: OpenAI) -> None:
    """As load generators ask, for whom it is the same on every endpoint."""
    wanted = {"ignore_eos": True, "stream_options": {"include_usage": True}}
    *_, last = respond(client, stream=True, extra_body=wanted)
    assert last.response.usage.output_tokens == 24


def test_extensions_are_honoured(client: OpenAI) -> None:
    greedy = respond(client).output_text
    extra = {"ignore_eos": True, "top_k": 1, "repetition_penalty": 1.0, "priority": 0}
    assert respond(client, temperature=1, extra_body=extra).output_text == greedy


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no responses"),
        ({"conversation": "c"}, "conversation", "keeps no responses"),
        ({"background": True}, "background", "wait for the answer"),
        ({"prompt": {"id": "p"}}, "prompt", "keeps no prompts"),
        ({"truncation": "auto"}, "truncation", "Only disabled"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "none"),
        ({"tools": [{"type": 5}]}, "tools[0]", "function"),
        ({"input": []}, "input", "at least 1"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "no items to refer to"),
        ({"input": [{"type": "compaction_trigger"}]}, "input[0]", "shortens no conversation"),
        ({"input": [{"type": "computer_call"}]}, "input", "Nothing is left"),
        ({"input": [{"role": "bird", "content": "x"}]}, "input[0].role", "assistant"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0]", "input_text"),
        ({"temperature": 101}, "temperature", "100"),
        ({"max_output_tokens": 0}, "max_output_tokens", "1"),
        ({"input": "x" * 5000}, "input", "1024 tokens"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"temprature": 1}, "temprature", "did you mean temperature?"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "/v1/chat/completions"),
        ({"stream_options": {"include_usage": False}}, "stream_options.include_usage", "true"),
        ({"text": {"format": {"type": "json_schema", "name": "x",
                              "schema": {"type": "nonsense"}}}}, "text.format", ""),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_as_it_was_sent(
    live: LiveServer, body: dict[str, Any], param: str, words: str
) -> None:
    error = refusal(live, **{"input": "hello", **body})
    assert error["param"].startswith(param)
    assert words in error["message"]
    assert "messages" not in error["message"]
    assert "max_completion_tokens" not in error["message"]


def test_another_model_is_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.responses.create(model="gpt-4", input="hello")


def test_nothing_is_stored_whatever_is_asked(live: LiveServer) -> None:
    for asked in ({}, {"store": True}, {"store": False}, {"store": None}):
        answer = live.http.post(PATH, json={"input": "hi", "max_output_tokens": 1, **asked}).json()
        assert answer["store"] is False
        assert live.http.get(f"{PATH}/{answer['id']}").status_code == 404


def test_an_error_before_the_first_token_is_a_status(
    fake_live: LiveServer, fake: FakeEngine
) -> None:
    fake.poison = "bad"
    answer = fake_live.http.post(PATH, json={"input": "bad", "stream": True})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"


def test_an_error_after_it_ends_the_stream_as_failed(
    fake_live: LiveServer, fake: FakeEngine
) -> None:
    fake.pause_after(2)
    body = {"input": "abcdef", "stream": True}
    with fake_live.http.stream("POST", PATH, json=body) as answer:
        assert answer.status_code == 200
        assert fake.paused.wait(10)
        fake.fault = RuntimeError("secret words")
        fake.gate.set()
        answer.read()
    events = events_of(answer)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["message"] == events[-1]["response"]["error"]["message"]
    assert events[-1]["response"]["status"] == "failed"
    assert "secret" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request(
    fake_live: LiveServer, fake: FakeEngine, stream: bool
) -> None:
    fake.pause_after(1)
    fake.step_seconds = 0.02  # so many steps last longer than the server takes to see it
    body = {"input": "a" * 500, "stream": stream}
    leaving = posted(fake_live, PATH, body)
    assert fake.paused.wait(20)
    leaving.close()
    fake.gate.set()
    within(20, lambda: not fake.alive)
    within(20, lambda: len(fake.aborted) == 1)
