"""What passes between `AsyncEngine` and the engine that runs behind it, on a thread or in a process.

Commands go in, events come out, each in order. Both are plain data and can be pickled. A caller numbers
its submissions and calls, and finds the number again in the `Replied` that answers each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from yaie.core.errors import EngineDeadError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.engine.info import EngineInfo

# --- commands ---


@dataclass(frozen=True, slots=True)
class Admit:
    """Queue these prompts, all or none. The reply's value: a `Submitted` for each sequence."""

    number: int
    prompts: list[list[int]]
    params: SamplingParams | None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of the engine by its name. The reply's value: what it returns."""

    number: int
    name: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Drop a submission or a call: it does not begin if it has not begun, and ends if it has."""

    number: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Send the watcher of this number header and snapshot, and records from then on to all. every: of
    each step by itself, whatever that takes."""

    number: int
    every: bool = False


@dataclass(frozen=True, slots=True)
class Unwatch:
    """This watcher has left."""

    number: int


@dataclass(frozen=True, slots=True)
class Wake:
    """The engine has work that no command has brought."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of an engine in step mode, or that is watched. steps: how many more; None: go on without a stop;
    0: pause."""

    steps: int | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Abort everything and end."""


@dataclass(frozen=True, slots=True)
class Lose:
    """A rank of the model is gone: the engine is dead."""

    error: EngineDeadError


Command = Admit | Call | Withdraw | Watch | Unwatch | Pace | Stop | Lose | Wake

# --- events ---


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is loaded."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Replied:
    """A submission or a call has been obeyed, or has failed with `error`. value: None where it was
    withdrawn in time."""

    number: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step yielded. started: ids of requests that had their first turn."""

    outputs: list[RequestOutput]
    started: list[str] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        # A dataclass with slots is pickled by way of a dictionary, in five times the time.
        return _stepped, (list(map(_row, self.outputs)), self.started)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records for those who watch (`yaie.core.records`), each a line of JSON without its end. number: of
    the one watcher whom they are for; None: for all that have begun."""

    lines: list[bytes]
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Loading or a step has raised this, or a step does not end. The engine is dead."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes."""


Event = Ready | Replied | Stepped | Recorded | Failed | Ended
Tell = Callable[[Event], None]

_row: Callable[[RequestOutput], tuple[Any, ...]] = attrgetter(
    *(item.name for item in fields(RequestOutput))
)


def _stepped(rows: list[tuple[Any, ...]], started: list[str]) -> Stepped:
    return Stepped([RequestOutput(*row) for row in rows], started)
