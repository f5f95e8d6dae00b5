"""`yaie top`: what an engine behind a server does, live in the terminal, by the records of its steps."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from queue import Empty, Queue
from threading import Thread
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from yaie.cli.console import err, out, say
from yaie.cli.top_state import Seen
from yaie.core.errors import YaieError
from yaie.system.interrupt import Interruptible
from yaie.system.terminal import printable

BARS = " ▁▂▃▄▅▆▇█"
MOST_ROWS = 20
DRAWS = 8
"""A second, at most."""
CONNECT_SECONDS = 10.0
_END = object()
NOT_OURS = (
    "not what `yaie serve` of this version sends; name the address that it shows at its start"
)


def top(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="The server, as `yaie serve` names it.")
    ] = "http://127.0.0.1:8000",
    api_key: Annotated[
        str | None, typer.Option(envvar="YAIE_API_KEY", help="A key of the server's, if it asks.")
    ] = None,
) -> None:
    """Show what an engine does: speed, pool, queue, and each request, until Ctrl-C."""
    with Interruptible():
        seen = Seen()
        records = _records(_connect(url.rstrip("/").removesuffix("/v1"), api_key))
        if out.is_terminal:
            with Live(console=out, auto_refresh=False, screen=True) as live:
                _follow(seen, records, lambda: live.update(screen(seen, out.width), refresh=True))
        else:
            say("time  tokens/s  running  waiting  KV  hit rate")
            _follow(seen, records, lambda: say(line(seen)), every=1.0)
    err.print("The server has ended the stream.")


def _follow(
    seen: Seen, records: Iterator[Any], draw: Callable[[], object], every: float = 1 / DRAWS
) -> None:
    drawn = 0.0
    for record in records:
        if record is not None:
            try:
                seen.take(record)
            except (KeyError, TypeError, AttributeError, ValueError):
                raise YaieError(f"a record is {NOT_OURS}") from None
        if seen.has_begun and (now := time.monotonic()) - drawn >= every:
            drawn = now
            draw()


def _connect(url: str, api_key: str | None) -> HTTPResponse:
    """The stream of records. Raises YaieError."""
    headers = {"Accept": "text/event-stream"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    try:
        request = urllib.request.Request(f"{url}/watch/events", headers=headers)
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=CONNECT_SECONDS)
    except urllib.error.HTTPError as error:
        raise YaieError(_refusal(url, error)) from None
    except HTTPException:  # whatever answers there, HTTP it is not
        raise YaieError(f"what answers at {url} is {NOT_OURS}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise YaieError(f"no server answers at {url}: {why}. Start one: yaie serve") from None
    return answer


def _records(answer: HTTPResponse) -> Iterator[Any]:
    """Each record, and None where for a moment nothing comes. Raises YaieError for what is no record."""
    found: Queue[Any] = Queue()

    def read() -> None:
        try:
            for data in answer:
                if data.startswith(b"data: "):
                    found.put(json.loads(data[6:]))
        except ValueError:
            found.put(None)  # no record
        except (OSError, HTTPException):  # the server is gone
            pass
        found.put(_END)

    if answer.fp is not None:
        answer.fp.raw._sock.settimeout(None)  # type: ignore[attr-defined]
    Thread(target=read, daemon=True).start()
    while True:
        try:
            record = found.get(timeout=1 / DRAWS)
        except Empty:
            yield None
            continue
        if record is _END:
            return
        if not isinstance(record, dict):
            raise YaieError(f"what is sent here is {NOT_OURS}")
        yield record


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    if error.code == 401:
        return f"{url} asks for a key: --api-key KEY, or YAIE_API_KEY"
    if error.code == 403:
        return f"{url} does not show its steps: {_told(error)}"
    if error.code == 404:
        return f"{url} does not show its steps: it runs with --no-web, or is not `yaie serve`"
    if error.code == 503:
        return f"{url} is loading, or busy; try again in a moment"
    return f"{url} answers {error.code} {error.reason}"


def _told(error: urllib.error.HTTPError) -> str:
    """The server's own words."""
    try:
        return str(json.loads(error.read(1 << 16))["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


def line(seen: Seen) -> str:
    """All of it in one line."""
    return (
        f"{seen.t:6.1f} s {seen.tokens_per_second:8.0f} {len(seen.running):8d} {seen.num_waiting:8d} "
        f"{seen.kv_usage:6.1%} {seen.hit_rate:6.1%}"
    )


def screen(seen: Seen, width: int) -> Group:
    """All of it as figures and tables. Names and texts are a client's: they are only text here."""
    head = Text.assemble(
        ("YAIE ", "bold"),
        f"{_one_line(seen.header.get('model', ''))}  step {seen.n}",
        ("  " + seen.whose, "dim"),
    )
    figures = Table.grid(expand=True)
    for _ in range(4):
        figures.add_column()
    figures.add_row(
        _figure("tokens/s", f"{seen.tokens_per_second:,.0f}", seen.speeds, width // 4),
        _figure("first token", f"{1000 * seen.ttft:.0f} ms", seen.ttfts, width // 4),
        _figure(*_in_use(seen), seen.usages, width // 4, most=1.0),
        _figure("hit rate", f"{seen.hit_rate:.1%}", seen.hits, width // 4, most=1.0),
    )
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
    for name in ("request", "prompt", "cached", "drawn", "blocks"):
        table.add_column(name, justify="left" if name == "request" else "right", no_wrap=True)
    table.add_column("says", ratio=1, no_wrap=True, overflow="ellipsis")
    for each in seen.running[:MOST_ROWS]:
        one = seen.requests[each]
        numbers = (one.prompt, one.cached, one.output, len(one.table))
        table.add_row(Text(_one_line(each)), *map(str, numbers), Text(_one_line(one.says)))
    more = len(seen.running) - MOST_ROWS
    waits = f"{seen.num_waiting} wait" + (f", {more} more run" if more > 0 else "")
    if (threads := seen.lowered_threads) is not None:
        waits += f"; {threads[0]} of {threads[1]} threads, as other programs keep the cores busy"
    return Group(head, Text(), figures, Text(), table, Text(waits, "dim"))


def _in_use(seen: Seen) -> tuple[str, str]:
    """What the figure of the KV pool is called, and how full that is."""
    if seen.group_usages is None:
        return "KV in use", f"{seen.kv_usage:.1%}"
    full, windowed = seen.group_usages
    return "KV full, windows", f"{full:.1%}, {windowed:.1%}"


def _one_line(text: str) -> str:
    return " ".join(printable(text).split("\n"))


def _figure(
    name: str, value: str, history: list[float], width: int, most: float | None = None
) -> Text:
    kept = history[-max(4, min(24, width - 4)) :]
    highest = most or max(kept, default=0) or 1
    bars = "".join(BARS[min(8, round(8 * value / highest))] for value in kept)
    return Text.assemble((f"{name}\n", "dim"), (f"{value}\n", "bold"), (bars, "blue"))
