"""The cache-aware routers of SGLang and vLLM in front of two replicas of `yaie serve`.

Neither passes a request on as it came: they read it into types of their own and write it anew, with
fields of their engines added. What comes back must be what a replica says directly, and the death of
one replica must cost nothing but what it was doing.
"""

import json
import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.judges.conftest import tiny_model_with_tools
from tests.judges.programs import Running, free_port, installed, replica, started, wait_until_ready
from tests.server.conftest import within

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

Json = dict[str, Any]
ROUTERS = ["sglang-router", "vllm-router"]
POLICY = [
    "--policy=cache_aware", "--host=127.0.0.1", "--prometheus-host=127.0.0.1",
    "--worker-startup-check-interval=1", "--health-check-interval-secs=1",
    "--health-failure-threshold=1", "--health-success-threshold=1",
    # A request to a dead replica is tried again until the health check has seen the death.
    "--retry-max-retries=5", "--retry-initial-backoff-ms=500",
    # SGLang's router counts refusals (400, 404) as failures of the replica.
    "--disable-circuit-breaker",
]  # fmt: skip


@dataclass
class Fleet:
    """Two replicas, a router in front, and a client of it."""

    model: Path
    replicas: list[Running]
    urls: list[str]
    router: httpx.Client
    name: str

    def direct(self, number: int = 0) -> httpx.Client:
        return httpx.Client(base_url=self.urls[number], timeout=60, trust_env=False)

    def healthy(self) -> int:
        """How many replicas the router counts on."""
        return [worker["is_healthy"] for worker in self.workers()].count(True)

    def workers(self) -> list[Json]:
        found: list[Json] = self.router.get("/workers").json()["workers"]
        return found


@contextmanager
def fleet_behind(name: str, folder: Path) -> Iterator[Fleet]:
    """Two replicas of a small model behind this router, which counts on both."""
    program = [installed(name), *(["launch"] if name == "sglang-router" else [])]
    model = tiny_model_with_tools(folder / "judged")
    with ExitStack() as stack:
        running = [stack.enter_context(replica(model, "--num-blocks=512")) for _ in range(2)]
        urls = [url for _, url in running]
        port = free_port()
        ports = [f"--port={port}", f"--prometheus-port={free_port()}"]
        router = stack.enter_context(started([*program, *ports, *POLICY, "--worker-urls", *urls]))
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(router, f"{url}/readiness")
        http = stack.enter_context(httpx.Client(base_url=url, timeout=60, trust_env=False))
        fleet = Fleet(model, [process for process, _ in running], urls, http, name)
        within(30, lambda: fleet.healthy() == 2)
        yield fleet


@pytest.fixture(params=ROUTERS, scope="module")
def fleet(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_behind(request.param, tmp_path_factory.mktemp("replica")) as fleet:
        yield fleet


@pytest.fixture(params=ROUTERS)
def mortal_fleet(request: Any, tmp_path: Path) -> Iterator[Fleet]:
    """For a test that kills replicas: the tests that follow, in any order, need theirs."""
    with fleet_behind(request.param, tmp_path) as fleet:
        yield fleet


def chat(prompt: str = "hello", **options: Any) -> tuple[str, Json]:
    body = {"model": "judged", "messages": [{"role": "user", "content": prompt}], "max_tokens": 16}
    return "/v1/chat/completions", {**body, "temperature": 0, "ignore_eos": True, **options}


def complete(prompt: Any = "hello", **options: Any) -> tuple[str, Json]:
    body = {"model": "judged", "prompt": prompt, "max_tokens": 16, "temperature": 0}
    return "/v1/completions", {**body, "ignore_eos": True, **options}


TOOL = {"type": "function", "function": {
    "name": "add", "description": "adds", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"], "additionalProperties": False}}}  # fmt: skip
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["日本", "b"]}}}
HOT = {"temperature": 1.5, "seed": 7}
CASES = {
    "chat": chat(),
    "multibyte": chat("日本語 🙂 Straße"),
    "hot": chat(**HOT, n=3),
    "filters": chat(**HOT, top_p=0.9, top_k=20, min_p=0.01),
    "penalties": chat(**HOT, presence_penalty=1, frequency_penalty=1, repetition_penalty=1.2),
    "stop": chat(stop=["e", "a"], **HOT),
    "bias": chat(logit_bias={"40": 100}),
    "chat logprobs": chat(logprobs=True, top_logprobs=3),
    "schema": chat(response_format=SCHEMA, ignore_eos=False, **HOT, max_tokens=100),
    "tool": chat(tools=[TOOL], tool_choice="required", ignore_eos=False, **HOT, max_tokens=200),
    "text": complete(),
    "texts": complete(["one", "two"], n=2, **HOT),
    "echo": complete(echo=True, logprobs=2),
}


