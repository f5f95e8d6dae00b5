"""`ForcedTokens`: where a grammar leaves no choice, as in the name of a property, the text that comes is
known (jump-forward, Zheng et al. 2024). Its tokens are drafts: the model may prefer to cut the same text
in another way.
"""

from yaie.core.batch import StepPlan
from yaie.core.request import FailureKind, Request
from yaie.engine.drafting.room import Room, may_draft, num_left, single_tokens_first
from yaie.engine.step.isolation import Isolation

MOST_FORCED = 32
"""Tokens in a step."""


class ForcedTokens:
    """A PlanStage: drafts what grammars force. It stands before what guesses."""

    def __init__(self, room: Room, isolation: Isolation) -> None:
        """isolation: where requests fail whose grammar raises."""
        self._room = room
        self._isolation = isolation

    def extend(self, plan: StepPlan) -> None:
        """See PlanStage."""
        for item in may_draft(plan):
            request = item.request
            if request.matcher is not None:
                forced = self._isolation.call(
                    request, None, _forced, request, kind=FailureKind.CONSTRAINT
                )
                self._room.put(plan, item, forced or [])
        single_tokens_first(plan)


def _forced(request: Request) -> list[int]:
    most = min(MOST_FORCED, num_left(request))
    return list(request.matcher.forced(most)) if most > 0 else []
