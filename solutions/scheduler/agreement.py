"""What must be true of the requests that run; `Scheduler.check` calls it."""

from collections.abc import Sequence

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus


# ANCHOR: check
def check_agreement(
    running: Sequence[Request], policy: SchedulingPolicy, cache: KVCacheManager
) -> None:
    """Raise InvariantError unless order, statuses, counts and blocks of those that run agree."""
    ranks = [policy.rank(request) for request in running]
    if ranks != sorted(ranks):
        raise InvariantError(f"running requests are out of order: {ranks}")
    for request in running:
        name, computed = request.request_id, request.num_computed_tokens
        if request.status is not RequestStatus.RUNNING:
            raise InvariantError(f"{name} runs but its status is {request.status}")
        room = len(cache.block_table(request)) * cache.block_size
        if room < computed:
            raise InvariantError(f"{name} has computed {computed} tokens but has blocks for {room}")
        if computed >= request.num_tokens:
            raise InvariantError(f"{name} runs but has nothing left to compute")


# ANCHOR_END: check
