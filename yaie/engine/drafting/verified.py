"""`Verified`: counts how many drafts each step accepted, guesses and forced tokens alike."""

from collections.abc import Callable

from yaie.core.batch import StepPlan
from yaie.core.step import StepResult
from yaie.engine.drafting.room import Room
from yaie.engine.step.isolation import Isolation

OnVerified = Callable[[int, int, int], None]
"""Told of a step: requests with drafts, their drafts, and how many were accepted."""


class Verified:
    """A StepObserver."""

    def __init__(self, room: Room, isolation: Isolation, tell: OnVerified) -> None:
        self._room = room
        self._isolation = isolation
        self._tell = tell

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """See StepObserver."""
        gains = iter(result.token_ids)
        num_requests = num_drafts = num_accepted = 0
        for item in plan.scheduled:
            gained = next(gains) if item.samples else []
            if item.drafts and gained:
                num_requests += 1
                num_drafts += len(item.drafts)
                num_accepted += self._isolation.call(
                    item.request, 0, self._room.num_right, item, len(gained)
                )
        if num_requests:
            self._tell(num_requests, num_drafts, num_accepted)
