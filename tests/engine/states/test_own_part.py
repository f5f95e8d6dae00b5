"""Hybrids on a learner's lab 22: it computes, it goes before C++, its faults are told, and a model of
attention alone never loads it."""

import sys
from pathlib import Path

import pytest
import torch

from tests.learner import faults_of, hand_in, hand_in_faulty
from yaie.backends.states import make_state_ops
from yaie.backends.states.torch import TorchStateOps
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.demos.hybrid import tiny_hybrid
from yaie.demos.runs import run
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import load_parts

LAB = "state_cache"
TOKENS = [(7 * at * at + 3 * at) % 509 for at in range(90)]
PARAMS = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_hybrid(tmp_path_factory.mktemp("hybrid") / "model", vocab=512))


def engine(model: str, mine: str) -> LLMEngine:
    return LLMEngine(model=model, device="cpu", num_blocks=64, mine=mine)


def test_a_learners_part_goes_before_cpp(labs: Path) -> None:
    hand_in(labs, LAB)
    parts = load_parts(LAB, labs=[LAB])
    assert type(make_state_ops("cpu", parts, torch.device("cpu"))) is TorchStateOps


def test_hybrids_run_on_a_learners_part(model: str, labs: Path) -> None:
    hand_in(labs, LAB)
    prompts = [TOKENS, [*TOKENS[:80], 1, 2, 3], TOKENS[:50]]
    answers = []
    for mine in ("none", LAB):
        one = engine(model, mine)
        answers.append([run(one, prompts, PARAMS).token_ids for _ in range(2)])
        owners = {part.lab: part.owner for part in one.info.parts}
        assert owners[LAB] == ("yours" if mine == LAB else "reference")
        one.close()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("where", ["short_conv", "read_states", "StatePool.copy"])
def test_a_fault_of_a_learners_part_is_told(model: str, labs: Path, where: str) -> None:
    if "." in where:
        hand_in_faulty(labs, LAB, where)
    else:
        hand_in(labs, LAB, FAULTY.format(name=where))
    mine = engine(model, LAB)
    (request,) = mine.add_request(TOKENS, PARAMS)
    faults_of(LAB).append(IndexError("boom"))
    while mine.has_work:
        mine.step()
    assert request.finish_reason is FinishReason.ERROR
    assert f"your part {LAB} failed: IndexError: boom" in (request.error or "")
    mine.close()


FAULTY = """

faults = []
_real = {name}


def {name}(*args, **kwargs):
    if faults:
        raise faults.pop(0)
    return _real(*args, **kwargs)
"""


def test_dense_models_do_not_load_it(labs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "solutions.state_cache", raising=False)
    plain = LLMEngine(model="tutor", device="cpu", num_blocks=64, mine="none")
    assert LAB not in [part.lab for part in plain.info.parts]
    assert "solutions.state_cache" not in sys.modules
    plain.close()
