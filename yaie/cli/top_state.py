"""What the records of an engine's steps come to, as far as a terminal shows it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SPAN = 2.0
"""Seconds over which speed is taken."""
KEPT = 240


@dataclass(slots=True)
class Shown:
    """One request. says: the end of its answer, or of its prompt before there is one."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    table: list[int] = field(default_factory=list)
    says: str = ""


class Seen:
    """Takes records (`yaie.core.records`) as they come.

    has_begun: whether there is anything to show. speeds, ttfts, usages, hits: what the four figures
    were, the newest last.
    """

    def __init__(self) -> None:
        self.header: Json = {}
        self.has_begun = False
        self.speeds: list[float] = []
        self.ttfts: list[float] = []
        self.usages: list[float] = []
        self.hits: list[float] = []
        self._begin({})

    def take(self, record: Json) -> None:
        """The next one."""
        if record["kind"] == "header":
            self.header = record
        elif record["kind"] == "snapshot":
            self._begin(record)
            self.has_begun = True
        elif record["kind"] == "step":
            self._step(record)

    @property
    def whose(self) -> str:
        """Which parts are the learner's."""
        yours = [part["lab"] for part in self.header.get("parts", ()) if part["whose"] == "yours"]
        return f"your {', '.join(yours)}" if yours else "all parts are the reference"

    @property
    def tokens_per_second(self) -> float:
        """Drawn in the last SPAN seconds of the engine's clock."""
        since = self.t - SPAN
        drawn = sum(count for when, count in self._drawn if when > since)
        return drawn / min(SPAN, max(self.t - self._began, 0.1))

    @property
    def kv_usage(self) -> float:
        return float(self._stats.get("kv_usage", 0.0))

    @property
    def group_usages(self) -> tuple[float, float] | None:
        """(of the layers that see all of a text, of those with a window), where there are both."""
        if "windowed_kv_usage" not in self._stats:
            return None
        return float(self._stats["full_kv_usage"]), float(self._stats["windowed_kv_usage"])

    @property
    def hit_rate(self) -> float:
        return float(self._stats.get("hit_rate", 0.0))

    @property
    def lowered_threads(self) -> tuple[int, int] | None:
        """(threads that compute, those wanted) while other programs keep the server's cores busy."""
        if "threads" not in self._stats:
            return None
        return int(self._stats["threads"]), int(self._stats["threads_wanted"])

    def _begin(self, record: Json) -> None:
        self.n: int = record.get("n", 0)
        self.t: float = record.get("t", 0.0)
        self._began = self.t
        self.ttft = 0.0
        self.running: list[str] = record.get("running", [])
        self.num_waiting: int = record.get("num_waiting", 0)
        self._stats: Json = record.get("stats", {})
        self._drawn: deque[tuple[float, int]] = deque(maxlen=4096)
        tables = record.get("tables", {})
        self.requests = {
            each["id"]: Shown(
                each["prompt_tokens"], each["cached"], each["output_tokens"],
                tables.get(each["id"], []), each["text"] or each["words"],
            )
            for each in record.get("requests", ())
        }  # fmt: skip

    def _step(self, record: Json) -> None:
        self.n, self.t = record["n"], record["t"]
        for each in record["new"]:
            self.requests[each["id"]] = Shown(each["prompt_tokens"], says=each["words"])
        drawn = 0
        for row in record["rows"]:
            one = self.requests.setdefault(row["id"], Shown())
            if row["out"] and not one.output:
                one.says = ""  # what was asked makes room for the answer
            one.cached = row["cached"]
            one.output += len(row["out"])
            one.says = (one.says + row["text"])[-240:]
            drawn += len(row["out"])
        for name in record["freed"]:
            if name in self.requests:
                self.requests[name].table = []
        for name, column, block in record["tables"]:
            self.requests[name].table[column : column + 1] = [block]
        for name, _ in record["finished"]:
            self.requests.pop(name, None)
        self.running = [name for name in record["running"] if name in self.requests]
        self.num_waiting = record["num_waiting"]
        self._stats = record["stats"]
        self._drawn.append((self.t, drawn))
        for seconds in record["stats"]["ttft"].values():
            self.ttft = seconds
        now = (self.tokens_per_second, self.ttft, self.kv_usage, self.hit_rate)
        for history, value in zip(
            (self.speeds, self.ttfts, self.usages, self.hits), now, strict=True
        ):
            history.append(value)
            del history[:-KEPT]
