"""Two replicas of the tutor on real Ray, one of which is killed.

`test_kill.py` does the same with two thousand requests.
"""

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.cluster.running import alive, children, cluster, interrupt, replicas
from tests.server.conftest import within

pytestmark = [pytest.mark.slow(times=8), pytest.mark.timeout(280)]

FAMILIES = 6
BEGINNING = 240
"""Tokens that the prompts of a family share."""
AT_A_TIME = 2
"""Requests that an engine runs: the others of those that it has been sent have not begun."""
BURST = 32
TOKENS = 20
SMALL = (f"--max-num-seqs={AT_A_TIME}", "--num-blocks=512", "--max-model-len=512")


@dataclass(frozen=True)
class Answer:
    """What came of a request. events: of a stream."""

    status: int
    text: str
    completion_tokens: int = 0
    cached_tokens: int = 0
    events: int = 0

    @property
    def is_broken(self) -> bool:
        """Whether a stream that had begun ended with an error event."""
        return self.events > 1 and '"error"' in self.text


def ask(http: httpx.Client, family: int, number: int, streams: bool = False) -> Answer:
    words = [300 + 50 * family + at % (7 + family) for at in range(BEGINNING)]
    body = {"prompt": [*words, 1000 + number], "max_tokens": TOKENS, "temperature": 0,
            "ignore_eos": True}  # fmt: skip
    more = {"stream": True, "stream_options": {"include_usage": True}} if streams else {}
    answer = http.post("/v1/completions", json={**body, **more})
    events: list[str] = []
    last = answer.text
    if answer.status_code == 200 and streams:
        *events, done = [event for event in answer.text.split("\n\n") if event]
        assert done == "data: [DONE]", answer.text
        last = events[-1].removeprefix("data: ")
    if answer.status_code != 200 or "usage" not in json.loads(last):
        return Answer(answer.status_code, answer.text, events=len(events))
    usage = json.loads(last)["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(200, answer.text, usage["completion_tokens"], cached, len(events))


def waiting(http: httpx.Client) -> list[float]:
    """How many requests each replica has that have not begun."""
    told = http.get("/metrics").text
    return [float(n) for n in re.findall(r"^vllm:num_requests_waiting\{.*\} (\S+)$", told, re.M)]


@contextmanager
def burst(http: httpx.Client) -> Iterator[list[Answer]]:
    """Many requests at once, the odd ones streamed. The list is complete behind the block."""
    answers: list[Answer] = []
    with ThreadPoolExecutor(BURST) as pool:
        asked = [
            pool.submit(ask, http, number % FAMILIES, number, number % 2 == 1)
            for number in range(BURST)
        ]
        yield answers
        answers.extend(one.result() for one in asked)


@pytest.mark.nightly
def test_a_killed_replica_costs_no_request_that_it_had_not_begun() -> None:
    with (
        cluster("tutor", *SMALL, "--imbalance=8", "--health-check-period=1") as (running, url),
        httpx.Client(base_url=url, timeout=90, trust_env=False) as http,
    ):
        firsts = [ask(http, family, BURST) for family in range(FAMILIES)]
        assert [one.cached_tokens for one in firsts] == [0] * FAMILIES
        # Each goes where the first one of its family was: by chance, one run in 64 would look so.
        seconds = [ask(http, family, BURST + 1) for family in range(FAMILIES)]
        assert [one.cached_tokens for one in seconds] == [BEGINNING] * FAMILIES

        dying = replicas(running)[0]
        with burst(http) as answers:
            within(60, lambda: len(found := waiting(http)) == 2 and min(found) >= 2)
            dying.kill()
        broken = [one for one in answers if one.is_broken]
        complete = [one for one in answers if one.completion_tokens == TOKENS]
        assert len(complete) + len(broken) == BURST, set(answers) - {*complete, *broken}
        assert len(broken) <= AT_A_TIME
        assert not dying.is_running()

        family_tree = children(running)
        interrupt(running, signal.SIGTERM)
        assert running.process.wait(60) == 0, running.text
        within(20, lambda: not alive(family_tree))
        assert running.text.endswith("Stopped.\n")
