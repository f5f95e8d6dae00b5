"""What a request lacks that was started behind its first token."""

from yaie.core.batch import ScheduledRequest


def started_too_late(item: ScheduledRequest, what: str) -> RuntimeError:
    """It asks for this of every token, and the states of some are not at hand."""
    return RuntimeError(
        f"{item.request.request_id} asks for {what}, but the KV cache manager started it from "
        f"{item.start} cached tokens: see Request.may_reuse_prefix"
    )
