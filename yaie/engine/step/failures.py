"""Why a step went wrong for some of its requests, in words for their callers."""

from yaie.core.batch import StepPlan
from yaie.core.request import FailureKind, Request
from yaie.core.step import StepResult
from yaie.engine.step.isolation import Isolation

CORRUPTED = "the model produced logits that are not finite (NaN or infinity)"

NO_MEMORY = (
    "the device had no memory left for this prompt: send it again. If it happens often, start the "
    "engine with a smaller token_budget or kv_memory_share"
)


def failed_requests(plan: StepPlan, result: StepResult, isolation: Isolation) -> list[Request]:
    """The live requests that this step went wrong for, told why."""
    failed = []
    alone = isolation.rows(plan.scheduled)
    for row in sorted({*alone, *result.corrupted, *result.out_of_memory}):
        request = plan.scheduled[row].request
        if request.is_finished:
            continue
        if row in alone:
            isolation.note(request)
        elif row in result.out_of_memory:
            request.error, request.failure = NO_MEMORY, FailureKind.MEMORY
        else:
            reason = request.matcher.error if request.matcher is not None else None
            kind = FailureKind.CORRUPTED if reason is None else FailureKind.CONSTRAINT
            request.error, request.failure = reason or CORRUPTED, kind
        failed.append(request)
    return failed
