"""The log: one line for each event, nothing of prompts, and the request's id in it."""

import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, within
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import ConfigError
from yaie.server.logs import JsonLines, LogFile, OneLine, activity, log_activity, start_logging
from yaie.server.request_head import request_id

TEXT = {"prompt": "secret words"}


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger without handlers, and as it was before afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    levels = {name: logging.getLogger(name).level for name in ("uvicorn", "httpx", "asyncio")}
    logger.handlers.clear()
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def log(tmp_path: Path, root: logging.Logger) -> Path:
    """The file that the server logs to, as JSON."""
    file = tmp_path / "log.jsonl"
    start_logging("info", str(file), as_json=True)
    return file


def lines_of(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def ended(log: Path) -> list[dict[str, str]]:
    return [line for line in lines_of(log) if "first token" in line["message"]]


def test_answer_is_one_line_with_the_clients_id(log: Path, fake_live: LiveServer) -> None:
    headers = {"X-Request-Id": "trace-7/a"}
    response = fake_live.http.post("/v1/completions", json=TEXT, headers=headers)
    assert response.headers["x-request-id"] == "trace-7/a"
    within(20, lambda: len(ended(log)) == 1)
    [line] = ended(log)
    assert line["request_id"] == "trace-7/a"
    assert line["level"] == "info"
    assert "output 12" in line["message"]
    assert "secret" not in log.read_text()
    assert "sdrow" not in log.read_text()


def test_streams_and_refusals_have_the_id_too(log: Path, fake_live: LiveServer) -> None:
    headers = {"X-Request-Id": "a"}
    fake_live.http.post("/v1/completions", json={**TEXT, "stream": True}, headers=headers)
    headers = {"X-Request-Id": "b"}
    refused = fake_live.http.post("/v1/completions", json={"temperature": 99}, headers=headers)
    assert refused.headers["x-request-id"] == "b"
    within(20, lambda: len(lines_of(log)) >= 2)
    assert [line["request_id"] for line in lines_of(log)] == ["a", "b"]


def test_request_without_an_id_gets_one(fake_live: LiveServer) -> None:
    given = {fake_live.http.get("/health").headers["x-request-id"] for _ in range(3)}
    assert len(given) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in given)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"a b\tc", "abc"),
        (b"x" * 1000, "x" * 128),
        (b"caf\xe9<script>\"'", "cafscript"),
        (b"req_1.2:3@host-A+b/c=", "req_1.2:3@host-A+b/c="),
    ],
)
def test_clients_id_is_made_harmless(fake_live: LiveServer, sent: bytes, kept: str) -> None:
    response = fake_live.http.get("/health", headers={b"X-Request-Id": sent})
    assert response.headers["x-request-id"] == kept


def test_id_of_nothing_usable_is_replaced(fake_live: LiveServer) -> None:
    response = fake_live.http.get("/health", headers={b"X-Request-Id": b"\xe9\xe8"})
    assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


def test_failures_of_ours_carry_the_id(fake: FakeEngine, fake_live: LiveServer) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("/secret/path")

    fake.add_request = broken  # type: ignore[assignment, method-assign]
    headers = {"X-Request-Id": "x1"}
    response = fake_live.http.post("/v1/completions", json=TEXT, headers=headers)
    assert (response.status_code, response.headers["x-request-id"]) == (500, "x1")


def test_line_break_of_a_client_starts_no_line(log: Path, fake_live: LiveServer) -> None:
    body = {"prompt": "x", "temperature\n\x1b": 1}
    assert fake_live.http.post("/v1/completions", json=body).status_code == 400
    within(20, lambda: len(lines_of(log)) == 1)  # each line of the file is JSON
    message = lines_of(log)[0]["message"]
    assert "\n" not in message
    assert "\x1b" not in message
    assert "\\n" in message


def record_of(message: str, **more: object) -> logging.LogRecord:
    return logging.LogRecord("yaie", logging.INFO, "f", 1, message, None, None, **more)  # type: ignore[arg-type]


def test_text_lines_escape_controls_and_name_the_request() -> None:
    token = request_id.set("id-1")
    try:
        line = OneLine().format(record_of("a\nb\u2028c\x7f"))
    finally:
        request_id.reset(token)
    assert line.endswith("INFO     a\\nb\\u2028c\\x7f [id-1]")
    assert OneLine().format(record_of("plain")).endswith("INFO     plain")


