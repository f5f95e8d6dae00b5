"""Keeps steps short while requests generate: it says how many tokens of prompts the next one computes.

Every stream waits for a step, and one with a chunk of a prompt is as long as that chunk takes. How long
depends on the model, on the machine, and on what else runs there, so it is measured.
"""

from collections import deque
from collections.abc import Sequence

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import Scheduler
from yaie.core.step import StepResult

FIRST_CHUNK = 128
"""Tokens, before any step has been measured."""
LEAST_CHUNK = 32
"""Tokens of prompts for which there is always room: smaller chunks take hardly less time."""
GROWTH = 1.25
"""By how much a chunk may be larger than the last one. It shrinks at once."""
SHARE = 1.5
"""A step may take so many times what it takes without prompts, if that is longer than the limit."""
PLAIN_STEPS = 16
"""How many steps without prompts are remembered. The shortest of them counts: other work on the machine
only makes steps longer, and that must not make room for longer ones."""


class StepPacer:
    """A StepObserver: sets the token budget of a scheduler before each step.

    limit: seconds that a step may take which computes prompts beside requests that generate. While none
    generates, the budget is the engine's own.
    """

    def __init__(self, scheduler: Scheduler, token_budget: int, limit: float) -> None:
        """token_budget: of the engine, which is never exceeded."""
        self.limit = limit
        self._scheduler = scheduler
        self._most = token_budget
        self._chunk = float(FIRST_CHUNK)
        self._plain: deque[float] = deque(maxlen=PLAIN_STEPS)

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """See StepObserver: learn from the step, and set the budget of the next one."""
        if num_tokens := chunk_tokens(plan.scheduled):
            self._learn(num_tokens, seconds)
        elif plan.scheduled:
            self._plain.append(seconds)
        budget = self._most
        if any(item.samples and not item.request.is_finished for item in plan.scheduled):
            budget = min(budget, self._scheduler.num_running + int(self._chunk))
        self._scheduler.token_budget = budget

    def _learn(self, num_tokens: int, seconds: float) -> None:
        """A step with so many tokens of prompts has taken so long."""
        allowed = max(self.limit, SHARE * min(self._plain, default=0.0))
        fitting = num_tokens * allowed / seconds
        # A short chunk says little about a long one: it only tells that there is room for more.
        if fitting < self._chunk or num_tokens >= self._chunk / 2:
            self._chunk = min(fitting, GROWTH * self._chunk, float(self._most))
        self._chunk = max(self._chunk, LEAST_CHUNK)


def chunk_tokens(scheduled: Sequence[ScheduledRequest]) -> int:
    """The tokens of prompts among those of a step: all that are not one token for a request's next."""
    return sum(item.num_tokens for item in scheduled if item.num_tokens - len(item.drafts) > 1)
