"""`Ask`: what a request asks of the worker besides its next token, as control sees it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from yaie.core.batch import ScheduledRequest
from yaie.core.request import Request
from yaie.core.step import Arrays


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """size: of the logits. ends: tokens that end an output of this model."""

    size: int
    ends: Collection[int] = ()


class Ask:
    """One technique. Its other half is a rule or a readout of the worker, under the same name.

    When a request enters, `enter` says what the rule is to know of it; in every step `ask` says what the
    readout is to bring. A technique has one of the two, or both.
    """

    name: ClassVar[str]

    def enter(self, asking: Sequence[tuple[int, Request]], vocabulary: Vocabulary) -> Arrays | None:
        """For `NewSeats.extras`, of (position, request) of those that ask; None for nothing."""
        return None

    def wants(self, item: ScheduledRequest) -> bool:
        """Whether a request that asks wants something of this step."""
        return False

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        """For `StepInput.extras`, of (row, request's share) of those that want something."""
        raise NotImplementedError

    def told(self, asked: Arrays, told: Arrays | None) -> Iterator[tuple[int, Any]]:
        """(row, what the worker says of it) of what was asked. told: of `StepResult.extras`."""
        raise NotImplementedError

    def note(self, item: ScheduledRequest, value: Any) -> None:
        """Note it on the request. What this raises ends the request."""
        raise NotImplementedError
