"""A backend without an engine, and a connection without a network: the bench on which HTTP is tested.

Whatever happens on it is noted, so that a failure reads as what the stream gave and what was sent. No
wait on it is long: `waiting.py` gives up and says what was awaited. Not imported by
`grader.kit`: only the suites and tests of the API server need it.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from grader.kit.expect import Mismatch
from grader.kit.script import note, show
from grader.kit.waiting import run, within
from solutions import api_server as reference
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestOutput, RequestStatus

STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR

Step = RequestOutput | Exception | None


def make_request(
    name: str = "r0", *, prompt: int = 4, output: int = 0, cached: int = 0, **params: Any
) -> Request:
    """A request that has so many prompt, output and cached tokens."""
    request = Request(name, list(range(prompt)), SamplingParams(**params))
    request.token_ids += range(output)
    request.num_cached_tokens = cached
    return request


def piece(request: Request, text: str, reason: FinishReason | None = None) -> RequestOutput:
    """An output of one token, which ends the request if it has a reason."""
    request.token_ids.append(1)
    if reason is not None:
        request.finish_reason, request.status = reason, RequestStatus.FINISHED
    return RequestOutput(request, text, [1], reason)


def tell(output: RequestOutput) -> str:
    """An output in words."""
    end = f", finished: {output.finish_reason.value}" if output.finish_reason else ""
    return f"output of {output.request.request_id}: {show(output.text)}{end}"


class FakeStream:
    """Yields outputs as they are scripted; an exception in the script is raised, None waits for ever.

    closed: how often it was. Closed, it yields nothing more, as a real one.
    """

    def __init__(self, requests: list[Request], script: Sequence[Step]) -> None:
        self.requests = requests
        self.submitted_at = time.perf_counter()
        self.first_output_at: float | None = None
        self.closed = 0
        self._script = iter(script)

    def __aiter__(self) -> "FakeStream":
        return self

    async def __anext__(self) -> RequestOutput:
        await asyncio.sleep(0)
        step = StopAsyncIteration() if self.closed else next(self._script, StopAsyncIteration())
        if step is None:
            note("# the stream waits: no output is ready")
            await asyncio.Event().wait()
        if isinstance(step, RequestOutput):
            note(f"# the stream gives the {tell(step)}")
            self.first_output_at = self.first_output_at or time.perf_counter()
            return step
        assert isinstance(step, Exception)
        if not isinstance(step, StopAsyncIteration):
            note(f"# the stream raises {show(step)}")
        raise step

    async def aclose(self) -> None:
        note("stream.aclose()")
        self.closed += 1


def scripted(
    *script: str | Exception | None, usage: bool = False
) -> "tuple[FakeStream, reference.TextReply]":
    """A stream of one request and its reply. A text that ends with "." is the last."""
    request = make_request()
    steps: list[Step] = [
        piece(request, step, STOP if step.endswith(".") else None)
        if isinstance(step, str)
        else step
        for step in script
    ]
    stream = FakeStream([request], steps)
    return stream, reference.TextReply("m", [request], include_usage=usage)


class FakeBackend:
    """Answers each prompt in `pieces` of text; `fault` is raised by a submission if it is set.

    hangs: after its first pieces a stream waits for ever. calls: what it was asked, in order. extended:
    replies and bodies that it was to extend. streams: those that it handed out.
    """

    def __init__(self, pieces: Sequence[str] = ("Hel", "lo")) -> None:
        self.model_name = "org/model"
        self.max_model_len = 128
        self.sampling_defaults: dict[str, Any] = {}
        self.pieces = pieces
        self.fault: Exception | None = None
        self.hangs = False
        self.calls: list[Any] = []
        self.extended: list[Any] = []
        self.streams: list[FakeStream] = []

    async def encode_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        note(f"backend.encode_chat({show(messages)}, {show(tools)})")
        self.calls.append(("encode_chat", messages, tools))
        if messages[0]["role"] == "robot":
            raise InvalidRequestError("no such role", param="messages[0].role")
        return [7] * 5

    async def submit_all(
        self, prompts: Sequence[str | list[int]], params: SamplingParams, *, priority: int = 0
    ) -> FakeStream:
        note(f"backend.submit_all({show(prompts)}, n={params.n}, priority={show(priority)})")
        self.calls.append(("submit_all", prompts, params, priority))
        if self.fault is not None:
            raise self.fault
        requests = [
            Request(f"{number}.{choice}", list(range(len(prompt))), params)
            for number, prompt in enumerate(prompts)
            for choice in range(params.n)
        ]
        script: list[Step] = []
        for position, text in enumerate(self.pieces):
            is_last = position == len(self.pieces) - 1 and not self.hangs
            script += [piece(request, text, STOP if is_last else None) for request in requests]
        stream = FakeStream(requests, [*script, None] if self.hangs else script)
        self.streams.append(stream)
        return stream

    def extend(self, reply: Any, body: Any) -> Any:
        note("backend.extend(reply, body)")
        self.extended.append((reply, body))
        return Extended(reply)


class Extended:
    """A reply that adds "extended": True to what another one says."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reply, name)

    def result(self) -> dict[str, Any]:
        return {**self._reply.result(), "extended": True}

    def chunks(self, output: RequestOutput) -> Iterator[dict[str, Any]]:
        for chunk in self._reply.chunks(output):
            yield {**chunk, "extended": True}


