"""Asking an engine for outputs that belong to a language."""

import json
import random
from dataclasses import replace
from typing import Any

from tests.models.tiny import VOCAB
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.request import Request

EOS = 1
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "bc", 7, None]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def schema(text: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(text))


SAMPLED = SamplingParams(temperature=1.0, max_tokens=400)


def run(engine: LLMEngine, *requests: Request) -> list[str]:
    while engine.has_work:
        engine.step()
        engine.check()
    return [engine.tokenizer.decode(request.output_token_ids) for request in requests]


def ask(engine: LLMEngine, constraint: Constraint, seed: int = 0, **changes: Any) -> Request:
    rng = random.Random(seed)
    prompt = [rng.randrange(5, VOCAB) for _ in range(rng.randint(1, 40))]
    params = replace(SAMPLED, seed=seed, constraint=constraint, **changes)
    return engine.add_request(prompt, params)[0]
