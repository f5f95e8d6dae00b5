"""What the programs beside this file share. Each runs in an environment with its client alone.

A program is a list of cases: functions marked `@case` that take the servers. Run as a script, it
prints one JSON object a line: the versions of what it judges with, then each case's name and its
traceback, or null. `tests/judges/test_clients.py` starts the servers and reads the lines.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LATE = "The sentence is cut."
POISON = "poison"
KEY = "secret"


@dataclass
class Servers:
    """Base URLs (that end with /v1) of servers in several states.

    `judged` is the engine on a tiny random model of `limit` tokens, served as "judged". The others run
    a fake, served as "fake": `locked` wants KEY, `full` answers 503, `failing` answers what it is asked
    backwards, but POISON with an error at once, and LATE with one in the middle of the stream.
    """

    judged: str
    locked: str
    full: str
    failing: str
    limit: int


class Answer(BaseModel):
    """A colour, judged."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "grün", "青"]
    is_warm: bool
    share: int = Field(ge=0, le=100)
    parts: list[Literal["a", "b"]] = Field(max_length=3)


class Weather(BaseModel):
    """The weather of a city."""

    model_config = ConfigDict(extra="forbid")

    city: Literal["Paris", "東京"]
    days: int = Field(ge=1, le=9)


CASES: list[Callable[[Servers], Any]] = []


def case(function: Callable[[Servers], Any]) -> Callable[[Servers], Any]:
    """A test, to be run in the order of the file. May be a coroutine function."""
    CASES.append(function)
    return function


@dataclass
class Raised:
    """The exception that a `raises` block ended with."""

    error: Any = None


@contextmanager
def raises(kind: type[BaseException]) -> Iterator[Raised]:
    """The block must end with this exception or a subclass of it."""
    raised = Raised()
    try:
        yield raised
    except kind as error:
        raised.error = error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def run(*packages: str) -> None:
    """Run the cases, and say how each ended. Clients keep connections, so all share an event loop."""
    servers = Servers(**json.loads(os.environ["YAIE_JUDGED"]))
    say({"versions": {package: version(package) for package in packages}})
    wanted = sys.argv[1:]
    loop = asyncio.new_event_loop()
    for function in CASES:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            if inspect.iscoroutinefunction(function):
                loop.run_until_complete(function(servers))
            else:
                function(servers)
            failure = None
        except Exception:  # noqa: BLE001 (whatever it is, the next case is run)
            failure = traceback.format_exc()
        say({"case": function.__name__, "failure": failure})


def say(line: dict[str, Any]) -> None:
    """A line that no print of a client's own can be taken for."""
    print("JUDGED " + json.dumps(line), flush=True)