def test_a_traceback_keeps_its_lines_and_no_control_character() -> None:
    try:
        raise ValueError("a client's \x1b[2J\nname")
    except ValueError:
        record = record_of("failed")
        record.exc_info = sys.exc_info()
    lines = OneLine().format(record).splitlines()
    assert lines[-2:] == [r"ValueError: a client's \x1b[2J", "name"]


def test_json_line_keeps_its_traceback_in_one_line() -> None:
    try:
        raise ValueError("x")
    except ValueError:
        record = record_of("failed")
        record.exc_info = sys.exc_info()
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "ValueError: x" in json.loads(line)["traceback"]


def test_level_and_file_are_honoured(tmp_path: Path, root: logging.Logger) -> None:
    root.handlers.clear()  # pytest has put one of its own there
    start_logging("warning", str(tmp_path / "log"))
    logging.getLogger("yaie.x").info("quiet")
    logging.getLogger("yaie.x").warning("loud")
    said = (tmp_path / "log").read_text()
    assert "loud" in said
    assert "quiet" not in said


def test_file_that_cannot_be_written_is_said_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        start_logging(file=str(tmp_path / "no" / "such" / "folder" / "log"))
    assert refused.value.param == "log_file"


STATS = {
    "steps": 10,
    "num_running": 3,
    "num_waiting": 2,
    "kv_usage": 0.5,
    "prompt_tokens": 100,
    "cached_tokens": 50,
    "generation_tokens": 20,
}


def test_activity_is_what_happened_since_the_last_line() -> None:
    now = {**STATS, "prompt_tokens": 300, "cached_tokens": 150, "generation_tokens": 60}
    assert activity(STATS, now, 10.0) == (
        "prompt 20.0 tokens/s, generation 4.0 tokens/s, running 3, waiting 2, KV pool 50.0%, "
        "prefix hits 50.0%"
    )


class Readings:
    """An engine whose statistics are these, one after the other; then the log's task is cancelled."""

    def __init__(self, *stats: dict[str, float]) -> None:
        self.telemetry = self
        self._stats = list(stats)

    @property
    def stats(self) -> dict[str, float]:
        if not self._stats:
            raise asyncio.CancelledError
        return self._stats.pop(0)


def levels(caplog: pytest.LogCaptureFixture, *stats: dict[str, float]) -> list[str]:
    """Of the lines that are logged on these statistics."""
    caplog.set_level(logging.DEBUG, "yaie")
    engine: Any = Readings(*stats)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(log_activity(engine, 0.001))
    return [record.levelname for record in caplog.records]


def test_activity_is_logged_at_info_while_busy_and_at_debug_when_idle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    idle = {**STATS, "num_running": 0}
    later = {**idle, "steps": 11}
    assert levels(caplog, idle, idle, later, later) == ["DEBUG", "INFO", "DEBUG"]


def test_one_long_step_is_activity_too(caplog: pytest.LogCaptureFixture) -> None:
    """No step has ended since the last line, but a request runs."""
    assert levels(caplog, STATS, STATS) == ["INFO"]


def test_loading_engine_has_no_activity(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "yaie")
    engine = SimpleNamespace(telemetry=SimpleNamespace(stats={}))

    async def watch() -> None:
        task = asyncio.create_task(log_activity(engine, 0.01))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()

    asyncio.run(watch())
    assert caplog.records == []


def test_no_line_for_each_access(log: Path, fake_live: LiveServer) -> None:
    for _ in range(3):
        httpx.get(f"{fake_live.url}/health")
    assert lines_of(log) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_loses_lines_and_says_so_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = LogFile("/dev/full")
    for number in range(3):
        log.handle(logging.makeLogRecord({"msg": "line %d", "args": (number,)}))
    said = "The log loses lines: cannot write /dev/full: No space left on device\n"
    assert capsys.readouterr().err == said


def test_a_fault_in_a_line_is_still_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(LogFile(tmp_path / "log")) as log:
        log.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    assert "--- Logging error ---" in capsys.readouterr().err


def test_the_servers_log_is_such_a_file(log: Path, root: logging.Logger) -> None:
    assert any(isinstance(handler, LogFile) for handler in root.handlers)
