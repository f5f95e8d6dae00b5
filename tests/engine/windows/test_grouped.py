"""A model of which some layers have a window answers as transformers' does, while blocks go back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.states.cases import finish, interleave
from tests.engine.windows.test_identity import LONG, SETTINGS, given_back, long_run
from tests.marks import nightly_but
from yaie import LLMEngine
from yaie.engine.windows.grouped import GroupedCache
from yaie.worker import build
from yaie.worker.windows import Held

FAMILIES = ("gemma3", "olmo3", "gpt_oss", "gemma2", "qwen2", "gemma3-linear")
of_each_kind = pytest.mark.parametrize(
    "case", nightly_but(FAMILIES[:1], FAMILIES), indirect=True, scope="module"
)
of_one = pytest.mark.parametrize("case", ["gemma3"], indirect=True, scope="module")


@contextmanager
def windowed_blocks(count: int) -> Iterator[None]:
    """The layers with a window have so many blocks, or as many as the longest text needs alone."""

    def counts(config: Any, bytes_each: Any, held: Held, *_: Any) -> tuple[int, int]:
        return config.num_blocks, max(count, held.most + 1)

    with patch.object(build, "num_blocks_of_groups", counts):
        yield


def windowed_total(engine: LLMEngine) -> int:
    return int(engine.stats()["windowed_total_blocks"])


@of_each_kind
@pytest.mark.parametrize("settings", nightly_but(SETTINGS[:5], SETTINGS), ids=str)
def test_together_and_again(long_texts: Case, settings: dict[str, Any]) -> None:
    engine = long_texts.engine(**settings)
    assert isinstance(engine.machine_parts.cache, GroupedCache)
    for _ in range(2):
        assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert given_back(engine) > 80
    assert_empty(engine)
    engine.close()


@of_each_kind
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_texts_longer_than_the_windowed_pool(long_texts: Case, overlap: str) -> None:
    """Of 144 tokens: texts of 161 to 564."""
    with windowed_blocks(10):
        engine = long_texts.engine(
            num_blocks=64, token_budget=32, max_num_seqs=4, watermark=0.0, overlap=overlap
        )
    assert windowed_total(engine) == 9
    assert engine.text_tokens == engine.max_model_len
    assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    assert_empty(engine)
    engine.close()


@of_one
@pytest.mark.parametrize("overlap", ["on", "off"])
@pytest.mark.parametrize(("num_full", "num_windowed"), [(16, 64), (128, 12)])
def test_preempted(case: Case, overlap: str, num_full: int, num_windowed: int) -> None:
    """For want of blocks in either group."""
    with windowed_blocks(num_windowed):
        engine = case.engine(
            num_blocks=num_full, max_num_seqs=16, watermark=0.0, token_budget=48, overlap=overlap
        )
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 5
    assert outputs(requests) == case.expected
    assert_empty(engine)
    engine.close()


@of_one
def test_a_draft_model_has_a_pool_for_whole_texts(long_texts: Case) -> None:
    """It is the model itself: most drafts are right, and it lacks nothing of the text."""
    engine = long_texts.engine(
        speculate="draft",
        draft_model=str(long_texts.folder),
        num_drafts=3,
        token_budget=64,
        max_num_seqs=4,
    )
    assert isinstance(engine.machine_parts.cache, GroupedCache)
    assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
    stats = engine.stats()
    assert stats["accepted_draft_tokens"] > 0.9 * stats["draft_tokens"] > 0
    assert_empty(engine)
    engine.close()


@of_one
def test_keys_and_values_of_8_bits_are_those_of_blocks_that_are_kept(long_texts: Case) -> None:
    answers = []
    for kept in ({}, {"preemption": "swap", "swap_space": 0.01}):
        engine = long_texts.engine(kv_dtype="int8", token_budget=64, **kept)
        assert isinstance(engine.machine_parts.cache, GroupedCache) is not bool(kept)
        answers.append(outputs(long_run(engine, long_texts.prompts)))
        engine.close()
    assert answers[0] == answers[1]


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
    """The layers with a window have room for little more than one: of the text's beginning they lack
    all, so that a text which parts from it there begins anew."""
    with windowed_blocks(12):
        engine = long_texts.engine(num_blocks=128, token_budget=32)
    index = max(range(len(long_texts.prompts)), key=lambda i: len(long_texts.prompts[i]))
    (first,) = long_run(engine, [long_texts.prompts[index]])
    text = first.token_ids[:-1]
    (again,) = long_run(engine, [text])
    assert again.num_cached_tokens == (len(text) - 1) // 16 * 16 > 400
    assert again.output_token_ids[0] == long_texts.expected[index][-1]
    (parted,) = long_run(engine, [text[:100]])
    assert parted.num_cached_tokens == 0
    assert parted.failure is None
    assert_empty(engine)
    engine.close()


@of_each_kind
@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_what_went_back_is_not_read(long_texts: Case, backend: str) -> None:
    """Not even where it is NaN, as from a request that went wrong."""
    with windowed_blocks(40):
        engine = long_texts.engine(backend=backend, num_blocks=160, token_budget=32, max_num_seqs=3)
    machine = engine.machine_parts
    cache: Any = machine.cache
    pool = machine.worker.pool  # type: ignore[attr-defined]
    requests = [engine.add_request(prompt, LONG)[0] for prompt in long_texts.prompts]
    groups = ((pool.full, machine.blocks), (pool.windowed, cache.windowed_blocks))
    while engine.has_work:
        engine.step()
        for part, blocks in groups:
            free = [b for b in range(blocks.num_blocks) if not blocks.ref_count(b)]
            index = torch.tensor(free, dtype=torch.int64)
            num_layers = len(engine.model.adapter.kv_layers)
            own = [layer for layer in range(num_layers) if pool._places[layer][0] is part]
            assert 0 < len(own) < num_layers
            for layer in own:
                for memory in pool.blocks(layer):
                    memory[index] = float("nan")
    assert given_back(engine) > 50
    assert outputs(requests) == long_texts.expected
    engine.close()


def interleave_groups(case: Case, data: st.DataObject, **settings: Any) -> None:
    """With few blocks in one group, in the other, or in both."""
    with windowed_blocks(data.draw(st.integers(2, 60))):
        interleave(case, data, **settings)


@of_one
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_interleaving_gives_the_tokens_of_a_lone_run(case: Case, data: st.DataObject) -> None:
    """Requests come, go and come back; blocks and budget are few."""
    interleave_groups(case, data)


@pytest.mark.nightly
@pytest.mark.parametrize("case", FAMILIES[:3], indirect=True, scope="module")
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_many_interleavings_do(case: Case, data: st.DataObject) -> None:
    interleave_groups(case, data)


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
    params = replace(LONG, max_tokens=5)
    requests = [engine.add_request(case.prompts[at], params)[0] for at in chosen]
    finish(engine)
    assert outputs(requests) == [case.expected[at][:5] for at in chosen]
    assert given_back(engine)
    engine.close()
