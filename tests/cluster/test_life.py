"""How `yaie cluster` starts, grows, and ends, on real Ray: and that it leaves nothing behind."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.cluster.running import alive, children, cluster, command, interrupt, replicas
from tests.judges.programs import OFFLINE, ROOT, started
from tests.server.conftest import within
from yaie.server.listen import listen

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]

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


def test_a_second_ctrl_c_ends_all_at_once() -> None:
    with cluster("tutor", "--min-replicas=1", "--num-blocks=1024") as (running, url):
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
