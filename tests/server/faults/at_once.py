"""All hostile requests at once beside a normal stream: python -m tests.server.faults.at_once URL

Asks a running `yaie serve` of the tutor, and prints the stream's longest gap, the slowest `/health` and
what each kind of request was answered.
"""

import gc
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import httpx

from tests.server.faults.clients import PATH, ask, connect, head
from tests.server.faults.worst_bodies import PATHS, worst
from yaie.server.held_bodies import LARGE as LARGE_BODY
from yaie.server.settings import ServerSettings
from yaie.system.thread_niceness import step_back

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "What is a block table?"}]
LARGE = "The scheduler admits a request when blocks are free. " * (14 * 2**20 // 53)
STREAM = {"messages": HELLO, "max_tokens": 600, "ignore_eos": True, "temperature": 0}
Hostile = Callable[[str], Any]


@dataclass
class Seen:
    """What the normal client saw: text, and seconds between chunks; seconds of each `/health`."""

    text: str = ""
    gaps: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)


def posting(path: str, body: dict[str, Any]) -> Hostile:
    # Encoded ahead, or it would hold up the client that is watched; by Python's json, which lets lone
    # surrogates pass.
    content = json.dumps(body).encode()
    kind = {"Content-Type": "application/json"}
    # Made ahead, too: certificates are read for each client, 20 ms of the cores that the server needs.
    client = httpx.Client(verify=False, headers=kind, timeout=120)

    def post(url: str) -> int:
        with client:
            return client.post(url + path, content=content).status_code

    return post


def leaving(body: dict[str, Any]) -> Hostile:
    """Ask for a long answer and go."""

    def leave(url: str) -> str:
        connection = ask(url, {**body, "stream": True})
        time.sleep(random.random())
        connection.close()
        return "left"

    return leave


def raw(text: bytes, wait: float = 2.0) -> Hostile:
    """Bytes on a bare connection; the first word of the answer's status, if any comes."""

    def send(url: str) -> str:
        connection = connect(url)
        connection.settimeout(wait)
        answer = b""
        with suppress(OSError):
            connection.sendall(text)
            answer = connection.recv(1000)
        connection.close()
        return answer.split(b" ", 2)[1].decode() if answer.startswith(b"HTTP/") else "no answer"

    return send


def deaf(url: str) -> str:
    """Ask for much and read nothing for a while."""
    connection = ask(
        url,
        {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 8},
        receive_buffer=4096,
    )
    time.sleep(3)
    connection.close()
    return "left"


