"""A model that keeps states forgets drafts that were wrong: its tokens are those without any."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.engine.constrained import ask, schema
from tests.engine.constrained import run as run_all
from tests.engine.drafting.test_speculation import ROUND, Oracle, oracle, same  # noqa: F401
from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.mixed import LONG, POOLS, add_all
from tests.engine.mixed import run as run_mixed
from tests.engine.states.cases import GREEDY, finish, interleave, of_each_kind, of_one
from tests.engine.states.test_own_part import FAULTY
from tests.learner import faults_of, hand_in
from tests.marks import nightly_but
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.backends import states
from yaie.core.request import FinishReason, Request
from yaie.core.step import StepInput
from yaie.engine import build
from yaie.engine.states.stage import DECODED
from yaie.worker.sizing import unsettled_bytes
from yaie.worker.unsettled import UnsettledStates

DRAFTS: dict[str, Any] = {"speculate": "ngram", "num_drafts": 4}


class Prompted(Oracle):
    """Knows what follows each prompt."""

    answers: dict[tuple[int, ...], list[int]] = {}  # noqa: RUF012, the test's

    def _of(self, request: Request, most: int) -> Sequence[int]:
        tokens, begin = request.token_ids, request.num_prompt_tokens
        known = [*tokens[:begin], *self.answers[tuple(tokens[:begin])]]
        self.known = {request.request_id: known}
        return super()._of(request, most)


@contextmanager
def guessing(case: Case) -> Iterator[None]:
    """Drafts for the case's prompts, of which some are right."""
    pairs = zip(case.prompts, case.expected, strict=True)
    Prompted.answers = {tuple(prompt): tokens for prompt, tokens in pairs}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "NgramProposer", Prompted)
        yield


@pytest.fixture
def guesses(case: Case) -> Iterator[None]:
    with guessing(case):
        yield


def expect_some_right(engine: LLMEngine) -> None:
    stats = engine.stats()
    assert 0.2 < stats["accepted_draft_tokens"] / stats["draft_tokens"] < 0.8


@of_each_kind
@pytest.mark.usefixtures("guesses")
def test_in_chunks_and_with_cached_prefixes(case: Case) -> None:
    engine = case.engine(token_budget=40, **DRAFTS)
    assert outputs(run(engine, case.prompts)) == case.expected
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert {request.num_cached_tokens for request in again} == {0, 64, 96}
    expect_some_right(engine)
    assert_empty(engine)


@of_one
@pytest.mark.usefixtures("guesses")
@pytest.mark.parametrize(
    "settings",
    [
        {"prefix_caching": False, "num_drafts": 1},
        {"token_budget": 24, "block_size": 4},
        pytest.param({"backend": "torch"}, marks=pytest.mark.nightly),
        pytest.param({"batching": "static", "max_num_seqs": 16}, marks=pytest.mark.nightly),
        pytest.param({"chunked_prefill": False}, marks=pytest.mark.nightly),
        pytest.param({"policy": "lpm", "max_num_seqs": 4}, marks=pytest.mark.nightly),
        pytest.param({"max_num_seqs": 1, "num_drafts": 12}, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_together_and_again(case: Case, settings: dict[str, Any]) -> None:
    engine = case.engine(**{**DRAFTS, **settings})
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    expect_some_right(engine)
    assert_empty(engine)


@of_each_kind
@pytest.mark.usefixtures("guesses")
def test_preempted(case: Case) -> None:
    engine = case.engine(num_blocks=22, max_num_seqs=16, watermark=0.0, **DRAFTS)
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 5
    assert outputs(requests) == case.expected
    assert engine.stats()["accepted_draft_tokens"] > 0
    assert_empty(engine)


@of_one
@given(data=st.data())
@hypothesis_settings(max_examples=12, deadline=None)
def test_any_interleaving_gives_the_tokens_of_a_lone_run(case: Case, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 9))
    with guessing(case):
        interleave(case, data, overlap="off", speculate="ngram", num_drafts=number)


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["lfm2", "qwen3_5", "granite4-h"], indirect=True, scope="module")
@given(data=st.data())
@hypothesis_settings(max_examples=100, deadline=None)
def test_many_interleavings_do(case: Case, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 9))
    with guessing(case):
        interleave(case, data, overlap="off", speculate="ngram", num_drafts=number)


@of_one
@pytest.mark.parametrize(
    "pool", nightly_but(["chunks", "recompute"], [pool for pool in POOLS if pool != "swap"])
)
def test_sampled_and_constrained_ones_equal_those_without(
    case: Case,
    oracle: type[Oracle],  # noqa: F811
    pool: str,
) -> None:
    plain = case.engine(**POOLS[pool])
    wanted = add_all(plain)
    texts = run_mixed(plain)
    oracle.known = {request.request_id: request.token_ids for request in wanted}
    engine = case.engine(**DRAFTS, **POOLS[pool])
    requests = add_all(engine)
    assert run_mixed(engine) == texts
    same(requests, wanted)
    expect_some_right(engine)
    if POOLS[pool]["num_blocks"] == 11:
        assert engine.stats()["preemptions"] >= 1


