"""Lab 7: the step loop, and text out of tokens."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from yaie.core.batch import StepOutcome, StepPlan
    from yaie.core.output import RequestOutput
    from yaie.core.request import Request


# ANCHOR: detokenizer
class Detokenizer(Protocol):
    """Lab 7. Turns one request's tokens into text as they come. A token costs the same behind any
    text."""

    def push(self, token_id: int) -> str:
        """The text that this token makes final; "" while a character is incomplete."""
        ...

    def flush(self) -> str:
        """The end of the text, when no more tokens come."""
        ...


# ANCHOR_END: detokenizer


# ANCHOR: stop_checker
class StopChecker(Protocol):
    """Lab 7. Finds stop strings in one request's text, across token boundaries. A letter costs the same
    behind any text."""

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None).

        text: of one more token, "" if it has none yet; or what the detokenizer's `flush` gave.

        Text that may be the start of a stop string is held back until it is decided. Of several stop
        strings the one that is complete first ends the text, so that the result does not depend on how
        the text was cut into pieces; of those that end together, the longest.
        """
        ...

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        ...


# ANCHOR_END: stop_checker


# ANCHOR: engine_core
class EngineCore(Protocol):
    """Lab 7. The step loop. It is given a scheduler and an executor. `add_request` makes one detokenizer
    and one stop checker for its request. A step costs the requests of its plan, however many are
    alive."""

    def add_request(self, request: "Request") -> None:
        """Queue a request. Raises InvalidRequestError if one with its id is alive."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over. It yields no further output."""
        ...

    def step(self) -> "list[RequestOutput]":
        """Schedule, execute, advance, and take over the result, one step after the other; returns what
        each touched request gained. What the scheduler or the executor raises goes through."""
        ...

    def take(self, plan: "StepPlan", outcome: "StepOutcome") -> "list[RequestOutput]":
        """Take over what came of a plan: tokens become text, and requests end, at the scheduler too.

        Returns what each touched request gained, the last outputs of `plan.failed` and of
        `outcome.failed` first. The former are taken before anything is aborted. The engine's overlapped
        loop calls it a step later than `step` does: requests of the plan may have ended meanwhile.
        It costs what the new tokens cost, however long the requests are, and changes neither plan nor
        outcome.
        """
        ...

    @property
    def has_work(self) -> bool: ...


# ANCHOR_END: engine_core
