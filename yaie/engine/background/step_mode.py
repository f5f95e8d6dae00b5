"""How many more steps an engine may compute: in step mode, and while a page is open that may stop it.

Part of `EngineThread`, on its thread.
"""

from collections.abc import Iterable

from yaie.core.request import Request
from yaie.engine.background.messages import Pace, Unwatch, Watch
from yaie.engine.watching.publisher import Publisher


class StepMode:
    """left: steps that the engine may compute; None: as many as there are."""

    def __init__(self, publisher: Publisher, *, is_on: bool) -> None:
        """is_on: no step is computed until `Pace` says so."""
        self.left: int | None = 0 if is_on else None
        self._publisher = publisher
        self._is_on = is_on

    @property
    def _may_stop(self) -> bool:
        """Whether there is someone to let a stopped engine go on."""
        return self._is_on or self._publisher.is_on

    def obey(
        self, command: Watch | Unwatch | Pace, alive: Iterable[Request], *, has_work: bool
    ) -> None:
        """alive: requests that are. has_work: whether the engine has."""
        match command:
            case Watch(number, every):
                self._publisher.watch(number, alive, every=every)
                self._publisher.paced(self.left, number)
            case Unwatch(number):
                self._publisher.unwatch(number)
                if not self._may_stop:
                    self.left = None  # no page is left to ask for a step
            case Pace(steps) if self._may_stop:  # else it runs on
                if not steps:
                    self.left = steps
                elif has_work:
                    self.left = (self.left or 0) + steps
                self._publisher.paced(self.left)
