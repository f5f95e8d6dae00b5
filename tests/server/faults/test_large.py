"""Prompts of many megabytes and answers of many: refused, or worked on beside everything else."""

import gc
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from tests.server.conftest import within
from tests.server.faults.clients import ask
from tests.server.faults.conftest import Patient
from tests.server.faults.gaps import Gaps
from yaie.engine.background.prompts import MIDDLE
from yaie.engine.input.beyond_text import MAX_LOGPROB_ENTRIES
from yaie.models.text_bounds import MAX_BYTES
from yaie.models.tokenizer import LONG, Tokenizer
from yaie.server.json_limits import MAX_NAMES, MAX_TOKEN_IDS
from yaie.server.lenient.notes import IGNORED
from yaie.system import json_slices
from yaie.system.gc_tuning import freeze_heap

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
MEGABYTE = 1 << 20
LARGE = "The scheduler admits a request when blocks are free. " * (14 * MEGABYTE // 53)
LONG_GAP = 1.5
"""Seconds; a seventh of what it was, and far more than an idle machine shows: CI shares its cores."""


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """As `yaie serve` runs."""
    before = gc.get_threshold()
    freeze_heap()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters each long text had that was tokenized."""
    sizes: list[int] = []
    encode = Tokenizer.encode

    def counted(self: Tokenizer, text: str, add_special_tokens: bool = True) -> list[int]:
        if len(text) > LONG:
            sizes.append(len(text))
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", counted)
    return sizes


def refused(server: Patient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = server.http.post(path, json=body, timeout=60)
    assert response.status_code == 400, response.text[:200]
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_prompt_of_14_megabytes_is_refused_before_it_is_tokenized(
    roomy: Patient, tokenized: list[int]
) -> None:
    with roomy.company(), Gaps(roomy) as gaps:
        error = refused(roomy, TEXT, {"prompt": LARGE, "max_tokens": 1})
    assert error["code"] == "context_length_exceeded"
    assert "at least" in error["message"]
    assert tokenized == []
    assert gaps.longest < LONG_GAP


def test_a_conversation_of_14_megabytes_is_refused_before_it_is_tokenized(
    roomy: Patient, tokenized: list[int]
) -> None:
    with roomy.company(), Gaps(roomy) as gaps:
        error = refused(roomy, CHAT, {"messages": [{"role": "user", "content": LARGE}]})
    assert error["code"] == "context_length_exceeded"
    assert tokenized == []
    assert gaps.longest < LONG_GAP


def test_a_long_conversation_may_be_truncated(roomy: Patient, tokenized: list[int]) -> None:
    text = LARGE[: MEGABYTE // 8]
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
    assert refused(roomy, CHAT, body)["code"] == "context_length_exceeded"
    answer = roomy.http.post(CHAT, json={**body, "truncate_prompt_tokens": 100}, timeout=60)
    assert answer.json()["usage"]["prompt_tokens"] == 100
    assert len(tokenized) == 2


def test_of_a_prompt_that_may_be_truncated_only_the_end_is_tokenized(
    roomy: Patient, tokenized: list[int]
) -> None:
    end = LARGE[-2000:]
    body = {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "truncate_prompt_tokens": 100}
    short = roomy.http.post(TEXT, json={**body, "prompt": end}).json()
    long = roomy.http.post(TEXT, json={**body, "prompt": LARGE}, timeout=60).json()
    assert long["choices"] == short["choices"]
    assert long["usage"]["prompt_tokens"] == 100
    assert len(tokenized) == 1
    assert tokenized[0] <= MAX_BYTES


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (TEXT, {"prompt": "PLACE"}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": "PLACE"}]}, "messages"),
        ("/v1/embeddings", {"input": "PLACE"}, "input"),
    ],
)
def test_a_text_of_more_than_4_megabytes_that_might_fit_is_refused_by_name(
    roomy: Patient,
    tokenized: list[int],
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    param: str,
) -> None:
    monkeypatch.setattr(Tokenizer, "fewest", lambda *_: 0)
    text = "é" * (MAX_BYTES // 2 + 1)
    whole = json.loads(json.dumps(body, ensure_ascii=False).replace("PLACE", text))
    error = refused(roomy, path, whole)
    assert error["param"] == param
    said = re.match(rf"{param}: (\d+) bytes of text.* at most {MAX_BYTES} ", error["message"])
    assert said is not None
    assert int(said[1]) >= MAX_BYTES + 2
    assert tokenized == []


def test_what_is_counted_to_the_end_is_bounded(roomy: Patient, tokenized: list[int]) -> None:
    messages = [{"role": "user", "content": LARGE}]
    error = refused(roomy, "/tokenize", {"messages": messages})
    assert (error["param"], tokenized) == ("messages", [])


@pytest.mark.nightly
def test_memory_comes_back_after_four_prompts_of_14_megabytes(roomy: Patient) -> None:
    bodies: list[dict[str, Any]] = [
        {"prompt": LARGE},
        {"messages": [{"role": "user", "content": LARGE}]},
    ] * 2

    def all_four() -> int:
        with ThreadPoolExecutor(4) as pool:
            posts = [
                pool.submit(refused, roomy, TEXT if "prompt" in body else CHAT, body)
                for body in bodies
            ]
            for post in posts:
                post.result()
        gc.collect()
        rss: int = psutil.Process().memory_info().rss
        return rss

    before = all_four()  # the allocator has what it keeps
    assert all_four() < 1.1 * before + 64 * MEGABYTE


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The longest texts wait behind the second event once they have begun, which sets the first."""
    has_begun, may_go_on = threading.Event(), threading.Event()
    encode = Tokenizer.encode

    def slow(self: Tokenizer, text: str, add_special_tokens: bool = True) -> list[int]:
        if len(text) > MIDDLE:
            has_begun.set()
            may_go_on.wait(20)
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", slow)
    yield has_begun, may_go_on
    may_go_on.set()


def test_others_are_served_while_a_long_text_is_tokenized(
    roomy: Patient, gate: tuple[threading.Event, threading.Event]
) -> None:
    has_begun, may_go_on = gate
    with ThreadPoolExecutor(1) as pool:
        body = {"prompt": LARGE[:MEGABYTE], "add_special_tokens": False}
        long = pool.submit(roomy.http.post, "/tokenize", json=body, timeout=60)
        assert has_begun.wait(20)
        with roomy.company():
            for prompt in ("short " * 300, "middle " * 6000):
                assert roomy.http.post("/tokenize", json={"prompt": prompt}).status_code == 200
        assert not long.done()
        may_go_on.set()
        assert long.result().json()["tokens"] == roomy.llm.tokenizer.encode(
            LARGE[:MEGABYTE], add_special_tokens=False
        )


def test_a_long_text_whose_client_leaves_before_its_turn_is_not_tokenized(
    roomy: Patient, tokenized: list[int], gate: tuple[threading.Event, threading.Event]
) -> None:
    has_begun, may_go_on = gate
    thread = roomy.engine._prompts.longest_texts
    body = {"prompt": LARGE[:MEGABYTE], "truncate_prompt_tokens": 5, "max_tokens": 1}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(roomy.http.post, TEXT, json=body, timeout=60)
        assert has_begun.wait(20)
        connection = ask(roomy.url, body)
        within(20, lambda: thread.num_pending == 2)
        connection.close()
        within(20, lambda: thread.num_pending == 1)
        may_go_on.set()
        assert first.result().status_code == 200
    assert tokenized == [MEGABYTE]


@pytest.mark.nightly
def test_a_body_of_millions_of_numbers_is_not_read(roomy: Patient) -> None:
    with roomy.company():
        error = refused(roomy, TEXT, {"prompt": [5] * (4 * MEGABYTE)})
    assert str(MAX_TOKEN_IDS) in error["message"]


def test_a_body_of_half_a_million_unknown_fields_is_not_read(roomy: Patient) -> None:
    with roomy.company():
        error = refused(roomy, TEXT, {"prompt": "x", **{f"k{i}": 1 for i in range(500_000)}})
    assert str(MAX_NAMES) in error["message"]


def test_as_many_fields_as_may_be_hold_nobody_up(roomy: Patient) -> None:
    body = {"prompt": "x", "max_tokens": 1, **{f"k{i}": 1 for i in range(MAX_NAMES - 2)}}
    with roomy.company():
        answer = roomy.http.post(TEXT, json=body)
    assert answer.status_code == 200
    assert answer.headers[IGNORED].startswith("k0, k1, ")


def test_a_prompt_of_too_many_tokens_costs_the_engine_nothing(roomy: Patient) -> None:
    error = refused(roomy, TEXT, {"prompt": [5] * 100_000})
    assert error["code"] == "context_length_exceeded"
    body = {"prompt": [6] * 100_000 + [5] * 20, "truncate_prompt_tokens": 20, "max_tokens": 1}
    assert roomy.http.post(TEXT, json=body).json()["usage"]["prompt_tokens"] == 20


MANY = {"n": 64, "max_tokens": 40, "seed": 5, "ignore_eos": True}


@pytest.mark.nightly
def test_a_large_answer_is_written_beside_the_event_loop(
    roomy: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = []
    slices = json_slices._slices

    def watched(value: Any, depth: int) -> Iterator[str]:
        writers.append(threading.current_thread().name)
        return slices(value, depth)

    monkeypatch.setattr(json_slices, "_slices", watched)
    body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 20}
    with Gaps(roomy) as gaps:
        answer = roomy.http.post(CHAT, json={**body, **MANY}, timeout=60)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content) > 2 * MEGABYTE
    assert {name.startswith("yaie-answers") for name in writers} == {True}
    assert gaps.longest < LONG_GAP
    # The same request's choices one by one, which are small.
    streamed: list[list[Any]] = [[] for _ in range(64)]
    with roomy.http.stream(
        "POST", CHAT, json={**body, **MANY, "stream": True}, timeout=60
    ) as lines:
        for line in lines.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line[6:])["choices"]
                streamed[choice["index"]] += (choice["logprobs"] or {}).get("content") or []
    assert [choice["logprobs"]["content"] for choice in answer.json()["choices"]] == streamed


