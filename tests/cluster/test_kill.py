"""Two replicas, two thousand requests that share beginnings, and one replica that is killed among them.

On real Ray. What the dead replica had begun to stream ends with an error event. Everything else is
answered in full, and prompts find as much in the caches as they would in one engine's.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.cluster.running import cluster, replicas
from tests.judges.programs import replica
from tests.server.conftest import within

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

NUM_REQUESTS = 2000
FAMILIES = 40
AT_ONCE = 32
TOKENS = 6
OPTIONS = ("--num-blocks=2048", "--health-check-period=1")
SUBJECTS = "blocks slots tables trees pages tokens heads layers ranks stages".split()


def prompt(number: int) -> str:
    """One of a family, which share all but the last words."""
    family = number % FAMILIES
    words = [SUBJECTS[(family * step + step) % len(SUBJECTS)] for step in range(60)]
    return f"Family {family}: {' '.join(words)}. Question {number}: what is a block?"


@dataclass
class Tally:
    """What has come of the requests. broken: streams that ended with an error event."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    complete: int = 0
    broken: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def add(self, usage: dict[str, Any]) -> None:
        with self.lock:
            self.complete += usage["completion_tokens"] == TOKENS
            self.prompt_tokens += usage["prompt_tokens"]
            self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]


@contextmanager
def client(url: str) -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=AT_ONCE)
    with httpx.Client(base_url=url, timeout=120, trust_env=False, limits=limits) as http:
        yield http


def ask(http: httpx.Client, number: int, tally: Tally) -> None:
    """Every other request is streamed."""
    streams = number % 2 == 1
    body = {"prompt": prompt(number), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    more = {"stream": True, "stream_options": {"include_usage": True}} if streams else {}
    answer = http.post("/v1/completions", json={**body, **more})
    if answer.status_code != 200:
        tally.wrong.append(f"{number}: {answer.status_code} {answer.text}")
    elif not streams:
        tally.add(answer.json()["usage"])
    else:
        *events, done = [line for line in answer.text.split("\n\n") if line]
        last = json.loads(events[-1].removeprefix("data: "))
        if done != "data: [DONE]":
            tally.wrong.append(f"{number}: {answer.text}")
        elif "error" in last:
            with tally.lock:
                tally.broken += 1
            if len(events) < 2:  # it had not begun
                tally.wrong.append(f"{number}: {answer.text}")
        else:
            tally.add(last["usage"])


def ask_all(url: str, numbers: range, tally: Tally) -> None:
    with client(url) as http, ThreadPoolExecutor(AT_ONCE) as pool:
        for asked in [pool.submit(ask, http, number, tally) for number in numbers]:
            asked.result()


def test_a_killed_replica_costs_no_request_that_it_had_not_begun() -> None:
    tally, alone = Tally(), Tally()
    with cluster("tutor", *OPTIONS) as (running, url):
        dying = replicas(running)[0]

        def kill() -> None:
            within(120, lambda: tally.complete > NUM_REQUESTS // 3)
            dying.kill()

        killing = threading.Thread(target=kill)
        killing.start()
        ask_all(url, range(NUM_REQUESTS), tally)
        killing.join()
        assert not dying.is_running()
        assert tally.wrong == []
        assert tally.complete + tally.broken == NUM_REQUESTS
        assert tally.broken <= AT_ONCE
        with client(url) as http:
            within(60, lambda: http.get("/health").json()["replicas"]["ready"] == 2)
    with replica("tutor", "--num-blocks=2048") as (_, url):  # type: ignore[arg-type]
        ask_all(url, range(NUM_REQUESTS), alone)
    print(
        f"hit rate {tally.hit_rate:.3f}, of one engine {alone.hit_rate:.3f}, {tally.broken} broken"
    )
    assert alone.hit_rate > 0.5
    assert tally.hit_rate >= 0.9 * alone.hit_rate
