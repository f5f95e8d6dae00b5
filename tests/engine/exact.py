"""Cases of which the tokens are known: a model, prompts, and what transformers answers to them."""

from dataclasses import dataclass
from pathlib import Path

import torch

from tests.engine.oracle import greedy, make_prompts
from yaie import LLMEngine, SamplingParams
from yaie.core.request import Request

MAX_TOKENS = 17
"""One more than a block has: every output crosses a boundary."""
NUM_PROMPTS = 64
SPARE_PROMPTS = 4
ROUNDING = 1e-4


@dataclass
class Case:
    folder: Path
    prompts: list[list[int]]
    expected: list[list[int]]

    def engine(self, **settings: object) -> LLMEngine:
        # On the CPU even where there is a GPU: that is where the expected tokens come from.
        settings = {"num_blocks": 1024, "device": "cpu", **settings}
        return LLMEngine(model=str(self.folder), **settings)


def case_of(folder: Path, rounding: float = ROUNDING, spare: int = SPARE_PROMPTS) -> Case:
    """Of the model in a folder, with prompts whose answers rounding does not decide. spare: prompts for
    which it may."""
    torch.set_num_threads(1)
    prompts = make_prompts(NUM_PROMPTS + spare, vocab=256)
    expected, margins = greedy(folder, prompts, MAX_TOKENS)
    decided = [i for i, margin in enumerate(margins) if margin > rounding][:NUM_PROMPTS]
    assert len(decided) == NUM_PROMPTS
    return Case(folder, [prompts[i] for i in decided], [expected[i] for i in decided])


def run(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    """Add every prompt, step to the end, and check every invariant after every step."""
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    return requests


def assert_empty(engine: LLMEngine) -> None:
    """No block is used but by the tree, and evicting everything returns them all."""
    stats = engine.stats()
    assert stats["used_blocks"] == 0
    engine.reset_prefix_cache()
    assert engine.stats()["free_blocks"] == stats["total_blocks"]
    engine.check()


def outputs(requests: list[Request]) -> list[list[int]]:
    return [request.output_token_ids for request in requests]


def assert_alone_and_preempted(case: Case) -> None:
    """The C++ backend gives the same tokens to a request alone, and to many in a pool too small."""
    engine = case.engine(backend="cpu")
    alone = [outputs(run(engine, [prompt]))[0] for prompt in case.prompts[:8]]
    assert alone == case.expected[:8]
    small = case.engine(backend="cpu", num_blocks=22, max_num_seqs=16, watermark=0.0)
    requests = run(small, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 10
    assert outputs(requests) == case.expected
