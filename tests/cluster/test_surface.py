"""Through two replicas on real Ray a client sees what one `yaie serve` says, and the metrics of all."""

import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.cluster.running import cluster, interrupt, replicas
from tests.judges.conftest import tiny_model_with_tools
from tests.judges.programs import Running, replica
from tests.judges.test_routers import CASES, ask, assert_same, chat, complete, joined, streamed
from tests.server.conftest import within

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

Json = dict[str, Any]
KEY = {"Authorization": "Bearer secret"}


@dataclass
class Both:
    """The cluster, one engine that is asked directly, and the file that the cluster was set up with."""

    running: Running
    cluster: httpx.Client
    alone: httpx.Client
    file: Path


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("cluster")
    model = tiny_model_with_tools(folder / "judged")
    file = folder / "engine.toml"
    file.write_text("num_blocks = 512\n")
    options = ("--api-key=secret", "--allowed-origins=https://a.example", f"--config={file}")
    with (
        replica(model, "--num-blocks=512") as (_, direct),
        cluster(str(model), *options) as (running, url),
        httpx.Client(base_url=direct, timeout=60, trust_env=False) as alone,
        httpx.Client(base_url=url, timeout=60, trust_env=False, headers=KEY) as http,
    ):
        yield Both(running, http, alone, file)


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_the_one_that_an_engine_gives(both: Both, name: str) -> None:
    assert_same(ask(both.cluster, CASES[name]), ask(both.alone, CASES[name]))


@pytest.mark.parametrize("name", [name for name in CASES if name != "texts"])
def test_a_stream_is_the_one_that_an_engine_sends(both: Both, name: str) -> None:
    wanted = joined(streamed(both.alone, CASES[name]))
    assert_same(joined(streamed(both.cluster, CASES[name])), wanted)


MESSAGES = {"model": "judged", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "judged", "input": "hi", "max_output_tokens": 8, "temperature": 0}
WRONG: list[tuple[str, str, Any]] = [
    ("POST", "/v1/chat/completions", {"messages": 3}),
    (
        "POST",
        "/v1/chat/completions",
        {"model": "gpt-4", "messages": [{"role": "user", "content": "a"}]},
    ),
    ("POST", "/v1/completions", {"prompt": "long " * 3000}),
    ("POST", "/v1/messages", {"messages": 3}),
    ("POST", "/v1/nothing", {}),
    ("GET", "/v1/completions", None),
    ("GET", "/v1/models/other", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WRONG, ids=lambda value: str(value)[:30])
def test_an_error_is_the_one_of_an_engine(both: Both, method: str, path: str, body: Any) -> None:
    found, wanted = (
        client.request(method, path, json=body) for client in (both.cluster, both.alone)
    )
    assert (found.status_code, found.headers["content-type"]) == (
        wanted.status_code,
        wanted.headers["content-type"],
    )
    assert {**found.json(), "request_id": 0} == {**wanted.json(), "request_id": 0}


def test_every_other_path_is_answered(both: Both) -> None:
    http = both.cluster
    for path in ("/v1/models", "/version", "/server_info", "/model_info", "/openapi.json", "/"):
        assert http.get(path).status_code == 200, path
    assert http.post("/v1/messages", json=MESSAGES).json()["type"] == "message"
    assert http.post("/v1/responses", json=RESPONSES).json()["status"] == "incomplete"
    assert http.post("/tokenize", json={"prompt": "hello"}).json()["count"] > 0
    assert http.head("/v1/models").status_code == 200


def test_the_official_client_streams(both: Both) -> None:
    client = OpenAI(base_url=f"{both.cluster.base_url}/v1", api_key="secret")
    stream = client.chat.completions.create(
        model="judged", messages=[{"role": "user", "content": "hi"}], max_tokens=8, stream=True
    )
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] in ("length", "stop")


def test_a_key_is_asked_for_and_origins_are_let_in_once(both: Both) -> None:
    url, path = both.cluster.base_url, "/v1/models"
    assert httpx.get(f"{url}{path}", trust_env=False).status_code == 401
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    answer = both.cluster.get(path, headers={"Origin": "https://a.example", "X-Request-Id": "mine"})
    assert answer.headers.get_list("access-control-allow-origin") == ["https://a.example"]
    assert answer.headers.get_list("x-request-id") == ["mine"]


def test_prompts_that_begin_alike_meet_in_one_cache(both: Both) -> None:
    for family in range(6):
        start = f"family {family}: " + "a prefix of more than a few blocks of sixteen tokens, " * 4
        usages = [ask(both.cluster, complete(f"{start}{i}"))["usage"] for i in range(5)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages[1:]]
        assert min(cached) > usages[0]["prompt_tokens"] / 2


def figure(both: Both, name: str) -> dict[str, float]:
    """A metric by the replica's number."""
    text = both.cluster.get("/metrics").text
    found = re.findall(rf'^vllm:{name}{{[^}}]*engine="(\d+)"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return {number: float(value) for number, value in found}


def test_metrics_are_those_of_every_replica_and_emptying_caches_empties_all(both: Both) -> None:
    for i in range(24):
        ask(both.cluster, complete(f"{i}: another beginning of at least one whole block of tokens"))
    assert set(figure(both, "prompt_tokens_total")) == {"0", "1"}
    assert min(figure(both, "prompt_tokens_total").values()) > 0
    assert both.cluster.post("/reset_prefix_cache").json()["freed_blocks"] > 0
    assert both.cluster.post("/reset_prefix_cache").json() == {"freed_blocks": 0}


def test_a_client_that_leaves_is_not_computed_for(both: Both) -> None:
    def aborted() -> float:
        text = both.cluster.get("/metrics").text
        return sum(map(float, re.findall(r'finished_reason="abort"[^}]*} (\S+)', text)))

    path, body = chat(max_tokens=600, stream=True)
    before = aborted()
    with both.cluster.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        next(answer.iter_lines())
    within(10, lambda: aborted() == before + 1)


def test_settings_are_read_again_and_replicas_replaced_without_losing_a_request(both: Both) -> None:
    before = {process.pid for process in replicas(both.running)}
    statuses: list[int] = []
    done = threading.Event()

    def keep_asking() -> None:
        path, body = complete("hello")
        while not done.is_set():
            statuses.append(both.cluster.post(path, json=body).status_code)

    both.file.write_text("num_blocks = 256\n")
    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        interrupt(both.running, signal.SIGHUP)
        within(120, lambda: not before & {process.pid for process in replicas(both.running)})
        within(60, lambda: both.cluster.get("/health").json()["replicas"]["ready"] == 2)
    finally:
        done.set()
        asking.join()
    assert set(statuses) == {200}
    assert both.cluster.get("/server_info").json()["max_total_num_tokens"] == 256 * 16
