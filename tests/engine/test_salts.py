"""`cache_salt`: prefixes are shared only with requests of the same salt."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.constrained import run
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import InvalidRequestError
from yaie.core.output import Submitted
from yaie.core.request import Request
from yaie.core.salted import SaltedToken, salted
from yaie.engine.input.salts import check_salts

PROMPT = [7 + index % 50 for index in range(70)]
LOOPS: list[dict[str, Any]] = [{}, {"overlap": "on"}, {"speculate": "ngram"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(params=LOOPS, ids=["plain", "overlapped", "drafts"])
def engine(folder: Path, request: pytest.FixtureRequest) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=200, **request.param)


def ask(engine: LLMEngine, salt: str | None, **params: Any) -> list[Request]:
    wanted = {"temperature": 0, "max_tokens": 6, "cache_salt": salt, **params}
    return engine.add_request(PROMPT, SamplingParams(**wanted))


def test_as_many_tokens_are_computed_as_without_what_others_cached(engine: LLMEngine) -> None:
    (cold,) = ask(engine, "a")
    run(engine, cold)
    outputs, cached = [cold.output_token_ids], []
    for salt in ("b", None, "", "ab", "a"):
        (one,) = ask(engine, salt or None)
        before = engine.stats()
        run(engine, one)
        after = engine.stats()
        cached.append(one.num_cached_tokens)
        computed = after["prompt_tokens"] - before["prompt_tokens"]
        found = after["cached_tokens"] - before["cached_tokens"]
        assert (computed, found) == (len(PROMPT), one.num_cached_tokens)
        outputs.append(one.output_token_ids)
    assert cached == [0, 0, 64, 0, 64], "None and no salt at all are the same"
    assert outputs == [outputs[0]] * len(outputs)


def test_nobody_waits_for_what_another_computes(engine: LLMEngine) -> None:
    """Requests with the same beginning wait for the first of them, if they will find it cached."""
    (first,), (same,), (other,) = ask(engine, "a"), ask(engine, "a"), ask(engine, "b")
    run(engine, first, same, other)
    assert [one.num_cached_tokens for one in (first, same, other)] == [0, 64, 0]


def test_siblings_share_a_prompt_and_the_cache_keeps_it(engine: LLMEngine) -> None:
    siblings = ask(engine, "a", n=3, temperature=1.0, seed=1)
    run(engine, *siblings)
    assert [one.num_cached_tokens for one in siblings[1:]] == [len(PROMPT) - 1] * 2
    plain = ask(engine, None, n=3, temperature=1.0, seed=1)
    run(engine, *plain)
    assert [one.output_token_ids for one in siblings] == [one.output_token_ids for one in plain]
    assert engine.reset_prefix_cache() > 0
    engine.check()


@pytest.mark.parametrize("how", [{}, {"preemption": "swap", "swap_space": 0.01}])
def test_salted_requests_come_through_preemptions(folder: Path, how: dict[str, Any]) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=20, watermark=0.0, **how)
    mine = [ask(engine, salt, max_tokens=100, ignore_eos=True)[0] for salt in ("a", "b", "a", None)]
    run(engine, *mine)
    assert engine.stats()["preemptions"] > 0
    assert len({tuple(one.output_token_ids) for one in mine}) == 1


def test_what_leaves_the_engine_has_no_salt(engine: LLMEngine) -> None:
    (request,) = ask(engine, "secret")
    told = Submitted.of(request)
    assert {type(token) for token in told.prompt_token_ids} == {int}
    assert json.dumps(told.prompt_token_ids) == json.dumps(PROMPT)
    run(engine, request)


def test_a_salted_token_is_the_number_but_for_questions_of_equality() -> None:
    token = SaltedToken(5, "a")
    assert int(token) == 5
    assert token + 1 == 6
    assert json.dumps([token]) == "[5]"
    assert torch.tensor([token]).tolist() == [5]
    assert token == SaltedToken(5, "a")
    assert hash(token) == hash(SaltedToken(5, "a"))
    for other in (5, SaltedToken(5, "b"), SaltedToken(6, "a")):
        assert token != other
        assert not token == other  # noqa: SIM201
    assert salted([5, 6], "a") == [SaltedToken(5, "a"), 6]


class NumbersAlone:
    """A tree that packs tokens into bytes before it looks for them."""

    def __init__(self, block_size: int) -> None:
        self._known: dict[bytes, int] = {}

    def insert(self, tokens: list[int], blocks: list[int]) -> tuple[int, None]:
        for end, block in enumerate(blocks, 1):
            self._known[bytes(tokens[:end])] = block
        return 0, None

    def peek(self, tokens: list[int], most: int) -> list[int]:
        ends = range(1, min(most, len(tokens)) + 1)
        return [self._known[key] for end in ends if (key := bytes(tokens[:end])) in self._known]


class Parts:
    """Of which the radix tree is a learner's."""

    def __init__(self, tree: Any) -> None:
        self.RadixTree = tree

    def __getitem__(self, lab: str) -> Any:
        return self

    def table(self) -> list[Any]:
        class Row:
            lab, is_yours = "radix_tree", True

        return [Row()]


def test_a_tree_that_looks_at_numbers_alone_is_found_out(engine: LLMEngine) -> None:
    numbers: Any = Parts(NumbersAlone)
    with pytest.raises(InvalidRequestError, match="does not tell salted prompts apart"):
        check_salts(numbers)
    broken: Any = Parts(lambda block_size: None)
    with pytest.raises(InvalidRequestError, match="does not tell salted prompts apart"):
        check_salts(broken)
    sound: Any = Parts(engine.backend.parts["radix_tree"].RadixTree)
    check_salts(sound)
    check_salts(engine.backend.parts)


@pytest.mark.parametrize(("salt", "why"), [("", "not an empty one"), (5, "a string"),
                                           ("a" * 257, "at most 256 characters")])  # fmt: skip
def test_a_salt_must_be_one(salt: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        SamplingParams(cache_salt=salt)
