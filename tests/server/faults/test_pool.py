"""The KV pool is short, or a request is too large for it: nobody gets another answer for that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.faults.clients import OTHERS, Company, text_of
from tests.server.faults.conftest import Patient, patient
from tests.server.faults.watch import assert_healthy
from yaie.server.lenient.notes import MAX_TOKENS

FORTY = [{**OTHERS[i % len(OTHERS)], "max_tokens": 10 + i} for i in range(40)]


@pytest.fixture(scope="module")
def ten_blocks(folder: Path) -> Iterator[Patient]:
    with patient(folder, num_blocks=10, watermark=0.0) as server:
        yield server


@pytest.mark.nightly
def test_forty_clients_share_ten_blocks(ten_blocks: Patient, roomy: Patient) -> None:
    expected = [text_of(roomy, body) for body in FORTY]
    preempted = []
    schedule = ten_blocks.llm._machine.scheduler.schedule

    def counted() -> object:
        plan = schedule()
        preempted.extend(plan.preempted)
        return plan

    ten_blocks.llm._machine.scheduler.schedule = counted
    with Company(ten_blocks, expected, FORTY):
        pass
    assert len(preempted) > 5
    assert_healthy(ten_blocks, ten_blocks.watch)


TOO_LARGE = [
    (
        {"prompt": list(range(5, 305)) * 2, "max_tokens": 5},
        "kv_pool_too_small",
        "prompt|max_tokens",
    ),
    ({"prompt": "x", "max_tokens": 10**400}, None, "max_tokens"),
    ({"prompt": "x", "n": 2**62}, None, "n"),
    ({"prompt": ["x"] * 40 + ["x " * 500], "max_tokens": 2}, None, "prompt|max_tokens"),
]


@pytest.mark.parametrize(("body", "code", "param"), TOO_LARGE)
def test_what_can_never_run_is_refused_while_others_run(
    small: Patient, body: dict[str, object], code: str | None, param: str
) -> None:
    with small.company():
        for stream in (False, True):
            response = small.http.post("/v1/completions", json={**body, "stream": stream})
            error = response.json()["error"]
            assert response.status_code == 400, error
            assert error["code"] == code or code is None
            assert error["param"] in param.split("|")


@pytest.mark.parametrize("max_tokens", [500, 2000, 2**31 - 1])
def test_a_maximum_is_lowered_to_what_the_pool_can_hold(small: Patient, max_tokens: int) -> None:
    body = {"prompt": [5] * 300, "max_tokens": max_tokens, "ignore_eos": True}
    with small.company():
        answer = small.http.post("/v1/completions", json=body, timeout=60)
    room = 24 * small.llm.config.block_size + 1 - 300
    assert answer.headers[MAX_TOKENS] == str(room)
    assert answer.json()["usage"]["completion_tokens"] == room


def test_most_choices_that_are_allowed_are_served_from_a_small_pool(small: Patient) -> None:
    body = {"prompt": "blocks", "n": 128, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    with small.company():
        choices = small.http.post("/v1/completions", json=body, timeout=60).json()["choices"]
    assert len(choices) == 128
    assert len({choice["text"] for choice in choices}) == 1
