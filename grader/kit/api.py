"""A model service without an engine, a connection without a network: the bench on which HTTP is tested.

Whatever happens on it is noted, so that a failure reads as what the stream gave and what was sent. No
wait on it is long: `waiting.py` gives up and says what was awaited. Not imported by
`grader.kit`: only the suites and tests of the API server need it.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from grader.kit.expect import Mismatch
from grader.kit.script import note, show
from grader.kit.waiting import run, within
from solutions import api_server as reference
from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput, Submitted
from yaie.core.params import SamplingParams
from yaie.core.request import FailureKind, FinishReason

STOP, LENGTH, ERROR = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR

Step = RequestOutput | Exception | None


@dataclass(slots=True, eq=False)
class FakeRequest:
    """A request as callers see it: what was submitted, and the outputs that it makes one by one.

    cached: tokens of the prompt from the prefix cache, as every output tells. stop_reason: what the
    last output tells. made: output tokens so far.
    """

    submitted: Submitted
    cached: int = 0
    stop_reason: str | int | None = None
    made: int = 0

    def says(
        self, text: str, reason: FinishReason | None = None, *, tokens: int = 1
    ) -> RequestOutput:
        """The next output, which is its last one if it has a reason."""
        self.made += tokens
        output = RequestOutput(self.submitted.request_id, text, [1] * tokens, reason)
        output.stop_reason = None if reason is None else self.stop_reason
        output.num_prompt_tokens = self.submitted.num_prompt_tokens
        output.num_output_tokens, output.num_cached_tokens = self.made, self.cached
        return output

    def fails(self, error: str) -> RequestOutput:
        """The last output of a request that failed in the engine."""
        output = self.says("", ERROR, tokens=0)
        output.error, output.failure = error, FailureKind.CORRUPTED
        return output


def make_request(
    name: str = "r0", *, prompt: int = 4, index: int = 0, **fields: Any
) -> FakeRequest:
    """A request with a prompt of so many tokens. index: of its choice among `n`. fields: of FakeRequest
    and of its SamplingParams."""
    own = {key: fields.pop(key) for key in ("cached", "stop_reason") if key in fields}
    params = SamplingParams(**fields)
    return FakeRequest(Submitted(name, list(range(prompt)), params, index), **own)


def tell(output: RequestOutput) -> str:
    """An output in words."""
    tokens = "" if len(output.token_ids) == 1 else f" ({len(output.token_ids)} tokens)"
    end = f", finished: {output.finish_reason.value}" if output.finish_reason else ""
    return f"output of {output.request_id}: {show(output.text)}{tokens}{end}"


class FakeStream:
    """Yields outputs as they are scripted; an exception in the script is raised, None waits for ever.

    closed: how often it was. Closed, it yields nothing more, as a real one.
    """

    def __init__(self, requests: Sequence[FakeRequest], script: Sequence[Step]) -> None:
        self.requests = [request.submitted for request in requests]
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
        request.says(step, STOP if step.endswith(".") else None) if isinstance(step, str) else step
        for step in script
    ]
    stream = FakeStream([request], steps)
    return stream, reference.TextReply("m", stream.requests, include_usage=usage)


class FakeService:
    """Answers each prompt in `pieces` of text. `fault`, if set, is raised by a submission, and
    `extend_fault` by `extend`.

    hangs: after its first pieces a stream waits for ever. calls: what it was asked, in order;
    prompt_options: the options of those that encoded a conversation. extended: replies and bodies that
    it was to extend. streams: those that it handed out.
    """

    def __init__(self, pieces: Sequence[str] = ("Hel", "lo")) -> None:
        self.model_name = "org/model"
        self.max_model_len = 128
        self.sampling_defaults: dict[str, Any] = {}
        self.pieces = pieces
        self.fault: Exception | None = None
        self.extend_fault: Exception | None = None
        self.hangs = False
        self.calls: list[Any] = []
        self.prompt_options: list[PromptOptions | None] = []
        self.extended: list[Any] = []
        self.streams: list[FakeStream] = []

    async def encode_chat(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: PromptOptions | None = None,
    ) -> list[int]:
        note(f"service.encode_chat({show(messages)}, {show(tools)}, {show(options)})")
        self.calls.append(("encode_chat", messages, tools))
        self.prompt_options.append(options)
        if messages[0]["role"] == "robot":
            raise InvalidRequestError("no such role", param="messages[0].role")
        return [7] * 5

    async def submit_all(
        self, prompts: Sequence[str | list[int]], params: SamplingParams, *, priority: int = 0
    ) -> FakeStream:
        note(f"service.submit_all({show(prompts)}, n={params.n}, priority={show(priority)})")
        # Any sequence will do: which kind it is tells nothing of what is asked.
        self.calls.append(("submit_all", list(prompts), params, priority))
        if self.fault is not None:
            raise self.fault
        requests = [
            FakeRequest(Submitted(f"{number}.{choice}", [7] * len(prompt), params, choice))
            for number, prompt in enumerate(prompts)
            for choice in range(params.n)
        ]
        script: list[Step] = []
        for position, text in enumerate(self.pieces):
            is_last = position == len(self.pieces) - 1 and not self.hangs
            script += [request.says(text, STOP if is_last else None) for request in requests]
        stream = FakeStream(requests, [*script, None] if self.hangs else script)
        self.streams.append(stream)
        return stream

    def extend(self, reply: Any, body: Any) -> Any:
        note("service.extend(reply, body)")
        self.extended.append((reply, body))
        if self.extend_fault is not None:
            note(f"# it raises {show(self.extend_fault)}")
            raise self.extend_fault
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


HEAD = ("id", "object", "created", "model")
"""What all chunks of an answer have alike."""
MOST_TOLD = 400
"""Characters of a body."""


def in_short(key: str, value: Any) -> str:
    """A field of a message. Of a body in JSON, or of events, what distinguishes it from others: id, time
    and model fill the line otherwise."""
    if key != "body" or not isinstance(value, bytes):
        return show(value)
    events = value.split(b"\n\n")
    shorter = b"\n\n".join(_without_head(event) for event in events)
    text = repr(shorter)
    return text if len(text) <= MOST_TOLD else f"{text[: MOST_TOLD - 4]} ..."


def _without_head(event: bytes) -> bytes:
    text = event.removeprefix(b"data: ")
    try:
        data = json.loads(text)
        rest = {key: value for key, value in data.items() if key not in HEAD}
    except (ValueError, AttributeError):
        return event
    if len(rest) == len(data) or not rest:
        return event
    return event[: len(event) - len(text)] + b"{..., " + json.dumps(rest).encode()[1:]


class Wire:
    """An ASGI connection: `send` keeps messages; `receive` gives the body, then waits until the client
    leaves. waiting: how many wait for that now."""

    def __init__(self, body: bytes = b"") -> None:
        self.messages: list[dict[str, Any]] = []
        self.leave = asyncio.Event()
        self.waiting = 0
        self._unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def send(self, message: Any) -> None:
        told = "".join(
            f", {key}={in_short(key, value)}" for key, value in message.items() if key in TOLD
        )
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
