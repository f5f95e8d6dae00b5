"""A request whose logits are NaN or infinite ends with an error; whoever shares its batch does not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.server.conftest import within
from tests.server.faults.clients import OTHERS, ask, read_all
from tests.server.faults.conftest import Patient


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
