"""A model of windows answers as transformers' does beyond its window, while blocks behind it go back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.states.cases import GREEDY, finish, interleave
from tests.engine.windows.conftest import LONG_ANSWER
from tests.marks import nightly_but
from yaie import LLMEngine
from yaie.core.request import Request
from yaie.engine.windows.cache import WindowedCache

LONG = replace(GREEDY, max_tokens=LONG_ANSWER)
# An adapter of our own, and transformers' model.
of_each_kind = pytest.mark.parametrize(
    "case", nightly_but(("mistral",), ("mistral", "phi3")), indirect=True, scope="module"
)
of_one = pytest.mark.parametrize("case", ["mistral"], indirect=True, scope="module")
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"backend": "torch"},
    {"token_budget": 24, "block_size": 4},
    {"overlap": "on", "token_budget": 40, "max_num_seqs": 5},
    {"speculate": "ngram", "token_budget": 64},
    {"prefix_caching": False},
    {"batching": "static", "max_num_seqs": 16},
    {"chunked_prefill": False},
    {"deterministic": True, "token_budget": 96, "max_num_seqs": 3},
)
"""Of which CI tries the first ones."""


def given_back(engine: LLMEngine) -> int:
    return int(engine.stats()["given_back_blocks"])


def long_run(engine: LLMEngine, prompts: Sequence[list[int]]) -> list[Request]:
    requests = [engine.add_request(prompt, LONG)[0] for prompt in prompts]
    finish(engine)
    return requests


@of_each_kind
@pytest.mark.parametrize("settings", nightly_but((*SETTINGS[:5], SETTINGS[-1]), SETTINGS), ids=str)
def test_together_and_again(long_texts: Case, settings: dict[str, Any]) -> None:
    engine = long_texts.engine(**settings)
    assert isinstance(engine.machine_parts.cache, WindowedCache)
    for _ in range(2):
        assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert given_back(engine) > 100
    assert_empty(engine)
    engine.close()


@of_each_kind
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_texts_longer_than_the_pool(long_texts: Case, overlap: str) -> None:
    """Of 127 tokens: texts of 161 to 564, one at a time or a few at once."""
    engine = long_texts.engine(
        num_blocks=8, token_budget=32, max_num_seqs=4, watermark=0.0, overlap=overlap
    )
    assert engine.pool_tokens == 128
    assert engine.text_tokens == engine.max_model_len
    assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert_empty(engine)
    engine.close()


@of_one
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_preempted(case: Case, overlap: str) -> None:
    engine = case.engine(
        num_blocks=16, max_num_seqs=16, watermark=0.0, token_budget=48, overlap=overlap
    )
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 5
    assert outputs(requests) == case.expected
    assert_empty(engine)
    engine.close()


@of_one
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_siblings_of_a_prompt_answer_alike(long_texts: Case, prefix_caching: bool) -> None:
    engine = long_texts.engine(prefix_caching=prefix_caching)
    for prompt, expected in zip(long_texts.prompts[:4], long_texts.expected, strict=False):
        siblings = engine.add_request(prompt, replace(LONG, n=3))
        finish(engine)
        assert outputs(siblings) == [expected] * 3
        assert [one.num_cached_tokens for one in siblings[1:]] == [len(prompt) - 1] * 2
    assert_empty(engine)
    engine.close()


@of_one
def test_a_prefix_is_reused_when_its_window_is_there(long_texts: Case) -> None:
    """The pool has room for little more than a window: the beginning of the text is gone."""
    engine = long_texts.engine(num_blocks=12, token_budget=32)
    index = max(range(len(long_texts.prompts)), key=lambda i: len(long_texts.prompts[i]))
    (first,) = long_run(engine, [long_texts.prompts[index]])
    text = first.token_ids[:-1]
    (again,) = long_run(engine, [text])
    assert again.num_cached_tokens == (len(text) - 1) // 16 * 16 > 400
    assert again.output_token_ids[0] == long_texts.expected[index][-1]
    assert_empty(engine)
    engine.close()


@of_each_kind
@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_what_went_back_is_not_read(long_texts: Case, backend: str) -> None:
    """Not even where it is NaN, as from a request that went wrong."""
    engine = long_texts.engine(backend=backend, num_blocks=64, token_budget=32, max_num_seqs=3)
    machine = engine.machine_parts
    requests = [engine.add_request(prompt, LONG)[0] for prompt in long_texts.prompts]
    while engine.has_work:
        engine.step()
        free = [b for b in range(machine.blocks.num_blocks) if not machine.blocks.ref_count(b)]
        for layer in range(len(engine.model.adapter.kv_layers)):
            for pool in machine.worker.pool.blocks(layer):  # type: ignore[attr-defined]
                pool[torch.tensor(free, dtype=torch.int64)] = float("nan")
    assert given_back(engine) > 50
    assert outputs(requests) == long_texts.expected
    engine.close()


@of_one
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_interleaving_gives_the_tokens_of_a_lone_run(case: Case, data: st.DataObject) -> None:
    """Requests come, go and come back; blocks and budget are few."""
    interleave(case, data)


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["mistral", "phi3"], indirect=True, scope="module")
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_many_interleavings_do(case: Case, data: st.DataObject) -> None:
    interleave(case, data)


@pytest.mark.nightly
@of_one
@pytest.mark.parametrize("graphs", ["padded", "off"])
def test_kernels_in_padded_steps_give_the_same_tokens(case: Case, graphs: str) -> None:
    """In the interpreter, which takes a second a token."""
    engine = case.engine(
        backend="triton",
        graphs=graphs,
        num_blocks=60,
        block_size=8,
        max_num_seqs=4,
        token_budget=16,
    )
    chosen = [at for at, prompt in enumerate(case.prompts) if len(prompt) == 100][:2]
    params = replace(GREEDY, max_tokens=5)
    requests = [engine.add_request(case.prompts[at], params)[0] for at in chosen]
    finish(engine)
    assert outputs(requests) == [case.expected[at][:5] for at in chosen]
    assert given_back(engine)
