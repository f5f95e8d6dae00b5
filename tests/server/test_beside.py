"""Fields of vLLM's that are honoured beside the part which speaks OpenAI's API."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.test_lenient import (
    BODIES,
    CHAT,
    HI,
    MESSAGES,
    RESPONSES,
    SIZES,
    TEXT,
    refusal,
    text_of,
)
from tests.server.test_lenient import ask as asked
from yaie import LLMEngine
from yaie.core.errors import InvalidRequestError
from yaie.server.lenient.beside import CHECKS
from yaie.server.lenient.notes import IGNORED
from yaie.server.openapi.opened import SHAPES

GENERATING = (CHAT, TEXT, RESPONSES, MESSAGES)
WRONG: list[tuple[str, Any, str]] = [
    ("bad_words", 5, "a list of strings"),
    ("bad_words", ["a", ""], "none of them blank"),
    ("bad_words", ["a"] * 129, "at most 128 strings, not 129"),
    ("bad_words", ["a" * 257], "may have 256 characters; one has 257"),
    ("bad_words", ["\ud800"], "surrogate"),
    ("cache_salt", "\ud800", "surrogate"),
    ("include_stop_str_in_output", "yes", "true or false"),
    ("skip_special_tokens", 1, "true or false"),
    ("return_tokens_as_token_ids", 0, "true or false"),
    ("thinking_token_budget", -2, "between -1 and 2147483647"),
    ("thinking_token_budget", True, "between -1 and 2147483647"),
    ("thinking_token_budget", 1.5, "between -1 and 2147483647"),
    ("request_id", "a b", "letters, digits"),
    ("request_id", "a" * 129, "letters, digits"),
    ("request_id", 5, "letters, digits"),
    ("cache_salt", "", "1 to 256 characters"),
    ("cache_salt", "a" * 257, "1 to 256 characters"),
    ("cache_salt", 5, "1 to 256 characters"),
]  # fmt: skip


def ask(server: LiveServer, path: str, **fields: Any) -> httpx.Response:
    answer = asked(server, path, **fields)
    assert IGNORED not in answer.headers
    return answer


def whole(server: LiveServer, path: str, **fields: Any) -> str:
    """The answer of this dialect as a text, the same whether streamed or not."""
    answer = ask(server, path, **fields)
    assert answer.status_code == 200, answer.text
    streamed = "".join(pieces(ask(server, path, stream=True, **fields)))
    found: dict[str, Any] = answer.json()
    if path == MESSAGES:
        text = "".join(block.get("text", "") for block in found["content"])
    elif path == RESPONSES:
        text = "".join(part["text"] for item in found["output"] for part in item["content"])
    else:
        text = text_of(answer)
    assert streamed == text
    return text


def pieces(answer: httpx.Response) -> Iterator[str]:
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            if "choices" in event:
                for choice in event["choices"]:
                    yield choice.get("text") or choice.get("delta", {}).get("content") or ""
            elif event["type"] == "response.output_text.delta":
                yield event["delta"]
            elif event["type"] == "content_block_delta":
                yield event["delta"].get("text", "")


@pytest.mark.parametrize(("name", "value", "why"), WRONG)
def test_what_is_wrong_is_refused_by_name(
    live: LiveServer, name: str, value: Any, why: str
) -> None:
    message = refusal(asked(live, CHAT, **{name: value}), name)
    assert message.startswith(f"{name}: ")
    assert why in message


def test_every_such_field_has_a_check() -> None:
    assert {name for name, _, _ in WRONG} == set(CHECKS)


VALUES: tuple[Any, ...] = (
    True, False, 0, 1, -1, -2, 1.5, 2**31 - 1, 2**31, "", " ", "a", "a b", "é", "x" * 128, "x" * 129,
    "x" * 256, "x" * 257, [], ["a"], [""], ["a", 1], ["a"] * 1000, ["a"] * 1001, {}, {"a": 1},
)  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_the_document_says_what_the_check_takes(name: str) -> None:
    assert SHAPES.keys() == CHECKS.keys()
    for value in VALUES:
        try:
            CHECKS[name](name, value)
            is_taken = True
        except InvalidRequestError:
            is_taken = False
        described = jsonschema.Draft202012Validator(SHAPES[name]).is_valid(value)
        assert described == is_taken, value


@pytest.mark.parametrize("path", GENERATING)
def test_the_document_names_them(live: LiveServer, path: str) -> None:
    said = live.http.get("/openapi.json").json()
    body = said["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = said["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]
    assert fields["cache_salt"]["anyOf"][0] == SHAPES["cache_salt"]


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/tokenize", "/detokenize"])
def test_they_pass_nowhere_else_unless_they_ask_for_nothing(live: LiveServer, path: str) -> None:
    if "count" not in path:  # whose body is that of messages
        message = refusal(asked(live, path, bad_words=["a"]), "bad_words")
        assert "endpoints that generate text" in message
    assert ask(live, path, bad_words=[], include_stop_str_in_output=False).status_code == 200


# --- texts ---


@SIZES
@pytest.mark.parametrize("path", GENERATING)
def test_bad_words_are_not_said(live: LiveServer, path: str, padding: int) -> None:
    more = {"max_output_tokens": 8} if path == RESPONSES else {"max_tokens": 8}
    free = whole(live, path, ignore_eos=True, padding=padding, **more)
    words = re.findall(r"[A-Za-z]+", free)
    kept = whole(live, path, ignore_eos=True, padding=padding, bad_words=words, **more)
    assert kept != free
    before = free[: free.index(words[0])].rstrip()  # whose last token may be " k"
    assert kept.startswith(before)
    assert whole(live, path, ignore_eos=True, bad_words=None, **more) == free


@pytest.mark.parametrize("path", [CHAT, TEXT, MESSAGES])
def test_a_stop_string_is_said_where_it_is_wanted(live: LiveServer, path: str) -> None:
    more = {"max_tokens": 8}
    free = whole(live, path, ignore_eos=True, **more)
    stop = free[3:5]
    name = "stop_sequences" if path == MESSAGES else "stop"
    end = free.index(stop)
    assert whole(live, path, ignore_eos=True, **more, **{name: [stop]}) == free[:end]
    shown = whole(
        live, path, ignore_eos=True, include_stop_str_in_output=True, **more, **{name: [stop]}
    )
    assert shown == free[:end] + stop


@pytest.mark.parametrize("path", GENERATING)
def test_special_tokens_are_said_where_they_are_wanted(live: LiveServer, path: str) -> None:
    eos = live.engine.tokenizer.eos_token_id
    assert eos is not None
    name = live.engine.tokenizer.token_name(eos)
    fields: dict[str, Any] = {"ignore_eos": True}
    if path in (CHAT, TEXT):
        fields["logit_bias"] = {str(eos): 100}
        assert whole(live, path, **fields) == ""
        assert whole(live, path, **fields, skip_special_tokens=False) == 3 * name
        assert whole(live, path, **fields, skip_special_tokens=True) == ""
    else:
        assert whole(live, path, **fields, skip_special_tokens=False)


# --- how it is told ---


def test_tokens_are_told_by_their_ids(live: LiveServer) -> None:
    fields: dict[str, Any] = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    answer = ask(live, CHAT, logprobs=True, top_logprobs=2, **fields).json()["choices"][0]
    content = answer["logprobs"]["content"]
    assert [one["token"] for one in content] == [f"token_id:{id_}" for id_ in answer["token_ids"]]
    assert all(
        top["token"].startswith("token_id:") for one in content for top in one["top_logprobs"]
    )
    plain = ask(live, CHAT, logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]
    assert [one["bytes"] for one in content] == [one["bytes"] for one in plain["content"]]
    answer = ask(live, TEXT, logprobs=2, echo=True, **fields).json()["choices"][0]
    ids = answer["prompt_token_ids"] + answer["token_ids"]
    assert answer["logprobs"]["tokens"] == [f"token_id:{id_}" for id_ in ids]
    plain = ask(live, TEXT, logprobs=2, echo=True).json()["choices"][0]["logprobs"]
    assert answer["logprobs"]["text_offset"] == plain["text_offset"]


@SIZES
@pytest.mark.parametrize(("path", "prefix"), [(CHAT, "chatcmpl-"), (TEXT, "cmpl-")])
def test_an_answer_is_called_as_the_client_wants(
    live: LiveServer, path: str, prefix: str, padding: int
) -> None:
    fields: dict[str, Any] = {"request_id": "run-7/a", "padding": padding}
    assert ask(live, path, **fields).json()["id"] == f"{prefix}run-7/a"
    lines = ask(live, path, stream=True, **fields).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert {event["id"] for event in events} == {f"{prefix}run-7/a"}
    assert len(events) > 1


def test_bytes_of_special_tokens_are_told_where_they_are_said(live: LiveServer) -> None:
    eos = live.engine.tokenizer.eos_token_id
    assert eos is not None
    name = live.engine.tokenizer.token_name(eos)
    fields: dict[str, Any] = {
        "ignore_eos": True, "logit_bias": {str(eos): 100}, "logprobs": 0, "skip_special_tokens": False,
    }  # fmt: skip
    choice = ask(live, TEXT, **fields).json()["choices"][0]
    assert choice["logprobs"]["text_offset"] == [0, len(name), 2 * len(name)]


# --- thoughts ---


@pytest.fixture(scope="module")
def thinker(live: LiveServer) -> Iterator[LiveServer]:
    with serving(another(live), reasoning_parser="think") as server:
        yield server


def another(live: LiveServer) -> Callable[[], LLMEngine]:
    """What loads the same model again."""
    return lambda: LLMEngine(model=live.llm.config.model, num_blocks=128, threads=1)


OPEN: dict[str, Any] = {
    "messages": [HI, {"role": "assistant", "content": "<think>"}],
    "continue_final_message": True,
    "add_generation_prompt": False,
    "ignore_eos": True,
    "max_tokens": 30,
}


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking_token_budget": 5},
        {"reasoning": {"max_tokens": 5}},
        {"thinking": {"type": "enabled", "budget_tokens": 5}},
    ],
)
def test_a_thought_has_as_many_tokens_as_it_may(thinker: LiveServer, fields: Any) -> None:
    free = ask(thinker, CHAT, **OPEN).json()
    assert free["choices"][0]["message"]["content"] in (None, "")
    limited = ask(thinker, CHAT, **OPEN, **fields).json()
    message, usage = limited["choices"][0]["message"], limited["usage"]
    assert message["content"]
    end = len(thinker.engine.tokenizer.encode("</think>", add_special_tokens=False))
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 5 + end
    assert free["choices"][0]["message"]["reasoning"].startswith(message["reasoning"])
    assert ask(thinker, CHAT, **OPEN, thinking_token_budget=-1).json()["choices"] == free["choices"]


def test_a_text_that_ends_inside_a_thought_is_limited_too(thinker: LiveServer) -> None:
    answer = ask(thinker, TEXT, prompt="a <think>", thinking_token_budget=2, ignore_eos=True,
                 max_tokens=30)  # fmt: skip
    assert 0 < text_of(answer).index("</think>") < 20


def test_messages_have_anthropics_budget(thinker: LiveServer) -> None:
    """The smallest that there may be is more than this model's context."""
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert ask(thinker, MESSAGES, thinking=thinking, max_tokens=2000).status_code == 200


