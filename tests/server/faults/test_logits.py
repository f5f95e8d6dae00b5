"""A request with logits that are not finite, or that raises, ends with an error; others go on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.conftest import within
from tests.server.faults.clients import OTHERS, ask, read_all
from tests.server.faults.conftest import Patient
from yaie.core.request import Request
from yaie.engine.asks import min_tokens
from yaie.engine.step.byte_text import ByteDetokenizer


@contextmanager
def poisoned(server: Patient, value: float) -> Iterator[int]:
    """A token on which the model computes `value`; nobody else's text holds it."""
    encode = server.llm.tokenizer.encode
    texts = [body["prompt"] for body in OTHERS] + server.expected
    used = {token for text in texts for token in encode(text)}
    token = next(token for token in range(383, 0, -1) if token not in used)
    row = server.llm.model.adapter.embedding[token]
    before = row.clone()
    row[:] = value
    yield token
    row[:] = before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_logits_that_are_not_finite_fail_their_request_alone(
    small: Patient, value: float, stream: bool
) -> None:
    failed = small.llm.stats()["failed_requests"]
    with poisoned(small, value) as token:
        body = {"prompt": [5, 6, token, 7], "max_tokens": 50, "ignore_eos": True, "stream": stream}
        small.watch.hold()
        with small.company() as company:
            within(10, lambda: small.engine.num_streams == company.size)
            connection = ask(small.url, body)
            within(10, lambda: small.engine.num_streams == company.size + 1)
            small.watch.release()
            answer = read_all(connection, b"}}")
            connection.close()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"not finite" in answer
    assert small.llm.stats()["failed_requests"] == failed + 1


def test_one_poisoned_prompt_of_several_ends_the_call_and_leaves_nothing(small: Patient) -> None:
    with poisoned(small, float("nan")) as token:
        body = {"prompt": [[5, 6, 7], [5, token], [8] * 40], "max_tokens": 60, "ignore_eos": True}
        with small.company():
            response = small.http.post("/v1/completions", json=body)
    assert response.status_code == 500


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_request_that_cannot_be_encoded_fails_alone(
    small: Patient, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, own = small.llm.stats()["failed_requests"], min_tokens.too_early

    def held(request: Request, *args: Any) -> list[int]:
        if request.params.min_tokens == 7:
            raise OverflowError("Python int too large to convert to C long")
        return own(request, *args)

    monkeypatch.setattr(min_tokens, "too_early", held)
    body = {"prompt": [5, 6, 7], "max_tokens": 50, "min_tokens": 7, "stream": stream}
    with small.company():
        response = small.http.post("/v1/completions", json=body)
    assert response.status_code == 500
    assert "failed on this request alone (OverflowError)" in response.json()["error"]["message"]
    assert small.llm.stats()["failed_requests"] == failed + 1


def test_text_that_cannot_be_made_ends_its_stream_by_an_event(
    small: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, has_read = ByteDetokenizer.push, threading.Event()

    def push(self: ByteDetokenizer, token_id: int) -> str:
        if any(one.params.seed == 4711 and one.num_output_tokens > 5 for one in small.watch.live()):
            assert has_read.wait(20)  # the answer has begun, so its status is sent
            raise RuntimeError("boom")
        return own(self, token_id)

    monkeypatch.setattr(ByteDetokenizer, "push", push)
    body = {"prompt": [5, 6, 7], "max_tokens": 50, "ignore_eos": True, "seed": 4711, "stream": True}
    with small.http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        events = [next(lines)]
        has_read.set()
        events += [line for line in lines if line.startswith("data: ")]
    assert "failed on this request alone (RuntimeError)" in events[-2]
    assert events[-1] == "data: [DONE]"
