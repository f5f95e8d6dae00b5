"""Who watches an engine, on the engine's thread: starts and stops the recorder, and sends records on."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from yaie.core.output import RequestOutput
from yaie.core.request import Request
from yaie.engine.watching.recorder import Recorder
from yaie.engine.watching.telling import line_of

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

Send = Callable[[list[bytes], int | None], None]
"""Lines, and the one watcher whom they are for; None: all."""


class Publisher:
    """Of one engine. is_on: whether anybody watches; nothing need be told while nobody does."""

    def __init__(self, engine: "LLMEngine", send: Send, *, step_mode: bool = False) -> None:
        self.is_on = False
        self._send = send
        self._recorder = Recorder(engine, step_mode=step_mode)
        self._numbers: dict[int, bool] = {}  # of watchers: whether every step is recorded by itself

    def watch(self, number: int, alive: Iterable[Request], *, every: bool = False) -> None:
        """A watcher begins. alive: requests that are not over, in the order in which they came. every:
        each step is to be recorded by itself."""
        if self.is_on:
            self.idle()
        else:
            self.is_on = True
            self._noted(self._recorder.start, alive)
        self._numbers[number] = every
        self._recorder.every = any(self._numbers.values())
        self._send(self._noted(self._recorder.lines), number)

    def unwatch(self, number: int) -> None:
        """That one has left."""
        self._numbers.pop(number, None)
        self._recorder.every = any(self._numbers.values())
        if self.is_on and not self._numbers:
            self._recorder.stop()
            self.is_on = False

    def paced(self, steps_left: int | None, number: int | None = None) -> None:
        """The engine computes so many more steps, None: as they come. number: of the one to whom it is
        told, unless it is what everybody expects."""
        if self.is_on and not (number is not None and steps_left is None):
            held = {"kind": "pace", "held": steps_left is not None}
            self._publish([line_of(held)], number)

    def arrived(self, requests: Iterable[Request]) -> None:
        """These were queued."""
        self._noted(self._recorder.arrived, requests)

    def stepped(self, outputs: list[RequestOutput]) -> None:
        """A step has ended."""
        self._publish(self._noted(self._recorder.stepped, outputs))

    def idle(self) -> None:
        """No step follows for now: nothing is kept back."""
        self._publish(self._recorder.flush())

    def _noted(self, note: Callable[..., list[bytes] | None], *args: Any) -> list[bytes]:
        """What `note` has to tell. Should it fail, those who watch get a snapshot with the next record:
        nobody's answer may end because somebody watches."""
        try:
            return note(*args) or []
        except Exception:  # noqa: BLE001
            self._recorder.missed()
            return []

    def _publish(self, lines: list[bytes], number: int | None = None) -> None:
        if lines:
            self._send(lines, number)
