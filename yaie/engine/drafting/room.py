"""`Room`: what a plan may still take in drafts, and how many of them were right."""

from typing import Any

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager
from yaie.core.request import Request


class Room:
    """Gives drafts the tokens and blocks that a step has left. No request is preempted for a draft."""

    def __init__(self, cache: KVCacheManager, part: Any, token_budget: int) -> None:
        """part: lab 18's. token_budget: of a step."""
        self._cache = cache
        self._part = part
        self._token_budget = token_budget

    def put(self, plan: StepPlan, item: ScheduledRequest, drafts: list[int]) -> None:
        """Have these drafts verified, as far as there is room for them."""
        drafts = drafts[: max(0, self._token_budget - plan.num_tokens)]
        if drafts and self.has_blocks(item, item.start + item.num_tokens + len(drafts)):
            item.drafts = drafts
            item.num_tokens += len(drafts)

    def has_blocks(self, item: ScheduledRequest, num_tokens: int) -> bool:
        """Whether a request's table could be made to cover so many tokens."""
        if not self._cache.allocate(item.request, num_tokens):
            return False
        item.block_table = self._cache.block_table(item.request)
        return True

    def num_right(self, item: ScheduledRequest, num_gained: int) -> int:
        """How many drafts of a request that gained so many tokens were right."""
        kept = self._part.kept(
            item.start, item.num_tokens, len(item.drafts), num_gained, self._cache.block_size
        )
        return len(item.drafts) - int(kept.num_rejected)


def may_draft(plan: StepPlan) -> list[ScheduledRequest]:
    """Those that are about to draw, and all of whose tokens are known."""
    return [
        item for item in plan.scheduled if item.samples and not item.request.num_output_placeholders
    ]


def num_left(request: Request) -> int:
    """How many drafts there may be: behind each stands a draw, and one before them all."""
    return request.max_tokens - request.num_output_tokens - 1


def single_tokens_first(plan: StepPlan) -> None:
    """Order the shares again, after some have grown."""
    plan.scheduled.sort(key=lambda item: item.num_tokens > 1)