def assert_same(found: Any, wanted: Any, way: str = "") -> None:
    """Equal but for ids, times, what was cached, and rounding."""
    if isinstance(wanted, dict):
        skipped = {"id", "created", "cached_tokens"}
        assert found.keys() == wanted.keys(), way
        for key in wanted.keys() - skipped:
            assert_same(found[key], wanted[key], f"{way}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), way
        for place, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
            assert_same(mine, theirs, f"{way}[{place}]")
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, abs_tol=1e-4), way
    else:
        assert found == wanted, way


def ask(client: httpx.Client, case: tuple[str, Json]) -> Json:
    path, body = case
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_answer_is_the_one_that_a_replica_gives(fleet: Fleet, case: tuple[str, Json]) -> None:
    with fleet.direct() as replica:
        assert_same(ask(fleet.router, case), ask(replica, case))


@pytest.mark.parametrize("name", [name for name in CASES if name != "texts"])
def test_stream_is_the_one_that_a_replica_sends(fleet: Fleet, name: str) -> None:
    """Event by event: a router passes them on as they are."""
    with fleet.direct() as replica:
        wanted = joined(streamed(replica, CASES[name]))
    assert_same(joined(streamed(fleet.router, CASES[name])), wanted)


def streamed(client: httpx.Client, case: tuple[str, Json]) -> list[Json]:
    """The events of the answer to a case, as a stream."""
    path, body = case
    body = {**body, "stream": True, "stream_options": {"include_usage": True}, "n": 1}
    lines = [line for line in client.post(path, json=body).text.splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined(events: list[Json]) -> list[Json]:
    """How text is cut into events is a matter of timing."""
    pieces = [event["choices"][0] for event in events if event["choices"]]
    content = "".join(
        piece.get("text") or piece.get("delta", {}).get("content") or "" for piece in pieces
    )
    calls = [call["function"] for piece in pieces
             for call in piece.get("delta", {}).get("tool_calls") or []]  # fmt: skip
    arguments = "".join(call.get("arguments") or "" for call in calls)
    return [{"content": content, "arguments": arguments, "usage": events[-1]["usage"],
             "reason": pieces[-1]["finish_reason"]}]  # fmt: skip


def test_responses_are_answered_through_the_router(fleet: Fleet) -> None:
    body = {"model": "judged", "input": "hello", "max_output_tokens": 16, "temperature": 0}
    with fleet.direct() as replica:
        wanted, found = (
            client.post("/v1/responses", json=body).json()["output"][0]["content"][0]["text"]
            for client in (replica, fleet.router)
        )
    assert found == wanted


def test_model_is_listed_under_its_name(fleet: Fleet) -> None:
    (card,) = fleet.router.get("/v1/models").json()["data"]
    assert card["id"] == "judged"


def test_errors_of_a_replica_come_through(fleet: Fleet) -> None:
    path, body = chat()
    unknown = fleet.router.post(path, json={**body, "model": "gpt-4"})
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"
    too_long = fleet.router.post(path, json=chat("long " * 3000)[1])
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"


def test_prompts_that_begin_alike_meet_in_one_cache(fleet: Fleet) -> None:
    """What a cache-aware router is for. Whichever replica had the first has the others too."""
    for family in range(4):
        start = f"family {family}: " + "a prefix of more than a few blocks of sixteen tokens, " * 4
        usages = [ask(fleet.router, complete(f"{start}{i}"))["usage"] for i in range(6)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages[1:]]
        assert min(cached) > usages[0]["prompt_tokens"] / 2


def test_a_replica_dies_and_comes_back_and_the_others_requests_go_on(mortal_fleet: Fleet) -> None:
    fleet = mortal_fleet
    path, body = chat(max_tokens=600)
    survivors: list[int] = []

    def stream_directly() -> None:
        """On the replica that lives: what the other's death must not touch."""
        with fleet.direct(1) as replica:
            answer = replica.post(path, json={**body, "stream": True})
        survivors.append(answer.text.count("data: "))

    streams = [threading.Thread(target=stream_directly) for _ in range(4)]
    for stream in streams:
        stream.start()
    fleet.replicas[0].kill()
    answers = [ask(fleet.router, chat(f"{i}: hello")) for i in range(40)]
    assert all(answer["usage"]["completion_tokens"] == 16 for answer in answers)
    for stream in streams:
        stream.join()
    assert min(survivors) > 100
    within(30, lambda: fleet.healthy() == 1)

    port = int(fleet.urls[0].rsplit(":", 1)[1])
    with replica(fleet.model, "--num-blocks=512", port=port) as (_, url):
        assert url == fleet.urls[0]
        within(30, lambda: fleet.healthy() == 2)
        # Whatever comes now can only be the work of the one that came back.
        fleet.replicas[1].kill()
        answers = [ask(fleet.router, chat(f"{i}: once more")) for i in range(20)]
    assert all(answer["usage"]["completion_tokens"] == 16 for answer in answers)
