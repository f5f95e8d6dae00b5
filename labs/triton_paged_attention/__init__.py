"""Lab 11: attention over block tables in Triton, split over keys for decode, tiled for prefill."""

from yaie.core.interpreter import repair

repair()

from .paged_attention import PagedAttention  # noqa: E402

__all__ = ["PagedAttention"]
