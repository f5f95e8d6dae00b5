"""Bodies that are too large, too deep, or wrong in a hundred ways, among good ones."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tests.server.faults.clients import connect, head, status_of
from tests.server.faults.conftest import Patient
from yaie.server.settings import ServerSettings

JSON = {"Content-Type": "application/json"}
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"


def test_prompt_of_a_megabyte_is_counted_and_refused(roomy: Patient) -> None:
    with roomy.company():
        response = roomy.http.post(TEXT, json={"prompt": "block " * (2**20 // 6), "max_tokens": 1})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "1024" in error["message"]


def test_hundred_megabytes_are_refused_when_they_are_announced(roomy: Patient) -> None:
    connection = connect(roomy.url)
    with roomy.company():
        connection.sendall(head(100 * 2**20))  # not a byte of the body
        assert status_of(connection) == 413
    connection.close()


def test_hundred_megabytes_that_were_not_announced_fill_no_memory(roomy: Patient) -> None:
    process = psutil.Process()
    memory = [process.memory_info().rss]

    def megabytes() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 2**20
            memory.append(process.memory_info().rss)

    with roomy.company():
        response = httpx.post(roomy.url + TEXT, content=megabytes(), headers=JSON)
    assert response.status_code == 413
    assert max(memory) - memory[0] < 3 * ServerSettings().max_body_bytes


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


def nested_objects(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


DEEP = [
    (TEXT, '{"prompt": %s}'),
    (TEXT, '{"prompt": "x", "metadata": %s}'),
    (TEXT, '{"prompt": "x", "logit_bias": %s}'),
    (TEXT, '{"prompt": "x", "stop": %s}'),
    (CHAT, '{"messages": %s}'),
    (CHAT, '{"messages": [{"role": "user", "content": %s}]}'),
    (CHAT, '{"messages": [{"role": "user", "content": [{"type": "text", "text": %s}]}]}'),
    (CHAT, '{"messages": [{"role": "user", "content": "x"}], "tools": %s}'),
    (CHAT, '{"messages": [{"role": "user", "content": "x"}], "response_format": %s}'),
]


@pytest.mark.parametrize("depth", [100, 900, 10_000])
def test_deep_nesting_is_refused_in_any_field(roomy: Patient, depth: int) -> None:
    with roomy.company():
        for path, template in DEEP:
            for value in (nested(depth), nested_objects(depth)):
                response = roomy.http.post(path, content=template % value, headers=JSON)
                assert response.status_code == 400, (path, template, response.text[:200])
                assert len(response.json()["error"]["message"]) <= 500


WRONG = ["hot", -1, 2**70, 1e308, 1e-320, [], {}, [[]], True, "\ud800", float("nan"), float("inf")]
FIELDS = """prompt max_tokens temperature top_p top_k min_p n seed stop stop_token_ids stream
presence_penalty frequency_penalty repetition_penalty ignore_eos logit_bias model priority""".split()


def bad_requests(count: int) -> list[str]:
    """Requests with one wrong field each, or that are no JSON."""
    rng = random.Random(0)
    bodies = []
    for _ in range(count):
        body = {"prompt": "x", "max_tokens": 3, rng.choice(FIELDS): rng.choice(WRONG)}
        text = json.dumps(body)
        bodies.append(text[: rng.randrange(len(text))] if rng.random() < 0.2 else text)
    return bodies


def test_hundreds_of_bad_requests_among_good_ones(roomy: Patient) -> None:
    with roomy.company(), ThreadPoolExecutor(8) as pool:
        responses = list(
            pool.map(
                lambda body: roomy.http.post(TEXT, content=body, headers=JSON), bad_requests(400)
            )
        )
    statuses = [response.status_code for response in responses]
    # Some of the values are right in some of the fields.
    assert set(statuses) <= {200, 400, 404}
    assert statuses.count(200) < 150
    for response in responses:
        assert "Traceback" not in response.text
        assert "site-packages" not in response.text
