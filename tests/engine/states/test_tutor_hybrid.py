"""The tutor's sibling in the engine: tokens as transformers gives them, also after a cached prefix."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Lfm2ForCausalLM

from tests.engine.exact import assert_empty
from yaie import LLMEngine, SamplingParams
from yaie.core.config import EMBEDDED
from yaie.core.request import Request
from yaie.models.tutor import HYBRID_PATH

NAME = EMBEDDED[1]
SYSTEM = "You are the tutor of a workbook about inference engines. Answer briefly. " * 4
ASKED = (
    "What is a paged KV cache?",
    "What is a block table?",
    "why does decoding read all weights",
    "What does the scheduler do when no block is free?",
    "Is prefill bound by memory bandwidth?",
    "How do I bake sourdough bread?",
    "hello",
    "What is the difference between prefill and decode?",
    "What is speculative decoding?",
)
TALKS = [[{"role": "user", "content": text}] for text in ASKED]
TALKS.append([{"role": "system", "content": SYSTEM * 5}, *TALKS[0]])  # hundreds of tokens
GREEDY = SamplingParams(temperature=0, max_tokens=48)
SMALL: dict[str, Any] = {"model": NAME, "mine": "none", "device": "cpu", "threads": 1}


def answers(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    requests = [engine.add_request(prompt, GREEDY)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    return requests


@pytest.fixture(scope="module")
def engine() -> Iterator[LLMEngine]:
    engine = LLMEngine(**SMALL, num_blocks=512)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def expected(engine: LLMEngine) -> list[list[int]]:
    """What transformers' own model writes, a prompt at a time."""
    model = Lfm2ForCausalLM.from_pretrained(HYBRID_PATH, dtype=torch.float32).eval()
    written = []
    for talk in TALKS:
        prompt = engine.encode_chat(talk)
        ids = model.generate(
            input_ids=torch.tensor([prompt]), do_sample=False, max_new_tokens=GREEDY.max_tokens
        )
        written.append(ids[0, len(prompt) :].tolist())
    return written


def test_half_of_the_prompts_are_answered_at_length(expected: list[list[int]]) -> None:
    assert len(expected) == 10
    assert sum(len(one) > 20 for one in expected) >= 5
    assert len({tuple(one) for one in expected}) >= 8


@pytest.mark.parametrize(
    "settings",
    [{}, {"token_budget": 24, "block_size": 4}, {"num_blocks": 36, "watermark": 0.0}],
    ids=str,
)
def test_tokens_are_those_of_transformers(
    engine: LLMEngine, expected: list[list[int]], settings: dict[str, Any]
) -> None:
    """All at once: as it is, in small chunks, and where requests have to give their blocks up."""
    other = LLMEngine(**{**SMALL, "num_blocks": 512, **settings})
    prompts = [engine.encode_chat(talk) for talk in TALKS]
    preempted = 0
    for _ in range(2):  # again, with what is cached
        requests = answers(other, prompts)
        preempted += sum(request.num_preemptions for request in requests)
        assert [list(request.output_token_ids) for request in requests] == expected
    assert (preempted > 0) == ("watermark" in settings)
    assert_empty(other)
    other.close()


def test_the_tutors_draft_model_spares_most_steps(
    engine: LLMEngine, expected: list[list[int]]
) -> None:
    """It was taught the same answers, on the same vocabulary."""
    drafting = LLMEngine(**SMALL, num_blocks=512, speculate="draft", num_drafts=4)
    requests = answers(drafting, [engine.encode_chat(talk) for talk in TALKS])
    assert [list(request.output_token_ids) for request in requests] == expected
    stats = drafting.stats()
    assert stats["accepted_draft_tokens"] > 0.5 * stats["draft_tokens"] > 100
    assert stats["steps"] < 0.5 * max(map(len, expected))
    drafting.close()


def test_the_second_turn_of_a_chat_goes_on_from_a_checkpoint(engine: LLMEngine) -> None:
    uncached = LLMEngine(**SMALL, num_blocks=512, prefix_caching=False)
    talk = [{"role": "system", "content": SYSTEM}]
    found = []
    for text in ("What is a paged KV cache?", "and why does it help?"):
        talk.append({"role": "user", "content": text})
        prompt = engine.encode_chat(talk)
        [cached], [plain] = answers(engine, [prompt]), answers(uncached, [prompt])
        assert list(cached.output_token_ids) == list(plain.output_token_ids)
        assert plain.num_cached_tokens == 0
        found.append((len(prompt), cached.num_cached_tokens))
        written = engine.tokenizer.decode(list(cached.output_token_ids))
        talk.append({"role": "assistant", "content": written.removesuffix("<|im_end|>")})
    (first, _), (_, hit) = found
    # The state is kept where the first prompt's last whole block ends, and used from there.
    block = engine.config.block_size
    assert hit == (first - 1) // block * block > 48
    uncached.close()


def test_it_says_its_name_and_what_it_keeps(engine: LLMEngine) -> None:
    assert engine.model_name == NAME
    # Six convolutions of 192 channels keep two inputs each, in float32: 9 KiB.
    assert engine.info.states.startswith("9.0 KiB a request, whatever its length")