class Wire:
    """An ASGI connection: `send` keeps messages; `receive` gives the body, then waits until the client
    leaves. waiting: how many wait for that now."""

    def __init__(self, body: bytes = b"") -> None:
        self.messages: list[dict[str, Any]] = []
        self.leave = asyncio.Event()
        self.waiting = 0
        self._unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def send(self, message: Any) -> None:
        told = "".join(f", {key}={show(value)}" for key, value in message.items() if key in TOLD)
        note(f'send("{message["type"]}"{told})')
        self.messages.append(dict(message))
        await asyncio.sleep(0)

    async def receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop()
        self.waiting += 1
        try:
            await self.leave.wait()
        finally:
            self.waiting -= 1
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        """The client leaves."""
        note("# the client leaves")
        self.leave.set()

    @property
    def status(self) -> int:
        """Of the response; 0 as long as there is none."""
        return next((message["status"] for message in self.messages if "status" in message), 0)

    @property
    def headers(self) -> dict[str, str]:
        """Of the response, by lower-case name."""
        starts = [message for message in self.messages if "status" in message]
        pairs: list[tuple[bytes, bytes]] = starts[0]["headers"] if starts else []
        return {name.decode().lower(): value.decode() for name, value in pairs}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    def json(self) -> Any:
        """Raises Mismatch unless the body is JSON, without NaN and infinity."""
        try:
            return json.loads(self.body, parse_constant=_refuse)
        except ValueError as error:
            problem = f"the body of the response (status {self.status}) is not JSON"
            raise Mismatch(problem, "JSON", f"{show(self.body)}: {error}") from None


TOLD = ("status", "body", "more_body")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


async def call(app: Any, wire: Wire, method: str, path: str) -> None:
    """Have an ASGI app answer a request on this wire."""
    note(f"{method} {path}")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    await app(scope, wire.receive, wire.send)


def ask(app: Any, method: str, path: str, body: Any = None) -> Wire:
    """What an app answers, on its wire. An exception that gets out of the app is raised."""
    note(f"# a request with the body {show(body)}")
    wire = Wire(b"" if body is None else json.dumps(body).encode())
    run(within(call(app, wire, method, path), f"the answer to {method} {path}"))
    return wire


@contextmanager
def borrowed(module: ModuleType, *names: str) -> Iterator[None]:
    """While the block runs, these names of a module of the part mean the reference's objects.

    For what the module imports from other tasks: a mistake there is graded there.
    """
    mine = {name: getattr(module, name) for name in names if hasattr(module, name)}
    for name in mine:
        setattr(module, name, getattr(reference, name))
    try:
        yield
    finally:
        for name, value in mine.items():
            setattr(module, name, value)
