"""The log: one event a line, whatever a client wrote, with the id of the request that it belongs to.

Prompts and answers are never logged. Of uvicorn's messages those from WARNING on are kept, and there is
no line for each access: an answer's own line says how it ended (lab 8's `leaving.py`).
"""

import asyncio
import json
import logging
import re
import sys
import time
from contextlib import suppress
from typing import Any

from yaie.core.errors import ConfigError
from yaie.engine.background.async_engine import AsyncEngine
from yaie.server.request_head import request_id
from yaie.system.files import cannot_write

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def start_logging(level: str = "info", file: str | None = None, as_json: bool = False) -> None:
    """To stderr, and to a file if one is given. Raises ConfigError if that cannot be written."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if file is not None:
        try:
            handlers.append(LogFile(file, encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise ConfigError(
                f"cannot write the log to {file!r}: {error.strerror}", param="log_file"
            ) from None
    for handler in handlers:
        handler.setFormatter(JsonLines() if as_json else OneLine())
    logging.basicConfig(level=level.upper(), handlers=handlers)
    for name in ("uvicorn", "httpx", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))


class LogFile(logging.FileHandler):
    """A log on a disk that may run full: that is said once on stderr, without a traceback for each line,
    and the server goes on. The file has lines again as soon as there is room."""

    has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self.has_failed:
            self.has_failed = True
            with suppress(OSError):
                print(
                    f"The log loses lines: {cannot_write(self.baseFilename, error)}",
                    file=sys.stderr,
                )


class OneLine(logging.Formatter):
    """Time, level, message, request id. A line break that a client sent cannot start a line of its own;
    the lines of a traceback stand below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-8s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        line = super().formatMessage(record)
        request = request_id.get()
        return f"{line} [{request}]" if request else line

    def formatException(self, *args: Any) -> str:
        """An error's message may quote a client: lines stay lines, and no code reaches a terminal."""
        lines = super().formatException(*args).split("\n")
        return "\n".join(escaped(line) for line in lines)


class JsonLines(logging.Formatter):
    """The same as one JSON object, tracebacks included, for machines that read logs."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": escaped(record.getMessage()),
        }
        if request := request_id.get():
            line["request_id"] = request
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line)


def escaped(text: str) -> str:
    """Control characters as they are written in Python."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


async def log_activity(engine: AsyncEngine, period: float = PERIOD_SECONDS) -> None:
    """A line on what the engine does, as long as it does something; at DEBUG while it is idle."""
    before, at = engine.telemetry.stats, time.monotonic()
    while True:
        await asyncio.sleep(period)
        stats, now = engine.telemetry.stats, time.monotonic()
        if stats:
            is_busy = stats.get("steps", 0) != before.get("steps", 0) or stats["num_running"]
            logger.log(
                logging.INFO if is_busy else logging.DEBUG, activity(before, stats, now - at)
            )
        before, at = stats, now


def activity(before: dict[str, float], stats: dict[str, float], seconds: float) -> str:
    """What happened between two readings of `LLMEngine.stats`, and how things stand."""
    gained = {key: stats.get(key, 0) - before.get(key, 0) for key in stats}
    prompt, cached = gained.get("prompt_tokens", 0), gained.get("cached_tokens", 0)
    pool = f"{stats['kv_usage']:.1%}"
    if "windowed_kv_usage" in stats:
        pool = f"{stats['full_kv_usage']:.1%} and {stats['windowed_kv_usage']:.1%} of windows"
    return (
        f"prompt {prompt / seconds:.1f} tokens/s, "
        f"generation {gained.get('generation_tokens', 0) / seconds:.1f} tokens/s, "
        f"running {stats['num_running']:.0f}, waiting {stats['num_waiting']:.0f}, "
        f"KV pool {pool}, prefix hits {cached / prompt if prompt else 0:.1%}"
    )
