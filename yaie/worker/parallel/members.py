"""What the monitor needs of the other ranks, wherever they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of a rank."""

    rank: int
    message: Any


@dataclass(frozen=True, slots=True)
class Gone:
    """A rank that has ended. how: in words that follow its name. has_said: it may be the consequence of
    what a rank has said before."""

    rank: int
    how: str
    has_said: bool


class Members(Protocol):
    """Ranks 1 to size - 1: processes that this one has started (`processes.py`), or that a launcher has
    started on several hosts (`hosts.py`)."""

    @property
    def ranks(self) -> Sequence[int]:
        """Which they are."""
        ...

    def start(self) -> None:
        """Begin to hear them. Called on the monitor's thread, as `hear` and `end` are."""
        ...

    def send(self, data: bytes) -> None:
        """The same to each. Raises OSError if one takes nothing. Called on control's thread."""
        ...

    def hear(self, seconds: float) -> list[Heard | Gone]:
        """What there is of them, in the order of each; waits for so long at most, or until `ring`."""
        ...

    def ring(self) -> None:
        """End a wait in `hear`. May be called on any thread, also after `end`."""
        ...

    def settle(self, seconds: float) -> None:
        """They have started: from here on none may be silent for so long."""
        ...

    def end(self, why: str) -> None:
        """End them all. why: "" if nothing is wrong."""
        ...