def hostile() -> Iterator[tuple[str, Hostile]]:
    """(name, request): one of each kind of the fault table and of oversized work."""
    yield "14 MB prompt", posting(PATH, {"prompt": LARGE, "max_tokens": 1})
    yield "14 MB message", posting(CHAT, {"messages": [{"role": "user", "content": LARGE}]})
    yield (
        "14 MB truncated",
        posting(PATH, {"prompt": LARGE, "max_tokens": 1, "truncate_prompt_tokens": 20}),
    )
    yield "14 MB tokenize", posting("/tokenize", {"prompt": LARGE})
    many = {"n": 128, "max_tokens": 400, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    yield "n=128 x 400 x 20", posting(CHAT, {"messages": HELLO, **many})
    ids = [[7 + (k + i) % 90 for i in range(1900)] for k in range(64)]
    yield (
        "64 echoed prompts",
        posting(PATH, {"prompt": ids, "echo": True, "logprobs": 4, "max_tokens": 1}),
    )
    yield "numbers", posting(PATH, {"prompt": list(range(1_500_000)), "max_tokens": 1})
    deep = "[" * 10_000 + "]" * 10_000
    body = b'{"prompt": "x", "logit_bias": %s}' % deep.encode()
    yield "deep JSON", raw(head(len(body)) + body)
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    for name, schema in (
        ("circular schema", circle),
        ("wide schema", {"type": "array", "minItems": 10**6}),
    ):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        yield name, posting(CHAT, {"messages": HELLO, "response_format": form, "max_tokens": 50})
    yield (
        "wide pattern",
        posting(
            PATH, {"prompt": "x", "structured_outputs": {"regex": "(a?){5000}b"}, "max_tokens": 5}
        ),
    )
    yield "leaves", leaving({"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "n": 4})
    yield "reads nothing", deaf
    yield "half a body", raw(head(1000) + b'{"prompt":')
    yield "100 MB announced", raw(head(100 * 2**20))
    yield "no HTTP", raw(b"\x16\x03\x01\x02\x00" * 100)
    yield (
        "300 headers",
        raw(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
            + b"".join(b"A%d: b\r\n" % i for i in range(300))
            + b"\r\n"
        ),
    )
    yield "long head", raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
    for field_name, value in (
        ("temperature", "hot"),
        ("n", 2**70),
        ("max_tokens", -1),
        ("stop", [[]]),
        ("prompt", "\ud800"),
    ):
        yield "wrong fields", posting(PATH, {"prompt": "x", field_name: value})
    yield "bursts", burst


def work() -> Iterator[tuple[str, Hostile]]:
    """(name, request): the worst that can be asked of each field of each route, in bodies that are read
    at once, and of each route one of the largest."""
    for name, path, body in worst(LARGE_BODY):
        yield f"{path} {name}", raw(head(len(body), path) + body, wait=120)
    known = set()
    for name, path, body in worst(ServerSettings().max_body_bytes):
        if path not in known:
            known.add(path)
            yield f"{path} 16 MB of {name}", raw(head(len(body), path) + body, wait=120)
        if len(known) == len(PATHS):
            break


def burst(url: str) -> str:
    """Forty connections that say nothing."""
    connections: list[socket.socket] = [connect(url) for _ in range(40)]
    time.sleep(2)
    for connection in connections:
        connection.close()
    return "left"


def listen(url: str, seen: Seen) -> None:
    """The normal client: one greedy stream to its end."""
    with httpx.stream("POST", url + CHAT, json={**STREAM, "stream": True}, timeout=120) as lines:
        before = None
        for line in lines.iter_lines():
            if not line.startswith("data: {"):
                continue
            now = time.perf_counter()
            if before is not None:
                seen.gaps.append(now - before)
            before = now
            delta = json.loads(line[6:])["choices"][0]["delta"]
            seen.text += delta.get("content") or ""


_is_over: Any = threading.Event()


def _remember(is_over: Any) -> None:
    global _is_over
    _is_over = is_over


def _ready() -> None:
    """Answered once the process runs and has imported this module. Its own garbage collector would look
    through all that for a fifth of a second, and the stream and `/health` would seem to wait for it."""
    gc.disable()


def watched(url: str) -> Seen:
    """The stream, and `/health` until all is over. In a process of its own, or it would wait for the
    hostile clients."""
    seen = Seen()

    def look() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while not _is_over.is_set():
                begin = time.perf_counter()
                assert http.get("/health").status_code == 200
                seen.health.append(time.perf_counter() - begin)
                time.sleep(0.05)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        listen(url, seen)
        looking.result(300)
    return seen


def attack(url: str, hostile: Callable[[], Iterator[tuple[str, Hostile]]] = hostile) -> Seen:
    """The stream with all hostile requests beside it."""
    spawn = get_context("spawn")
    is_over = spawn.Event()
    kinds = list(hostile())
    with (
        ProcessPoolExecutor(1, spawn, _remember, (is_over,)) as process,
        # As if they had machines of their own, the hostile take what the server leaves of the cores.
        ThreadPoolExecutor(len(kinds), initializer=step_back) as pool,
    ):
        process.submit(_ready).result(60)
        watching = process.submit(watched, url)
        time.sleep(0.5)  # the stream runs
        try:
            asked = [(name, pool.submit(request, url)) for name, request in kinds]
            answers = Counter(f"{name}: {answer.result(300)}" for name, answer in asked)
        finally:
            is_over.set()  # or the process would look for ever
        seen = watching.result(300)
    seen.answers = answers
    return seen


def alone(url: str) -> Seen:
    """The stream and nothing else."""
    seen = Seen()
    listen(url, seen)
    return seen


def main() -> None:
    url = sys.argv[1]
    attacks = ("all at once", attack(url)), ("the worst bodies", attack(url, work))
    for name, seen in (("alone", alone(url)), *attacks):
        gaps = sorted(seen.gaps)
        print(
            f"{name}: {len(gaps)} gaps, median {gaps[len(gaps) // 2] * 1e3:.1f} ms, longest "
            f"{[round(gap * 1e3) for gap in gaps[-5:]]} ms; /health "
            f"{max(seen.health, default=0) * 1e3:.0f} ms at most"
        )
        for answer, count in sorted(seen.answers.items()):
            print(f"    {answer} x{count}")


if __name__ == "__main__":
    main()
