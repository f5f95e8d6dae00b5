"""Qwen3.5's own head drafts: each draft is what its naive sibling says, and no token depends on it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.engine.drafting.test_speculation import same
from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.mixed import LONG, POOLS, add_all
from tests.engine.mixed import run as run_mixed
from tests.engine.states.cases import GREEDY, finish, interleave
from tests.engine.states.headed import (
    DRAFTS,
    expect_drafts,
    expect_some_right,
    headed_case,
    seeing,
)
from tests.marks import nightly_but
from tests.models.own_heads import NaiveHead
from yaie.core.errors import ConfigError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, NaiveHead]:
    return headed_case(tmp_path_factory.mktemp("models"))


@pytest.fixture
def case(made: tuple[Case, NaiveHead]) -> Case:
    return made[0]


@pytest.fixture
def naive(made: tuple[Case, NaiveHead]) -> NaiveHead:
    return made[1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"token_budget": 24, "block_size": 4},
        {"num_blocks": 16, "max_num_seqs": 16, "watermark": 0.0},
        pytest.param({"prefix_caching": False, "num_drafts": 1}, marks=pytest.mark.nightly),
    ],
    ids=["together", "in chunks", "preempted", "one"],
)
def test_drafts_are_the_naive_head_s_and_tokens_those_of_transformers(
    case: Case, naive: NaiveHead, settings: dict[str, Any]
) -> None:
    """Also behind drafts that were rejected, and in texts that are computed again."""
    with seeing() as seen:
        engine = case.engine(**{**DRAFTS, **settings})
        requests = run(engine, case.prompts)
    assert outputs(requests) == case.expected
    assert len(seen) >= 2 * len(case.prompts)
    if "watermark" in settings:
        assert sum(request.num_preemptions for request in requests) >= 3
    expect_drafts(naive, seen)
    expect_some_right(engine)
    assert_empty(engine)


def test_it_goes_on_from_cached_prefixes(case: Case, naive: NaiveHead) -> None:
    engine = case.engine(token_budget=40, **DRAFTS)
    first = run(engine, case.prompts)
    with seeing() as seen:
        again = run(engine, case.prompts)
    assert outputs(first) == outputs(again) == case.expected
    assert max(request.num_cached_tokens for request in again) >= 64
    expect_drafts(naive, seen)


def test_an_answer_that_the_head_knows_takes_half_the_steps(case: Case) -> None:
    steps = []
    for more in ({}, DRAFTS):
        engine = case.engine(**more)
        assert outputs(run(engine, case.prompts[:1])) == case.expected[:1]
        steps.append(engine.stats()["steps"])
    assert steps[1] <= steps[0] / 2


def test_a_lone_prompt_is_read_by_the_head_in_chunks(case: Case, naive: NaiveHead) -> None:
    """Though no request draws in most of these steps."""
    engine = case.engine(token_budget=20, prefix_caching=False, **DRAFTS)
    with seeing() as seen:
        engine.add_request(LONG, GREEDY)
        finish(engine)
    expect_drafts(naive, seen)


def test_behind_a_shared_prefix_the_head_has_heard_the_other_text(
    case: Case, naive: NaiveHead
) -> None:
    """Its keys of a block's last token depend on the token behind it, which was the first text's."""
    engine = case.engine(**DRAFTS)
    prefix = LONG[:64]
    texts = [[*prefix, 5, 6, 7], [*prefix, 9, 8], [*prefix, 4, 3]]
    found = []
    for text in texts:
        with seeing() as seen:
            [request] = engine.add_request(text, GREEDY)
            finish(engine)
        found.append((request.num_cached_tokens, seen))
    assert [cached for cached, _ in found] == [0, 64, 64]
    expect_drafts(naive, found[0][1])
    for _, seen in found[1:]:
        expect_drafts(naive, seen, heard={63: 5})


def test_answers_of_a_fork_are_the_lone_one_s(case: Case) -> None:
    engine = case.engine(max_num_seqs=6, **DRAFTS)
    requests = [engine.add_request(prompt, replace(GREEDY, n=2)) for prompt in case.prompts[:6]]
    finish(engine)
    for pair, wanted in zip(requests, case.expected, strict=False):
        assert outputs(pair) == [wanted, wanted]
    assert_empty(engine)


@pytest.mark.parametrize("pool", nightly_but(["chunks"], ["chunks", "recompute", "no cache"]))
def test_sampled_and_constrained_ones_equal_those_without(case: Case, pool: str) -> None:
    plain = case.engine(**POOLS[pool])
    wanted = add_all(plain)
    texts = run_mixed(plain)
    engine = case.engine(**DRAFTS, **POOLS[pool])
    requests = add_all(engine)
    assert run_mixed(engine) == texts
    same(requests, wanted)
    assert engine.stats()["draft_tokens"] > 20


def test_a_number_that_adapts_changes_no_token(case: Case) -> None:
    engine = case.engine(**DRAFTS | {"num_drafts": "auto"})
    assert outputs(run(engine, case.prompts[:6])) == case.expected[:6]
    assert engine.stats()["draft_tokens"] > 0


@pytest.mark.nightly
@given(data=st.data())
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_interleaving_gives_the_tokens_of_a_lone_run(
    made: tuple[Case, NaiveHead], data: st.DataObject
) -> None:
    case, number = made[0], data.draw(st.integers(1, 9))
    many = Case(case.folder, 3 * case.prompts, 3 * case.expected)
    interleave(many, data, overlap="off", speculate="mtp", num_drafts=number)


def test_the_head_takes_a_layer_of_every_block(case: Case) -> None:
    plain, engine = (case.engine(num_blocks=20, **more) for more in ({}, DRAFTS))
    layers = len(plain.model.adapter.kv_layers)
    sizes = [one.machine_parts.sizes.bytes_per_block for one in (plain, engine)]
    assert sizes[1] * layers == sizes[0] * (layers + 1)
    assert len(engine.model.adapter.kv_layers) == layers


def test_overlapped_steps_are_refused(case: Case) -> None:
    with pytest.raises(ConfigError, match="does not go with speculate 'mtp'"):
        case.engine(overlap="on", **DRAFTS)
