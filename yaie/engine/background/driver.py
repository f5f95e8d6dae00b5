"""What `AsyncEngine` needs of whatever runs its engine in the background."""

from typing import Protocol

from yaie.engine.background.messages import Command, Tell
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.info import EngineInfo
from yaie.models.tokenizer import Tokenizer


class Driver(Protocol):
    """Runs an engine in the background: `EngineThread` in this process, `EngineProcess` in another."""

    @property
    def telemetry(self) -> Telemetry:
        """What the engine has done. It may be a moment old."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it still runs. Nothing can interrupt a thread in a step that does not end."""
        ...

    def start(self, tell: Tell) -> None:
        """Load the engine and run it. `tell` is called for each event, on a thread of the driver's."""
        ...

    def send(self, command: Command) -> None:
        """Have this done between two steps. Returns at once. Called on one thread only."""
        ...

    def tokenizer(self, info: EngineInfo) -> Tokenizer:
        """A tokenizer for the caller's side. It may take seconds to load."""
        ...

    def close(self) -> None:
        """Leave nothing behind if possible: it has ended, or has been given enough time to."""
        ...
