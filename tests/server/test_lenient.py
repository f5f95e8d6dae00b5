"""What clients send beyond the API: honoured, refused by name, or left out and told in a header."""

import json
import logging
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel

from tests.server.conftest import LiveServer
from tests.server.taken import bodies_taken
from yaie.core.errors import InvalidRequestError
from yaie.core.fields import MAX_JSON_DEPTH
from yaie.server.held_bodies import SMALL
from yaie.server.json_limits import MAX_DEPTH
from yaie.server.lenient.fields import FIELDS, Ignored, Refused, Renamed
from yaie.server.lenient.nearness import nearest
from yaie.server.lenient.notes import IGNORED, MAX_TOKENS, MOST, Notes, noting
from yaie.server.lenient.top import rewritten
from yaie.server.lenient.validated import MOST_UNKNOWN

CHAT, TEXT, RESPONSES, MESSAGES = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
)  # fmt: skip
HI: dict[str, Any] = {"role": "user", "content": "hello"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [HI], "max_tokens": 3, "temperature": 0},
    TEXT: {"prompt": "hello", "max_tokens": 3, "temperature": 0},
    RESPONSES: {"input": "hello", "max_output_tokens": 3, "temperature": 0},
    MESSAGES: {"messages": [HI], "max_tokens": 3, "temperature": 0},
    "/v1/messages/count_tokens": {"messages": [HI]},
    "/v1/embeddings": {"input": "hello"},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [5]},
}
SIZES = pytest.mark.parametrize("padding", [0, SMALL], ids=["small", "read beside the loop"])


def ask(server: LiveServer, path: str, *, padding: int = 0, **fields: Any) -> httpx.Response:
    content = json.dumps({**BODIES[path], **fields}) + " " * padding
    return server.http.post(path, content=content, headers={"Content-Type": "application/json"})


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    text: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return text


def refusal(response: httpx.Response, param: str) -> str:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    message: str = error["message"]
    return message