@pytest.mark.nightly
@pytest.mark.quiet
def test_many_echoed_prompts_are_those_of_small_answers(roomy: Patient) -> None:
    prompts = [[7 + (k + i) % 90 for i in range(900)] for k in range(16)]
    body = {"echo": True, "logprobs": 4, "max_tokens": 1, "temperature": 0, "n": 2, "seed": 1}
    with Gaps(roomy) as gaps:
        many = roomy.http.post(TEXT, json={**body, "prompt": prompts}, timeout=60).json()
    assert gaps.longest < LONG_GAP
    one = roomy.http.post(TEXT, json={**body, "prompt": prompts[3]}, timeout=60).json()
    told = many["choices"][6]["logprobs"]
    assert told["tokens"] == one["choices"][0]["logprobs"]["tokens"]
    assert told["text_offset"] == one["choices"][0]["logprobs"]["text_offset"]
    assert len(told["top_logprobs"]) == 901
    assert told["top_logprobs"][0] is None


def test_an_answer_that_may_be_too_large_is_refused_with_what_multiplies(roomy: Patient) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 128, "max_tokens": 500}
    error = refused(roomy, CHAT, {**body, "logprobs": True, "top_logprobs": 20})
    assert error["param"] == "logprobs"
    for part in (
        str(128 * 500 * 21),
        str(MAX_LOGPROB_ENTRIES),
        "n (128)",
        "max_tokens (500)",
        "21",
    ):
        assert part in error["message"]


def test_a_client_that_leaves_a_large_answer_leaves_nothing(roomy: Patient) -> None:
    body = {"prompt": "x", "logprobs": 20, **MANY}
    connection = ask(roomy.url, body)
    within(20, lambda: roomy.llm.has_work)
    time.sleep(0.05)
    connection.close()
    within(20, lambda: roomy.engine.num_streams == 0)


def test_a_chunk_that_would_be_too_large_is_refused(roomy: Patient) -> None:
    body = {"prompt": [5] * 900, "echo": True, "max_tokens": 1, "stream": True}
    for logprobs, status in ((20, 200), (None, 200)):
        response = roomy.http.post(TEXT, json={**body, "logprobs": logprobs}, timeout=60)
        assert response.status_code == status
    with patch("yaie.server.extras.echo.MOST_IN_CHUNK", 900 * 21 - 1):
        error = refused(roomy, TEXT, {**body, "logprobs": 20})
    assert error["param"] == "stream"
    assert str(900 * 21) in error["message"]
