"""How `yaie cluster` starts, grows, and ends, on real Ray: and that it leaves nothing behind."""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cluster.install import python_with_ray
from tests.cluster.running import alive, children, cluster, command, interrupt, ready, replicas
from tests.judges.programs import OFFLINE, ROOT, free_port, started
from tests.server.conftest import within
from yaie.server.listen import listen

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
LONG = {"prompt": "hello", "max_tokens": 300, "temperature": 0, "ignore_eos": True}


def fails(*options: str) -> str:
    """What a command says that cannot start; it ends with status 2."""
    ran = subprocess.run(
        command(*options),
        env={**os.environ, **OFFLINE, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_replicas_follow_the_load_and_the_first_ctrl_c_drains() -> None:
    """One replica, of which there may be two: four streams at a time are more than its target of one."""
    growing = ("--max-replicas=2", "--target-ongoing-requests=1", "--upscale-delay=1")
    with (
        cluster("tutor", "--min-replicas=1", *growing, "--num-blocks=1024") as (running, url),
        httpx.Client(base_url=url, timeout=120, trust_env=False) as http,
    ):
        assert len(replicas(running)) == 1
        gcs = next(one for one in children(running) if one.name() == "gcs_server")
        assert gcs.environ()["RAY_USAGE_STATS_ENABLED"] == "0"
        ports = {at.laddr.port for one in children(running) for at in one.net_connections()
                 if at.status == psutil.CONN_LISTEN}  # fmt: skip
        assert 8265 not in ports  # Ray's dashboard
        asking = threading.Event()

        def load() -> None:
            while not asking.is_set():
                http.post("/v1/completions", json=LONG)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        within(120, lambda: http.get("/health").json()["replicas"]["ready"] == 2)
        asking.set()
        for thread in threads:
            thread.join()

        family = children(running)
        with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(lines)
            interrupt(running, signal.SIGINT)
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert running.process.wait(60) == 0
        within(10, lambda: not alive(family))
        assert running.text.endswith("Stopped.\n")


def test_what_no_replica_has_room_for_waits_up_to_a_limit_and_a_second_ctrl_c_ends_all() -> None:
    """One runs, two wait, one of them at the replica's door, and others are told to come back."""
    narrow = ("--max-ongoing-requests=1", "--max-waiting=1", "--num-blocks=1024")
    with cluster("tutor", "--min-replicas=1", *narrow) as (running, url):
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(httpx.post, f"{url}/v1/completions", json=LONG, timeout=60)
                     for _ in range(6)]  # fmt: skip
            answers = [one.result() for one in asked]
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 503}
        refused = answers[statuses.index(503)]
        assert refused.json()["error"]["type"] == "overloaded_error"
        assert refused.headers["retry-after"] == "1"

        family = children(running)
        body = {**LONG, "max_tokens": 1500, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, trust_env=False) as answer:
            lines = answer.iter_lines()
            next(lines)
            interrupt(running, signal.SIGTERM)
            time.sleep(1)  # it drains, which would take longer
            interrupt(running, signal.SIGTERM)
            assert running.process.wait(10) == 128 + signal.SIGTERM
        within(10, lambda: not alive(family))


def test_an_engine_that_dies_is_replaced_and_its_requests_are_answered_by_another() -> None:
    """In a process of its own, which is killed while the replica around it lives."""
    with (
        cluster("tutor", "--engine-process", "--num-blocks=1024") as (running, url),
        httpx.Client(base_url=url, timeout=90, trust_env=False) as http,
    ):
        # Prompts that begin alike, so their router would send them where the first was.
        bodies = [{**LONG, "max_tokens": 20, "prompt": f"{'hello ' * 100}{i}"} for i in range(24)]
        first = [http.post("/v1/completions", json=body) for body in bodies[:8]]
        for one in replicas(running):
            engine = max(one.children(recursive=True), key=lambda child: child.memory_info().rss)
            engine.kill()
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(http.post, "/v1/completions", json=body) for body in bodies]
                answers = [each.result() for each in asked]
            assert {answer.status_code for answer in [*first, *answers]} == {200}
            within(60, lambda one=one: not one.is_running())  # type: ignore[misc]
            within(90, lambda: http.get("/health").json()["replicas"]["ready"] == 2)


def test_it_runs_on_a_ray_that_is_there_and_leaves_it_as_it_was() -> None:
    port = free_port()
    ray = python_with_ray().with_name("ray")
    start = [str(ray), "start", "--head", "--block", f"--port={port}", "--num-cpus=2",
             "--include-dashboard=false"]  # fmt: skip
    local = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    command("tutor")  # or skip
    with started(start, **local) as head:
        try:
            within(60, lambda: "Ray runtime started" in head.text)
            options = (f"--ray-address=127.0.0.1:{port}", f"--port={free_port()}")
            with started(
                command("tutor", "--min-replicas=1", *options), **ENVIRONMENT, **local
            ) as one:
                url = ready(one)
                answer = httpx.post(f"{url}/v1/completions", json=LONG, timeout=60, trust_env=False)
                assert answer.json()["usage"]["completion_tokens"] == LONG["max_tokens"]
                with started(command("tutor", *options), **ENVIRONMENT, **local) as other:
                    assert other.process.wait(60) == 2
                    within(5, lambda: "Ray Serve runs on this cluster already" in other.text)
                interrupt(one, signal.SIGINT)
                assert one.process.wait(60) == 0
            serving = [name for name in alive(children(head)) if "ServeReplica" in name]
            assert (serving, head.process.poll()) == ([], None)
        finally:
            for process in children(head):
                process.kill()


def test_ctrl_c_while_it_starts_leaves_nothing() -> None:
    with started(command("tutor", "--port=0"), **ENVIRONMENT) as running:
        within(60, lambda: any("gcs_server" in name for name in alive(children(running))))
        within(60, lambda: len(children(running)) > 5)
        family = children(running)
        interrupt(running, signal.SIGINT)
        running.process.wait(60)
        within(90, lambda: not alive(family))


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = fails(str(tmp_path / "nowhere"), "--port=0")
    assert str(tmp_path / "nowhere") in said


def test_more_replicas_than_there_are_cores_for_are_refused() -> None:
    said = fails("tutor", "--port=0", "--min-replicas=4000")
    assert "choose fewer with --min-replicas" in said


def test_a_taken_port_is_told_before_anything_starts() -> None:
    with listen("127.0.0.1", 0) as taken:
        said = fails("tutor", f"--port={taken.getsockname()[1]}")
    assert "is in use" in said