def known_in(kind: Any) -> set[str]:
    """Names of the fields of a body's type, or of each of several."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return set(kind.model_fields)
    return {name for option in get_args(kind) for name in known_in(option)}


# --- what nobody knows ---


@SIZES
@pytest.mark.parametrize("path", BODIES)
def test_what_nobody_knows_is_ignored_and_told(live: LiveServer, path: str, padding: int) -> None:
    plain = ask(live, path, padding=padding)
    assert plain.status_code == 200
    assert IGNORED not in plain.headers
    answer = ask(live, path, padding=padding, zzz_unheard_of={"a": 1}, client_metadata={})
    assert answer.status_code == 200
    assert answer.headers[IGNORED] == "zzz_unheard_of, client_metadata"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stream_tells_it_too(live: LiveServer, path: str) -> None:
    answer = ask(live, path, stream=True, keep_alive="5m")
    assert answer.headers[IGNORED] == "keep_alive"
    assert answer.text.endswith("data: [DONE]\n\n")


@SIZES
def test_what_is_unknown_is_left_out_wherever_it_stands(live: LiveServer, padding: int) -> None:
    call = {
        "id": "1", "provider_specific_fields": None, "extra_content": {"google": {}},
        "function": {"name": "f", "arguments": "{}", "partial": True},
    }  # fmt: skip
    messages = [
        {**HI, "provider_specific_fields": {"a": 1}},
        {"role": "assistant", "content": "yes", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "1", "is_error": False},
        {**HI, "provider_specific_fields": {"b": 2}, "timestamp": 5},
    ]
    answer = ask(live, CHAT, padding=padding, messages=messages)
    assert text_of(answer)
    assert set(answer.headers[IGNORED].split(", ")) == {
        "messages[].provider_specific_fields",
        "messages[].tool_calls[].extra_content",
        "messages[].tool_calls[].function.partial",
        "messages[].is_error",
        "messages[].timestamp",
    }


@SIZES
def test_more_unknown_names_in_one_object_than_any_type_has_are_refused(
    live: LiveServer, padding: int
) -> None:
    for number, status in ((MOST_UNKNOWN, 200), (MOST_UNKNOWN + 1, 400)):
        message = {**HI, **{f"k{i}": 1 for i in range(number)}}
        answer = ask(live, CHAT, padding=padding, messages=[HI, message, HI])
        assert answer.status_code == status
    assert "k0" in refusal(answer, "messages[1].k0")


@SIZES
def test_the_depth_of_arguments_is_bounded_in_a_body_that_is_right_otherwise(
    live: LiveServer, padding: int
) -> None:
    for levels, words in ((MAX_JSON_DEPTH, "nested more"), (MAX_DEPTH, f"than {MAX_DEPTH} levels")):
        arguments = '{"a": %s}' % ("[" * levels + "]" * levels)
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        called = {"role": "assistant", "content": "", "tool_calls": [call]}
        answer = ask(live, CHAT, padding=padding, messages=[HI, called, HI])
        field = "messages[1].tool_calls[0].function.arguments"
        assert words in refusal(answer, field)


def test_null_means_absent_everywhere(live: LiveServer) -> None:
    nothing = dict.fromkeys(("stream", "stop", "tools", "zzz_unheard_of", "mirostat", "options"))
    message = {**HI, "tool_calls": None, "name": None, "zzz_unheard_of": None}
    answer = ask(live, CHAT, messages=[message], **nothing)
    assert text_of(answer) == text_of(ask(live, CHAT))
    assert IGNORED not in answer.headers
    call = {"id": "1", "type": None, "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert text_of(ask(live, CHAT, messages=[HI, called, HI]))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("frequency_penality", "frequency_penalty"),
        ("stop_token_id", "stop_token_ids"),
        ("top_logprob", "top_logprobs"),
        ("mirostat_taus", "mirostat_tau"),
    ],
)
def test_a_misspelled_name_is_refused_with_the_right_one(
    live: LiveServer, name: str, meant: str
) -> None:
    message = refusal(ask(live, CHAT, **{name: 1}), name)
    assert message == f"{name}: This parameter is unknown; did you mean {meant}?"


@pytest.mark.parametrize("name", ["top", "foo", "user_location", "x" * 500, "tenant", "source"])
def test_other_names_are_close_to_none(name: str) -> None:
    assert nearest(name, ["stop", "user", "model", "temperature", "top_p", "seed"]) is None


def test_a_header_holds_any_name(live: LiveServer) -> None:
    names = [
        "a,b",
        "ä\n\r\0",
        "x" * 1000,
        "",
        " ",
        *(f"unheard_of_{number}" for number in range(40)),
    ]
    answer = ask(live, TEXT, **dict.fromkeys(names, 1))
    told = answer.headers[IGNORED].split(", ")
    assert told[:2] == ["a?b", "????"]
    assert len(told[2]) == 64
    assert told[3:5] == ["?", "?"]
    assert (len(told), told[-1]) == (MOST + 1, "and more")
    assert (
        ask(live, TEXT, **dict.fromkeys(names[-MOST:], 1)).headers[IGNORED].count(",") == MOST - 1
    )


def test_each_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        notes = Notes()
        notes.ignore("logged_once_in_this_test")
        notes.log()
    assert caplog.text.count("logged_once_in_this_test, which has no effect") == 1


# --- names of other servers ---


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"max_tokens": None, "n_predict": 5}, {"max_tokens": 5}),
        ({"max_tokens": None, "max_new_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": None, "max_output_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": None, "options": {"num_predict": 5, "num_ctx": 64}}, {"max_tokens": 5}),
        ({"options": {"repeat_penalty": 1.9, "temperature": 0}}, {"repetition_penalty": 1.9}),
        ({"repeat_penalty": 1.9}, {"repetition_penalty": 1.9}),
        ({"stop_sequences": ["e"]}, {"stop": ["e"]}),
        ({"temperature": 1, "random_seed": 7}, {"temperature": 1, "seed": 7}),
        ({"options": {"temperature": 1.5, "seed": 3}, "temperature": None},
         {"temperature": 1.5, "seed": 3}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_names_of_other_servers_are_honoured(
    live: LiveServer, path: str, fields: dict[str, Any], same: dict[str, Any]
) -> None:
    assert text_of(ask(live, path, **fields)) == text_of(ask(live, path, **same))


def test_no_maximum_is_as_much_as_fits(live: LiveServer) -> None:
    fields = {"max_tokens": None, "ignore_eos": True}
    answers = [ask(live, TEXT, **fields, **more) for more in (
        {"n_predict": -1}, {"options": {"num_predict": -2}}
    )]  # fmt: skip
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [16, 16]


def test_two_names_that_say_otherwise_are_refused(live: LiveServer) -> None:
    message = refusal(ask(live, TEXT, n_predict=4), "n_predict")
    assert message == "n_predict: It says otherwise than max_tokens; give one of them."
    assert text_of(ask(live, TEXT, n_predict=3))
    refusal(ask(live, TEXT, options={"temperature": 1}), "options.temperature")


NEUTRAL = [
    (name, value)
    for name, verdict in FIELDS.items()
    if isinstance(verdict, Refused)
    for value in verdict.neutral
]


@pytest.mark.parametrize(("name", "value"), NEUTRAL)
def test_what_asks_for_what_happens_anyway_passes(name: str, value: Any) -> None:
    body = {"prompt": "x", name: value}
    with noting() as notes:
        rewritten(body, "text", {"prompt"})
    assert body == {"prompt": "x"}
    assert notes.ignored == []


@pytest.mark.parametrize(
    "name", [name for name, verdict in FIELDS.items() if isinstance(verdict, Refused)]
)
def test_what_would_change_the_answer_is_refused_by_name(live: LiveServer, name: str) -> None:
    bodies = bodies_taken()
    path = next(path for path in (TEXT, *BODIES) if name not in known_in(bodies[path]))
    answer = ask(live, path, **{name: [["wanted"]]})
    assert answer.status_code == 400
    assert FIELDS[name].why in answer.text  # type: ignore[union-attr]


def test_true_is_not_one_and_one_is_one_whatever_its_type(live: LiveServer) -> None:
    assert text_of(ask(live, TEXT, typical_p=1.0, mirostat=0.0, mirostat_tau=5.0))
    refusal(ask(live, TEXT, typical_p=True), "typical_p")
    refusal(ask(live, TEXT, mirostat=False), "mirostat")


@pytest.mark.parametrize(
    "name", [name for name, verdict in FIELDS.items() if isinstance(verdict, Ignored)]
)
def test_hints_and_labels_are_ignored_unless_the_server_is_strict(
    live: LiveServer, strict_live: LiveServer, name: str
) -> None:
    answer = ask(live, TEXT, **{name: "x"})
    assert answer.headers[IGNORED] == name
    assert text_of(answer) == text_of(ask(live, TEXT))
    refusal(ask(strict_live, TEXT, **{name: "x"}), name)


def test_a_strict_server_honours_what_it_can(strict_live: LiveServer) -> None:
    text = text_of(ask(strict_live, TEXT, max_tokens=5))
    for fields in ({"n_predict": 5}, {"options": {"num_predict": 5}}):
        assert text_of(ask(strict_live, TEXT, max_tokens=None, mirostat=0, **fields)) == text


def test_every_renamed_field_has_a_name_that_some_endpoint_knows(live: LiveServer) -> None:
    for name, verdict in FIELDS.items():
        if isinstance(verdict, Renamed):
            answers = [ask(live, path, **{name: 3}) for path in BODIES if "/v1/" in path]
            assert any(answer.status_code == 200 or name.startswith("stop") for answer in answers)


# --- whether the model thinks ---


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({"think": False}, {"enable_thinking": False, "thinking": False}),
        ({"enable_thinking": True}, {"enable_thinking": True, "thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False, "thinking": False}),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}},
         {"enable_thinking": True, "thinking": True}),
        ({"reasoning": {"enabled": False}}, {"enable_thinking": False, "thinking": False}),
        ({"think": True, "chat_template_kwargs": {"x": 1}},
         {"x": 1, "enable_thinking": True, "thinking": True}),
    ],
)  # fmt: skip
def test_whether_to_think_is_told_to_the_template(
    fields: dict[str, Any], variables: dict[str, Any]
) -> None:
    body: dict[str, Any] = {"messages": [], **fields}
    rewritten(body, "chat", {"messages", "chat_template_kwargs"})
    assert body == {"messages": [], "chat_template_kwargs": variables}


def test_how_much_to_think_is_too() -> None:
    known = {"messages", "reasoning_effort", "include_reasoning"}
    with noting(is_strict=True), pytest.raises(InvalidRequestError, match="summary"):
        rewritten({"reasoning": {"summary": "auto"}}, "chat", known)
    for fields in (
        {"think": "low"}, {"reasoning": {"effort": "low", "summary": "auto", "max_tokens": None}}
    ):  # fmt: skip
        body = {"messages": [], **fields}
        rewritten(body, "chat", known)
        assert body == {"messages": [], "reasoning_effort": "low"}
    body = {"messages": [], "reasoning": {"exclude": True}}
    rewritten(body, "chat", known)
    assert body == {"messages": [], "include_reasoning": False}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"think": 3}, "think"),
        ({"thinking": {"type": "sometimes"}}, "thinking"),
        ({"reasoning": "much"}, "reasoning"),
        ({"reasoning": {"max_tokens": "all"}}, "reasoning.max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": -2}}, "thinking.budget_tokens"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "reasoning.effort"),
        ({"think": True, "chat_template_kwargs": {"enable_thinking": False}}, "think"),
    ],
)
def test_what_cannot_be_told_of_thinking_is_refused(
    live: LiveServer, fields: dict[str, Any], param: str
) -> None:
    refusal(ask(live, CHAT, **fields), param)


# --- the context ---


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_maximum_beyond_the_context_is_lowered_and_told(
    live: LiveServer, path: str, stream: bool
) -> None:
    answer = ask(live, path, max_tokens=32_000, ignore_eos=True, stream=stream)
    assert answer.status_code == 200
    context = live.llm.max_model_len
    room = int(answer.headers[MAX_TOKENS])
    if not stream:
        usage, choice = answer.json()["usage"], answer.json()["choices"][0]
        assert usage["completion_tokens"] == room == context - usage["prompt_tokens"]
        assert choice["finish_reason"] == "length"
    assert MAX_TOKENS not in ask(live, path, max_tokens=room).headers
    assert ask(live, path, max_tokens=room + 1).headers[MAX_TOKENS] == str(room)


def test_of_several_prompts_each_has_what_it_leaves_itself(live: LiveServer) -> None:
    context = live.llm.max_model_len
    prompts = [[5] * 10, [5] * (context - 4)]
    answer = ask(live, TEXT, prompt=prompts, max_tokens=20, ignore_eos=True)
    assert answer.headers[MAX_TOKENS] == "4"
    assert answer.json()["usage"]["completion_tokens"] == 20 + 4


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_the_other_dialects_tell_it_too(live: LiveServer, path: str) -> None:
    name = "max_output_tokens" if path == RESPONSES else "max_tokens"
    answer = ask(live, path, ignore_eos=True, **{name: 32_000})
    assert answer.status_code == 200
    assert 0 < int(answer.headers[MAX_TOKENS]) < live.llm.max_model_len


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_prompt_that_leaves_no_token_is_refused(live: LiveServer, path: str) -> None:
    long = "many words " * live.llm.max_model_len
    fields: dict[str, Any] = (
        {"prompt": long} if path == TEXT else {"messages": [{**HI, "content": long}]}
    )
    answer = ask(live, path, max_tokens=32_000, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


# --- history and declarations ---


def called(arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "1", "content": "1"}
    return [HI, {"role": "assistant", "content": None, "tool_calls": [call]}, result, HI]


@SIZES
@pytest.mark.parametrize("arguments", ["", "{", '{"city": "Par', "[]", "null", '"text"', "17"])
def test_a_call_that_was_cut_off_does_not_end_the_conversation(
    live: LiveServer, arguments: str, padding: int
) -> None:
    answer = ask(live, CHAT, messages=called(arguments), padding=padding)
    assert text_of(answer) == text_of(ask(live, CHAT, messages=called("{}")))
    assert answer.headers[IGNORED] == "messages[].tool_calls[].function.arguments"


def test_arguments_may_be_an_object(live: LiveServer) -> None:
    as_text = ask(live, CHAT, messages=called('{"a": 1}'))
    answer = ask(live, CHAT, messages=called({"a": 1}))
    assert text_of(answer) == text_of(as_text)
    assert IGNORED not in answer.headers


@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\\ud800"}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", "[" * 100_000,
     '{"a": NaN}', {"a": [10**400]}],
)  # fmt: skip
def test_odd_values_in_a_history_are_refused_or_mended(live: LiveServer, arguments: Any) -> None:
    assert ask(live, CHAT, messages=called(arguments)).status_code in (200, 400)


@pytest.mark.parametrize("name", ["reasoning", "thinking", "reasoning_content"])
def test_thoughts_come_back_under_any_name(live: LiveServer, name: str) -> None:
    turn = {"role": "assistant", "content": "yes", name: "hm"}
    answer = ask(live, CHAT, messages=[HI, turn, HI])
    assert text_of(answer)
    assert IGNORED not in answer.headers


def test_what_a_server_would_run_is_left_out(live: LiveServer) -> None:
    tools = [{"type": "web_search", "filters": {}}, {"type": "code_interpreter"}]
    answer = ask(live, CHAT, tools=tools)
    assert text_of(answer) == text_of(ask(live, CHAT))
    assert answer.headers[IGNORED] == "tools[].web_search, tools[].code_interpreter"
