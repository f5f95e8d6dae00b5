"""Reads bodies beside the event loop: parses and validates them in a process of its own, one at a time.

Both hold the GIL: a body of 16 MB would keep the event loop from all other clients for a second. What
comes back is the value that the endpoint takes, which a thread unpickles: that takes a tenth of the
time, and lets others in between. The process is started when the first body comes that is large enough,
and again after it has died.
"""

import asyncio
import atexit
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException

from yaie.core.errors import InvalidRequestError
from yaie.server.body_process import Read, receive, send
from yaie.server.held_bodies import LARGE
from yaie.server.lenient.notes import ask, ignored, put_beside
from yaie.server.wanted import Wanted
from yaie.system.child import signals_held
from yaie.system.gc_tuning import few_collections

SECONDS = 600.0
"""The process ends by itself over a body that takes long (`CPU_SECONDS`); this is for one that stands
still."""
MAIN = "from yaie.server.body_process import main; main(steps_back=%s)"
"""Not `-m`, by which its classes would be those of another module, `__main__`."""


class BodyReader:
    """A process and its pipes. num_read: bodies, num_started: processes."""

    def __init__(self, name: str, *, steps_back: bool) -> None:
        """steps_back: the process has the lowest priority."""
        self.num_read = 0
        self.num_started = 0
        self._main = MAIN % steps_back
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # Of ordinary priority: while it unpickles it has the GIL, and must get to the end.
        self._thread = ThreadPoolExecutor(1, name)

    async def read_beside(self, body: bytes, wanted: Wanted) -> Any:
        """`read` on a thread, in its turn. Raises what that does. What was ignored is noted here."""
        loop = asyncio.get_running_loop()
        told = await loop.run_in_executor(self._thread, self.read, body, wanted)
        for name in told.ignored:
            ignored(name)
        if told.form is not None:
            ask(*told.form)
        for name, value in told.beside.items():
            put_beside(name, value)
        return told.value

    def read(self, body: bytes, wanted: Wanted) -> Read:
        """What came of a body, which has a value. Called on a thread. Raises as FastAPI does of one that
        it reads itself: RequestValidationError, HTTPException, or what a validator raises; and
        InvalidRequestError if the process ends over it or stands still."""
        with self._lock:
            process = self._process or self._start()
            try:
                answer = self._ask(process, body, wanted)
            except (OSError, EOFError):
                self._end(process)
                raise InvalidRequestError(
                    "The body could not be read: that took too much time or memory. Send less in one "
                    "request."
                ) from None
            self.num_read += 1
        del body
        with few_collections():
            told: Read = pickle.loads(answer)
        if told.is_unreadable:  # in FastAPI's words
            raise HTTPException(400, "There was an error parsing the body")
        if told.error is not None:
            raise told.error
        return told

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._end(self._process)

    def _start(self) -> "subprocess.Popen[bytes]":
        # The same modules must be found by the same names, a learner's among them.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with signals_held():
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._main],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
            )
        self.num_started += 1
        atexit.register(self.close)
        return self._process

    def _ask(self, process: "subprocess.Popen[bytes]", body: bytes, wanted: Wanted) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(SECONDS, process.kill)
        too_late.start()
        try:
            send(process.stdin, pickle.dumps(wanted))
            send(process.stdin, body)
            return receive(process.stdout.read)
        finally:
            too_late.cancel()

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        atexit.unregister(self.close)
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.wait()


body_reader = BodyReader("yaie-bodies-read", steps_back=False)
"""Of bodies up to LARGE, which are those of long conversations. One for the whole process: what comes
for other servers in it waits its turn, too."""
large_body_reader = BodyReader("yaie-large-bodies-read", steps_back=True)
"""Of larger ones: the others do not wait for them, nor do those who generate."""


def reader_of(body: bytes) -> BodyReader:
    """Which reads this one."""
    return body_reader if len(body) <= LARGE else large_body_reader
