"""Requests of every kind at once, in pools of every size: what any loop must give the same for."""

from collections.abc import Callable
from typing import Any

from tests.engine.constrained import PERSON, schema
from yaie import LLMEngine, SamplingParams
from yaie.core.request import Request

LONG = [(7 * i) % 250 + 3 for i in range(90)]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 20}
Settings = dict[str, Any]
Asked = Callable[[], list[tuple[list[int], SamplingParams]]]

POOLS: dict[str, Settings] = {
    "roomy": {"num_blocks": 300},
    "chunks": {"num_blocks": 300, "token_budget": 16},
    "recompute": {"num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12},
    "swap": {
        "num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12, "preemption": "swap",
        "swap_space": 0.01,
    },
    "no cache": {"num_blocks": 60, "prefix_caching": False},
    "priority": {"num_blocks": 40, "policy": "lpm", "token_budget": 48},
}  # fmt: skip


def mixed() -> list[tuple[list[int], SamplingParams]]:
    """Prompts around block borders, each with other parameters."""
    prompts = [LONG[start : start + length] for start, length in
               ((0, 40), (0, 33), (3, 16), (3, 17), (9, 1), (0, 64), (20, 48), (5, 31))]  # fmt: skip
    params = [
        SamplingParams(**GREEDY, ignore_eos=True),
        SamplingParams(temperature=0.8, seed=5, max_tokens=18, presence_penalty=0.7),
        SamplingParams(**GREEDY, logprobs=2, prompt_logprobs=1, ignore_eos=True),
        SamplingParams(temperature=1.0, top_k=20, top_p=0.9, seed=8, max_tokens=30, n=3),
        SamplingParams(temperature=0, max_tokens=1, ignore_eos=True),
        SamplingParams(**GREEDY, repetition_penalty=1.3, frequency_penalty=0.4, ignore_eos=True),
        SamplingParams(temperature=0.9, seed=3, max_tokens=120, constraint=schema(PERSON)),
        SamplingParams(temperature=0.7, seed=1, max_tokens=40, stop=("a", "e b"), min_p=0.02),
    ]
    return list(zip(prompts, params, strict=True))


def plain() -> list[tuple[list[int], SamplingParams]]:
    """Few, of which temperature and seed are all, and one that asks for more until it ends."""
    params = [
        SamplingParams(temperature=0, max_tokens=6, ignore_eos=True),
        SamplingParams(temperature=0.9, seed=4, max_tokens=6, ignore_eos=True),
        SamplingParams(temperature=1.3, seed=2**40, max_tokens=6, ignore_eos=True),
        SamplingParams(temperature=1.1, seed=6, max_tokens=3, top_p=0.8, ignore_eos=True),
    ]
    return [(LONG[8 * index :][:6], one) for index, one in enumerate(params)]


def run(engine: LLMEngine, on_step: Callable[[int], None] = lambda _: None) -> dict[str, str]:
    """Step to the end with every invariant checked; the text of each request."""
    texts: dict[str, str] = {}
    step = 0
    while engine.has_work:
        for output in engine.step():
            texts[output.request_id] = texts.get(output.request_id, "") + output.text
        engine.check()
        step += 1
        on_step(step)
    return texts


def short() -> list[tuple[list[int], SamplingParams]]:
    """Those of them that end within 40 steps: all but the one that has to draw a document."""
    return [one for one in mixed() if one[1].constraint is None]


def add_all(engine: LLMEngine, asked: Asked = mixed) -> list[Request]:
    return [one for prompt, params in asked() for one in engine.add_request(prompt, params)]


def close(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(
        (one is None) == (other is None)
        and (one is None or abs(one.logprob - other.logprob) < 1e-3)
        for one, other in zip(left, right, strict=True)
    )


def expect_same(engine: LLMEngine, expected: list[Request], asked: Asked = mixed) -> None:
    """The requests come out as expected."""
    requests = add_all(engine, asked)
    run(engine)
    for one, other in zip(requests, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
        assert close(one.logprobs, other.logprobs)
        assert close(one.prompt_logprobs, other.prompt_logprobs)
    assert engine.stats()["used_blocks"] == 0
