"""How the process of `yaie serve` ends: on a hung step, and on a signal under load.

The engine is a fake one, so that it hangs when it should; the process is a real one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.test_serve import ROOT, address_in
from tests.server.conftest import within
from tests.server.test_failures import events_of

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import yaie.engine.llm_engine
from tests.server.fake_engine import FakeEngine
from yaie.cli.main import main

engine = FakeEngine()
{setting}
yaie.engine.llm_engine.LLMEngine = lambda config, launch=None: engine
sys.argv = ["yaie", "serve", "--port=0", *sys.argv[1:]]
main()
"""


@contextmanager
def serving_fake(
    setting: str, *args: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that serves a fake engine with this setting, and the lines it has printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(setting=setting), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
            **environment,
        },
    )
    lines: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda pipe: lines.extend(pipe), args=(process.stdout,))
    reader.start()
    try:
        yield process, lines
        process.wait(90)
    finally:
        process.kill()
        reader.join(10)


def ask(url: str, answers: list[httpx.Response], key: str = "") -> threading.Thread:
    """Stream a long answer in the background."""

    def post() -> None:
        body = {"prompt": "x" * 900, "max_tokens": 900, "stream": True}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answers.append(httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=30))

    thread = threading.Thread(target=post)
    thread.start()
    return thread


def test_hung_step_ends_the_process_with_1_and_says_where_it_stands(tmp_path: Path) -> None:
    log, answers = tmp_path / "log.jsonl", list[httpx.Response]()
    with serving_fake(
        "engine.pause_after(3)", "--step-timeout=0.5", "--log-json", f"--log-file={log}"
    ) as (process, lines):
        ask(address_in(process, lines), answers).join(20)
    assert process.returncode == 1
    assert events_of(answers[0])[-1]["error"]["code"] == "engine_dead"
    said = [json.loads(line) for line in log.read_text().splitlines()]
    critical = next(line for line in said if line["level"] == "critical")
    assert "0.5 seconds" in critical["message"]
    assert "self.gate.wait()" in critical["stack"]
    assert "xxx" not in log.read_text()


def test_sigterm_under_load_ends_what_the_limit_leaves_over_and_exits_0() -> None:
    answers = list[httpx.Response]()
    with serving_fake(
        "engine.step_seconds = 0.02", "--drain-seconds=0.5", YAIE_API_KEY="sk-secret-1"
    ) as (process, lines):
        url = address_in(process, lines)
        asking = [ask(url, answers, "sk-secret-1") for _ in range(20)]
        running = re.compile(r"vllm:num_requests_running\{.*\} 20\.0")
        within(20, lambda: running.search(httpx.get(f"{url}/metrics").text) is not None)
        process.send_signal(signal.SIGTERM)
        for thread in asking:
            thread.join(20)
    assert process.returncode == 0
    for answer in answers:
        assert answer.status_code == 200
        assert events_of(answer)[-1]["error"]["code"] == "engine_unavailable"
    said = "".join(lines)
    assert "Traceback" not in said
    assert "sk-secret-1" not in said