@of_each_kind
@pytest.mark.usefixtures("guesses")
def test_what_is_kept_of_drafts_is_as_large_as_room_was_left_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a twentieth: gates and steps are a few numbers a head."""
    engine = case.engine(num_drafts=3, speculate="ngram", max_num_seqs=4)
    layers = engine.model.adapter.state_layers
    left = unsettled_bytes(layers, 1, 9) - unsettled_bytes(layers, 1, 8)  # for a token more
    settle, found = UnsettledStates.settle, []

    def noted(self: UnsettledStates, step: StepInput, gained: Any) -> None:
        kept = [one for _, tokens in self._kept for one in tokens]
        found.append(sum(one.nbytes for one in kept) / len(kept[0]))
        settle(self, step, gained)

    monkeypatch.setattr(UnsettledStates, "settle", noted)
    run(engine, case.prompts[:4])
    assert found
    assert found == pytest.approx([left] * len(found), rel=0.05)


@of_one
@pytest.mark.parametrize("num_drafts", [3, None])
def test_ngrams_of_a_text_that_repeats_save_steps(case: Case, num_drafts: int | None) -> None:
    plain = case.engine()
    wanted = plain.generate([LONG, LONG[5:30]], ROUND)
    engine = case.engine(speculate="ngram", num_drafts=num_drafts)
    assert engine.generate([LONG, LONG[5:30]], ROUND) == wanted
    assert engine.stats()["accepted_draft_tokens"] > 0
    if num_drafts:
        assert engine.stats()["steps"] < 0.7 * plain.stats()["steps"]


@of_one
def test_drafts_stop_where_a_state_is_kept_for_the_next_turn(
    case: Case,
    oracle: type[Oracle],  # noqa: F811
) -> None:
    size = 4
    params = replace(GREEDY, max_tokens=2 * DECODED * size + 9)
    plain = case.engine(block_size=size)
    [wanted] = plain.add_request(case.prompts[0], params)
    finish(plain)
    oracle.known = {wanted.request_id: wanted.token_ids}
    engine = case.engine(block_size=size, **DRAFTS)
    [request] = engine.add_request(case.prompts[0], params)
    finish(engine)
    assert request.output_token_ids == wanted.output_token_ids
    expect_some_right(engine)
    turn = [*request.token_ids, 7, 8, 9]
    found = []
    for one in (engine, plain):
        [again] = one.add_request(turn, replace(GREEDY, max_tokens=1))
        finish(one)
        found.append((again.num_cached_tokens, again.output_token_ids))
    assert found[0] == found[1]
    assert found[0][0] >= len(case.prompts[0]) + DECODED * size


@of_one
def test_what_a_grammar_forces_is_drafted_unless_steps_overlap(case: Case) -> None:
    """The next step would begin before it is known which tokens the model prefers."""
    wanted = schema({"enum": ["a rather long text that is forced", "b"]})
    answers = []
    for settings in ({"overlap": "on"}, {}, DRAFTS):
        engine = case.engine(token_budget=16, **settings)
        request = ask(engine, wanted, 0)
        run_all(engine)
        answers.append(request.output_token_ids)
        follows = "overlap" not in settings
        assert engine.machine_parts.drafts.follows_grammars == follows
        assert (engine.stats()["draft_tokens"] > 0) == follows
        engine.close()
    assert answers[0] == answers[1] == answers[2]


@of_one
def test_a_draft_model_that_is_mostly_wrong(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    small = tiny_model("llama", tmp_path_factory.mktemp("draft") / "llama")
    engine = case.engine(speculate="draft", draft_model=str(small), num_drafts=3, token_budget=40)
    assert outputs(run(engine, case.prompts)) == case.expected
    stats = engine.stats()
    assert stats["accepted_draft_tokens"] < 0.5 * stats["draft_tokens"]
    assert_empty(engine)


NOTED = """

calls = []
_run_ahead, _settle = run_ahead, settle


def run_ahead(*given):
    calls.append("run_ahead")
    return _run_ahead(*given)


def settle(*given):
    calls.append("settle")
    _settle(*given)
"""


@of_one
@pytest.mark.usefixtures("guesses")
def test_a_learners_part_takes_drafts_back(case: Case, labs: Path) -> None:
    hand_in(labs, "state_cache", NOTED)
    engine = case.engine(mine="state_cache", **DRAFTS)
    assert outputs(run(engine, case.prompts[:6])) == case.expected[:6]
    calls = sys.modules["labs.state_cache"].calls
    assert 0 < calls.count("settle") < calls.count("run_ahead")
    engine.close()


@of_one
@pytest.mark.usefixtures("guesses")
def test_a_part_that_takes_none_back_has_the_reference_beside_it(
    case: Case, labs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand_in(labs, "state_cache", "\n\ndel run_ahead, settle\n")
    states._say_that_it_lacks.cache_clear()
    with caplog.at_level("WARNING", logger=states.__name__):
        engine = case.engine(mine="state_cache", **DRAFTS)
    assert [line for line in caplog.messages if "takes no drafts back" in line] == caplog.messages
    assert len(caplog.messages) == 1
    assert outputs(run(engine, case.prompts[:6])) == case.expected[:6]
    expect_some_right(engine)
    engine.close()


@of_one
@pytest.mark.usefixtures("guesses")
@pytest.mark.parametrize("name", ["short_conv", "settle"])
def test_a_learners_part_that_fails_when_drafts_are_settled_is_told(
    case: Case, labs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    hand_in(labs, "state_cache", FAULTY.format(name=name))
    engine = case.engine(mine="state_cache", **DRAFTS)
    assert outputs(run(engine, case.prompts[:8])) == case.expected[:8]
    assert engine.stats()["accepted_draft_tokens"] > 0
    settle = UnsettledStates.settle

    def failing(self: UnsettledStates, step: StepInput, gained: Any) -> None:
        faults_of("state_cache").append(IndexError("boom"))
        settle(self, step, gained)

    monkeypatch.setattr(UnsettledStates, "settle", failing)
    [request] = run(engine, case.prompts[:1])
    assert request.finish_reason is FinishReason.ERROR
    assert "your part state_cache failed: IndexError: boom" in (request.error or "")
    engine.close()
