"""Pieces of records that depend on an engine or a request alone."""

import json
import logging
from typing import TYPE_CHECKING

from yaie.core.params import MAX_LOGPROBS
from yaie.core.records import VERSION, Record
from yaie.core.request import Request

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

WORDS = 60
"""Characters of a prompt that a record shows."""
TEXT = 240
"""Characters of an answer that a snapshot shows, its last."""


def header(engine: "LLMEngine", step_mode: bool) -> Record:
    """What does not change."""
    config, blocks = engine.config, engine.machine_parts.blocks
    return {
        "kind": "header",
        "v": VERSION,
        "model": engine.model_name,
        "block_size": blocks.block_size,
        "num_blocks": blocks.num_blocks,
        "num_host_blocks": blocks.num_host_blocks,
        "token_budget": config.step_tokens(engine.model.device.type),
        "max_num_seqs": config.max_num_seqs,
        "policy": config.policy,
        "watermark": config.watermark,
        "chunked_prefill": config.chunked_prefill,
        "preemption": config.preemption,
        "prefix_caching": config.prefix_caching,
        "speculate": config.speculate,
        "step_mode": step_mode,
        "parts": [
            {"lab": part.lab, "whose": "yours" if part.is_yours else "reference"}
            for part in engine.parts
        ],
    }


def told(request: Request, engine: "LLMEngine") -> Record:
    """A request as it came, and how its prompt ends: what is asked stands there. Only the page's "next
    token" asks for more log-probabilities than a client may."""
    first = max(0, request.num_prompt_tokens - 4 * WORDS)
    try:
        words = engine.tokenizer.decode(request.token_ids[first : request.num_prompt_tokens])
    except BaseException:
        logger.warning("the prompt of %s cannot be shown", request.request_id, exc_info=True)
        words = ""
    return {
        "id": request.request_id,
        "prompt_tokens": request.num_prompt_tokens,
        "max_tokens": request.max_tokens,
        "priority": request.priority,
        "words": words[-WORDS:],
        **({"peek": True} if (request.params.logprobs or 0) > MAX_LOGPROBS else {}),
    }


def line_of(record: Record) -> bytes:
    """As it is sent and kept."""
    return json.dumps(record, separators=(",", ":")).encode()
