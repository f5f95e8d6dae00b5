"""How many drafts a request of a model with states gets: `RoomBesideStates`."""

from collections.abc import Sequence

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager
from yaie.engine.drafting.room import Room
from yaie.engine.states.stage import CheckpointStage
from yaie.engine.step.hooks import PlanStage
from yaie.worker.sizing import MOST_UNSETTLED


class RoomBesideStates(Room):
    """See Room. What a token brings into each state is kept until drafts are verified: so there are few,
    behind a single token, and none behind the rest of a prompt."""

    def __init__(
        self,
        cache: KVCacheManager,
        part: object,
        token_budget: int,
        stages: Sequence[PlanStage],
        num_drafts: int | None,
    ) -> None:
        """stages: those before the ones that draft, perhaps the one that keeps states. num_drafts: a
        number that the configuration fixes."""
        super().__init__(cache, part, token_budget)
        found = (one for one in stages if isinstance(one, CheckpointStage))
        self._stage = next(found, None)
        self._most = num_drafts or MOST_UNSETTLED

    def put(self, plan: StepPlan, item: ScheduledRequest, drafts: list[int]) -> None:
        """See Room."""
        if item.num_tokens > 1:
            return
        most = self._most
        if self._stage is not None:
            most = min(most, self._stage.most_drafts(item))
        super().put(plan, item, drafts[:most])