def test_where_a_model_does_not_think_only_a_hint_passes(live: LiveServer) -> None:
    message = refusal(ask(live, CHAT, thinking_token_budget=5), "thinking_token_budget")
    assert "does not think between tags" in message
    assert text_of(ask(live, CHAT, reasoning={"max_tokens": 5})) == text_of(ask(live, CHAT))


# --- whose prefixes are shared ---

LONG = {"role": "user", "content": "The same beginning of a prompt, again and again. " * 2}


def cached(server: LiveServer, path: str = CHAT, key: str = "", **fields: Any) -> int:
    """How many tokens of a prompt came from the cache."""
    content = {"prompt": LONG["content"]} if path == TEXT else {"messages": [LONG]}
    if path == RESPONSES:
        content = {"input": LONG["content"]}
    if path == "/v1/embeddings":
        content = {"input": LONG["content"]}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = server.http.post(path, json={**BODIES[path], **content, **fields}, headers=headers)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    if path == MESSAGES:
        return int(usage["cache_read_input_tokens"])
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens", 0))


@pytest.mark.parametrize("path", GENERATING)
def test_a_salt_keeps_prefixes_apart(live: LiveServer, path: str) -> None:
    a, b = f"a {path}", f"b {path}"
    first = [cached(live, path, cache_salt=salt) for salt in (a, b)]
    second = [cached(live, path, cache_salt=salt) for salt in (a, b)]
    assert first == [0, 0]
    assert second[0] == second[1] > 0


def test_embeddings_have_salts_too(live: LiveServer) -> None:
    answer = ask(live, "/v1/embeddings", cache_salt="mine")
    assert answer.json()["data"] == ask(live, "/v1/embeddings").json()["data"]


def test_keys_may_be_tenants(live: LiveServer) -> None:
    with serving(another(live), api_key=("one", "two"), tenant_keys=True) as server:
        assert [cached(server, key=key) for key in ("one", "two")] == [0, 0]
        assert cached(server, key="one") == cached(server, key="two") > 0
        assert cached(server, key="one", cache_salt="x") == 0
        assert cached(server, key="two", cache_salt="x") == 0
        assert cached(server, key="one", cache_salt="x") > 0
        assert server.http.post(CHAT, json=BODIES[CHAT]).status_code == 401
    with serving(another(live), api_key=("one", "two")) as server:
        assert cached(server, key="one") == 0
        assert cached(server, key="two") > 0


def test_what_is_handed_over_has_no_salt(live: LiveServer, tmp_path: Path) -> None:
    with serving(another(live), role="prefill", handover=str(tmp_path / "socket")) as server:
        message = refusal(ask(server, CHAT, cache_salt="a"), "cache_salt")
        assert "handed over" in message
