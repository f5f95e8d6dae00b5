"""The process that reads bodies for the server, over its pipes.

The server (`body_reader.py`) sends a `Wanted` and a body, over and over, and gets a `Read` each time.
"""

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json

from yaie.core.constraint import Constraint
from yaie.core.errors import YaieError
from yaie.server.lenient.notes import noting
from yaie.server.lenient.validated import validated
from yaie.server.wanted import Wanted
from yaie.server.work import check_work
from yaie.system.child import leave_signals_to_parent
from yaie.system.gc_tuning import few_collections, give_back_memory
from yaie.system.thread_niceness import step_back

CPU_SECONDS = 30.0
"""A body that takes longer is given up. The worst that are known take one."""
LENGTH_BYTES = 8
SMALL = 1 << 12
"""Bytes of a body that Python's parser reads as fast."""
GIVE_BACK = 1 << 20
"""Bytes of a body after which the memory that it took is returned to the system."""


@dataclass(frozen=True, slots=True)
class Read:
    """What came of a body: a value of the type, or what is to be raised. ignored, form, beside: see
    `Notes`."""

    value: Any = None
    error: Exception | None = None
    is_unreadable: bool = False
    ignored: tuple[str, ...] = ()
    form: tuple[str, Constraint] | None = None
    beside: dict[str, Any] = field(default_factory=dict)


def read(body: bytes, wanted: Wanted) -> Read:
    """Parse and validate a body, with the same outcome as FastAPI's. Of several complaints the first is
    kept, the only one that clients are told."""
    with noting(is_strict=wanted.is_strict) as notes:
        try:
            value = as_wanted(parsed(body), wanted)
            make_ready = getattr(value, "make_ready", None)
            if wanted.api is not None and make_ready is not None:
                make_ready(import_module(wanted.api))
            return Read(value, ignored=tuple(notes.ignored), form=notes.form, beside=notes.beside)
        except json.JSONDecodeError as error:
            what, where = {"error": error.msg}, ("body", error.pos)
            fault = {"type": "json_invalid", "loc": where, "msg": "JSON decode error", "ctx": what}
            return Read(error=RequestValidationError([{**fault, "input": {}}]))
        except (RequestValidationError, YaieError) as error:
            return Read(error=error)
        except (ValueError, RecursionError, MemoryError):
            return Read(is_unreadable=True)


def as_wanted(found: Any, wanted: Wanted) -> Any:
    """The value of a parsed body. Raises RequestValidationError with the first complaint alone, or
    YaieError."""
    check_work(found)
    try:
        return validated(found, wanted.kind, wanted.dialect)
    except RequestValidationError as error:
        first = error.errors()[0]
        raise RequestValidationError([_told(first, first["loc"])]) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RequestValidationError([_told(first, ("body", *first["loc"]))]) from None


def parsed(body: bytes) -> Any:
    """The value of a body. Raises ValueError or RecursionError.

    Pydantic's parser takes half as long as Python's or less, and gives the same values for what both
    take; what it refuses goes to Python's, which takes it or says why not."""
    if len(body) > SMALL:
        with suppress(ValueError):
            return from_json(body, cache_strings=False)
    return json.loads(body)


def _told(fault: Any, where: tuple[Any, ...]) -> dict[str, Any]:
    """A complaint without the input, which may be all of the body."""
    context = {name: str(value) if isinstance(value, Exception) else value
               for name, value in fault.get("ctx", {}).items()}  # fmt: skip
    told = {"type": fault["type"], "loc": where, "msg": fault["msg"], "input": None}
    return {**told, "ctx": context} if context else told


def send(pipe: IO[bytes], *parts: bytes) -> None:
    """One message, which may be in parts."""
    pipe.write(sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big"))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def receive(read_bytes: Callable[[int], bytes]) -> bytes:
    """One message. read_bytes: so many bytes, fewer only at the end. Raises EOFError there."""
    head = read_bytes(LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    message = read_bytes(length) if len(head) == LENGTH_BYTES else b""
    if len(head) < LENGTH_BYTES or len(message) < length:
        raise EOFError
    return message


def _end_after(seconds: float) -> None:
    """Have the kernel end this process once it has computed for so long; 0: never."""
    if hasattr(signal, "ITIMER_PROF"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main(*, steps_back: bool) -> None:
    """Read bodies until the server is gone. steps_back: let all others have the cores first."""
    leave_signals_to_parent()
    if steps_back:
        step_back()
    # What a module prints must not come between the messages.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions = sys.stdin.buffer
    with suppress(EOFError, BrokenPipeError), few_collections():
        while True:
            wanted: Wanted = pickle.loads(receive(questions.read))
            body = receive(questions.read)
            size = len(body)
            _end_after(CPU_SECONDS)
            answer = pickle.dumps(read(body, wanted), pickle.HIGHEST_PROTOCOL)
            _end_after(0)
            send(answers, answer)
            del body, answer
            if size > GIVE_BACK:
                give_back_memory()
