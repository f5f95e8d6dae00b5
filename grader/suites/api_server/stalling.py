"""Streams of two choices, replies that note what they are given, and time that runs out at once."""

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.kit.api import STOP, FakeRequest, FakeStream, Step, make_request
from solutions.api_server import TextReply
from yaie.core.output import RequestOutput


class Noting(TextReply):
    """The reference's reply. taken: the texts of the outputs that it was given, by choice. thread: where
    its result was made."""

    def __init__(self, requests: Any, *, include_usage: bool = False) -> None:
        super().__init__("m", requests, include_usage=include_usage)
        self.taken: list[str] = []
        self.thread = 0

    def add(self, output: RequestOutput) -> None:
        self.taken.append(f"{output.request_id}: {output.text}")
        super().add(output)

    def chunks(self, output: RequestOutput) -> Iterator[dict[str, Any]]:
        self.taken.append(f"{output.request_id}: {output.text}")
        return super().chunks(output)

    def result(self) -> dict[str, Any]:
        self.thread = threading.get_ident()
        return super().result()


TAKEN = ["r0: a", "r1: ", "r0: ", "r1: b", "r1: "]
"""The outputs of `two_choices`: the first choice ends with the third of them."""


def two_choices(*, usage: bool = False) -> tuple[FakeStream, Noting]:
    """A stream of two choices, some of whose outputs have no text, and its reply."""
    requests = [make_request(f"r{index}", n=2, index=index) for index in range(2)]
    r0, r1 = requests
    script = [r0.says("a"), r1.says(""), r0.says("", STOP), r1.says("b"), r1.says("", STOP)]
    stream = FakeStream(requests, script)
    return stream, Noting(stream.requests, include_usage=usage)


class SlowStream(FakeStream):
    """A stream that needs some turns for each output, and to be closed."""

    TURNS = 40

    def __init__(self, requests: Sequence[FakeRequest], script: Sequence[Step]) -> None:
        super().__init__(requests, script)
        self.is_closing = False

    async def __anext__(self) -> RequestOutput:
        for _ in range(self.TURNS):
            await asyncio.sleep(0)
        return await super().__anext__()

    async def aclose(self) -> None:
        self.is_closing = True
        for _ in range(self.TURNS):
            await asyncio.sleep(0)
        await super().aclose()


def slow(*texts: str) -> tuple[SlowStream, Noting]:
    """A slow stream of one choice, which ends with the last text, and its reply."""
    request = make_request()
    *before, last = texts
    stream = SlowStream([request], [*map(request.says, before), request.says(last, STOP)])
    return stream, Noting(stream.requests)


def let_time_run_out(part: ModuleType) -> list[float]:
    """From now on the timers that the part's files set on the running loop go off at once: as if each
    wait took longer. Returns their delays, in seconds."""
    loop: Any = asyncio.get_running_loop()
    files, set_before, delays = str(Path(str(part.__file__)).parent), loop.call_at, []

    def call_at(when: float, *arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(files):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            delays.append(when - loop.time())
            when = loop.time()
        return set_before(when, *arguments, **options)

    loop.call_at = call_at
    return delays
