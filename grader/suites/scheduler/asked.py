"""What a scheduler asked of its queue and of its cache in its last calls, for a script that fails.

ASKED.listen(scheduler, cache, queue)      from now on; a scheduler that was listened to before is over
ASKED.told("schedule")                     lines for a report: what its last call of `schedule` asked
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from grader.kit.script import show
from grader.kit.session import SESSION

OF_QUEUE = ("push", "push_front", "peek", "remove")
OF_CACHE = ("is_pending", "admit", "allocate", "swap_in", "swap_out", "commit", "free")
CALLS = ("schedule", "advance", "update", "finish")
MOST_KEPT, MOST_TOLD = 100, 12
WIDTH = 88
STRANGER = (
    "{call}: this {name} is no request of this engine, but one of an earlier engine, with the same "
    "name. It is kept from an earlier call."
)
SAME_PLAN = (
    "`schedule` returned a StepPlan that an earlier call has returned, with the shares of then still in "
    "it. Each call makes a plan of its own."
)


class Asked:
    """stranger: a call with a request that the scheduler was never given, and that request's name.
    is_old_plan: whether `schedule` has returned a plan, and not an empty one, a second time."""

    def __init__(self) -> None:
        self._asks: dict[str, list[str]] = {}
        self._known: WeakSet[Any] = WeakSet()
        self._depth = 0
        self._is_inside = False  # of an ask, which may make others
        self._plan: Any = None
        self._current: list[str] = []
        self.stranger: tuple[str, str] | None = None
        self.is_old_plan = False

    def listen(self, scheduler: Any, cache: Any, queue: Any) -> None:
        self._asks, self._known, self._depth = {}, WeakSet(), 0
        self.stranger, self.is_old_plan = None, False
        if SESSION.is_searching:
            return
        for name in OF_QUEUE:
            setattr(queue, name, self._asking(f"queue.{name}", getattr(queue, name)))
        for name in OF_CACHE:
            setattr(cache, name, self._asking(f"cache.{name}", getattr(cache, name)))
        for name in CALLS:
            setattr(scheduler, name, self._called(name, getattr(scheduler, name)))
        scheduler.add = self._adding(scheduler.add)

    def made(self, ask: str) -> list[str] | None:
        """Which calls asked this, as `cache.commit`, when they were last made; None if none was made."""
        if not self._asks:
            return None
        return [
            name for name, asks in self._asks.items() if any(a.startswith(f"{ask}(") for a in asks)
        ]

    def told(self, *calls: str) -> str:
        """Of the last of these calls that was made; "" if none was, or if it asked nothing."""
        made = [name for name in self._asks if name in calls]
        asks = self._asks[made[-1]] if made else []
        if not asks:
            return ""
        left = ["..."] if len(asks) > MOST_TOLD else []
        lines = [f"{made[-1]} asked, in this order:", ""]
        for ask in [*left, *asks[-MOST_TOLD:]]:
            joined = f"{lines[-1]}; {ask}" if lines[-1] else f"  {ask}"
            lines[-1:] = [joined] if len(joined) <= WIDTH else [lines[-1], f"  {ask}"]
        return "\n".join(lines)

    def _called(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self._asks.pop(name, None)  # the last made is the last in the dict
                self._asks[name] = self._current = []
            self._depth += 1
            try:
                result = method(*args, **kwargs)
            finally:
                self._depth -= 1
            if name == "schedule":
                self.is_old_plan = result is self._plan
                self._plan = result if getattr(result, "scheduled", ()) else None
            return result

        return call

    def _asking(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            asks = self._current
            if not self._depth or self._is_inside or len(asks) >= MOST_KEPT:
                return method(*args, **kwargs)
            given = [*map(show, args), *(f"{key}={show(value)}" for key, value in kwargs.items())]
            line = f"{name}({', '.join(given)})"
            if self.stranger is None and self._is_stranger(*args[:1]):
                self.stranger = line, show(args[0])
            asks.append(line)
            position, self._is_inside = len(asks) - 1, True
            try:
                result = method(*args, **kwargs)
            finally:
                self._is_inside = False
            if result is not None or name == "queue.peek":
                asks[position] = f"{line} -> {show(result)}"
            return result

        return ask

    def _is_stranger(self, request: Any = None) -> bool:
        return hasattr(request, "request_id") and request not in self._known

    def _adding(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def add(request: Any) -> Any:
            self._known.add(request)
            return method(request)

        return add


ASKED = Asked()
