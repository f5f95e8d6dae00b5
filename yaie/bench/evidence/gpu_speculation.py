"""What verifying drafts costs on a GPU, and what it gains where four in five drafts are right.

    python -m yaie.bench.evidence.gpu_speculation [path] [--shape llama-3.1-8b]

Two minutes, on a GPU that does nothing else. Random weights have no draft model, so drafts are made from
what the engine says without any, and each is spoilt with a chance of 0.2: acceptance is what it would
be with a draft model that is right four times in five and costs nothing. At a temperature this high a
token hangs on the seed more than on the logits, so outputs stay the same beyond a rounding.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.shapes import checkpoint
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "gpu_speculation.json"
BATCHES = (1, 8, 32)
PROMPT, OUTPUT = 512, 256
"""Tokens."""
RIGHT, NUM_DRAFTS = 0.8, 4
ROUNDS = 3
WARM_UP = 8
"""Steps after the prompts that are not timed."""


class Spoilt:
    """A proposer that knows each output and is right with a chance of `right`. See `Proposer`."""

    is_free = True

    def __init__(self, right: float) -> None:
        self.outputs: dict[int, list[int]] = {}
        self._right = right
        self._rng = random.Random(0)

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        return [self._of(request, most) for request, most in asked]

    def _of(self, request: Request, most: int) -> list[int]:
        said = len(request.output_token_ids)
        known = self.outputs.get(request.token_ids[0], [])[said : said + most]
        return [token if self._rng.random() < self._right else token ^ 1 for token in known]


def run(engine: LLMEngine, batch: int, num_output: int) -> tuple[float, float, list[list[int]]]:
    """Median milliseconds of a step and tokens a second once all decode, and the outputs."""
    rng = random.Random(batch)
    prompts = [[index, *rng.choices(range(1000, 9000), k=PROMPT - 1)] for index in range(batch)]
    engine.reset_prefix_cache()
    requests = [
        engine.add_request(
            prompt,
            SamplingParams(temperature=20, seed=index, max_tokens=num_output, ignore_eos=True),
        )[0]
        for index, prompt in enumerate(prompts)
    ]
    while not all(request.output_token_ids for request in requests):
        engine.step()
    for _ in range(WARM_UP):
        engine.step()
    before, steps = sum(len(one.output_token_ids) for one in requests), []
    begin = time.perf_counter()
    while not any(request.is_finished for request in requests):
        started = time.perf_counter()
        engine.step()
        steps.append(time.perf_counter() - started)
    seconds = time.perf_counter() - begin
    gained = sum(len(one.output_token_ids) for one in requests) - before
    while engine.has_work:
        engine.step()
    return 1e3 * median(steps), gained / seconds, [list(one.output_token_ids) for one in requests]


def measured(
    engine: LLMEngine, batch: int, num_output: int, forced: Spoilt | None
) -> dict[str, Any]:
    steps, rates, before = [], [], engine.stats()
    outputs: list[list[int]] = []
    for turn in range(ROUNDS + 1):
        ms, rate, outputs = run(engine, batch, num_output)
        if turn:
            steps.append(ms)
            rates.append(rate)
    after = engine.stats()
    found: dict[str, Any] = {"step_ms": median(steps), "tokens_a_second": median(rates)}
    if forced is None:
        return {**found, "outputs": outputs}
    asked = after["draft_tokens"] - before["draft_tokens"]
    accepted = after["accepted_draft_tokens"] - before["accepted_draft_tokens"]
    equal = [a == b for own, index in zip(outputs, range(batch), strict=True)
             for a, b in zip(own, forced.outputs[index], strict=True)]  # fmt: skip
    return {**found, "drafts": asked, "accepted": accepted, "same_tokens": sum(equal) / len(equal)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--shape-folder")
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--output-tokens", type=int, default=OUTPUT)
    args = parser.parse_args()
    found: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.gpu_speculation",
        "shape": args.shape, "prompt": PROMPT, "output": args.output_tokens, "right": RIGHT,
        "num_drafts": NUM_DRAFTS, "batches": {},
    }  # fmt: skip
    with checkpoint(args.shape, args.shape_folder) as folder:
        settings: dict[str, Any] = {"model": str(folder), "mine": "none", "max_model_len": 2048,
                                    "kv_memory_share": 0.4}  # fmt: skip
        plain = LLMEngine(**settings)
        off = {batch: measured(plain, batch, args.output_tokens, None) for batch in args.batches}
        del plain
        forced = Spoilt(RIGHT)
        with patch("yaie.engine.build.NgramProposer", lambda *_, **__: forced):
            engine = LLMEngine(speculate="ngram", num_drafts=NUM_DRAFTS, **settings)
        for batch in args.batches:
            forced.outputs = dict(enumerate(off[batch].pop("outputs")))
            drafted = measured(engine, batch, args.output_tokens, forced)
            found["batches"][str(batch)] = {
                "off": off[batch], "drafts": drafted,
                "ratio": drafted["tokens_a_second"] / off[batch]["tokens_a_second"],
                "step_ratio": drafted["step_ms"] / off[batch]["step_ms"],
            }  # fmt: skip
            print(batch, json.dumps(found["batches"][str(batch)]), flush=True)
    save(str(args.path), found)


if __name__ == "__main__":
    main()
