"""Fields of SamplingParams that stand beside a body: the part that speaks OpenAI's API has none for them
(`lenient/beside.py`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from yaie.core.constraint import ThoughtLimit
from yaie.core.errors import InvalidRequestError
from yaie.server.lenient.beside import SOFT_BUDGET
from yaie.server.tenants import salt_of, tenant

if TYPE_CHECKING:
    from yaie.engine.background.async_engine import Prompt
    from yaie.server.service import Service

PASSED_ON = ("bad_words", "include_stop_str_in_output", "skip_special_tokens")
"""Noted under the names that SamplingParams has."""


def params_beside(
    service: "Service", beside: Mapping[str, Any], prompt: "Prompt"
) -> dict[str, Any]:
    """By name. beside: what was noted, by its names. Raises InvalidRequestError."""
    found = {name: beside[name] for name in PASSED_ON if name in beside}
    wanted = beside.get("cache_salt")
    if wanted is not None or tenant.get() is not None:
        if service.hands_over:
            raise InvalidRequestError(
                "cache_salt: Blocks that are handed over are shared by all; leave it out, or ask a "
                "server without --role.",
                param="cache_salt",
            )
        found["cache_salt"] = salt_of(wanted)
    if (thought := _thought_limit(service, beside, prompt)) is not None:
        found["thought"] = thought
    return found


def _thought_limit(
    service: "Service", beside: Mapping[str, Any], prompt: "Prompt"
) -> ThoughtLimit | None:
    """By vLLM's field, or by Anthropic's, which means nothing where a model does not think."""
    budget = beside.get("thinking_token_budget")
    if service.reasoning is None and budget is not None:
        raise InvalidRequestError(
            f"thinking_token_budget: {service.model_name!r} does not think between tags that this "
            "server knows (--reasoning-parser); leave it out.",
            param="thinking_token_budget",
        )
    budget = beside.get(SOFT_BUDGET) if budget is None else budget
    if service.reasoning is None or budget is None:
        return None
    return service.reasoning.limit(budget, service.engine.tokenizer, prompt)
