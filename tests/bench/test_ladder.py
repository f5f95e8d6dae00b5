"""`yaie bench ladder`: the rungs, the figures, and what a learner is told about their own parts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Yaie
from tests.learner import hand_in, record_pass
from tests.marks import nightly_but
from yaie.backends.cpu.build import missing
from yaie.bench import ladder
from yaie.engine.llm_engine import LLMEngine

RADIX = ("radix_attention", "torch")
SMALL = ["--requests", "4", "--prompt-tokens", "4-20", "--output-tokens", "3-6", "--repeats", "2"]


def climb(yaie: Yaie, folder: str, out: Path, *args: str) -> tuple[Ran, dict[str, Any]]:
    """Run the ladder; what it said, and its figures by rung."""
    file = out / "figures.json"
    ran = yaie("bench", "ladder", folder, *SMALL, *args, "--json", str(file))
    assert ran.code == 0, ran.err
    return ran, json.loads(file.read_text())["rungs"]


@pytest.mark.nightly
def test_each_part_that_passed_and_all_together_stand_beside_the_reference(
    yaie: Yaie, tiny_folder: str, labs: Path, tmp_path: Path
) -> None:
    for lab in ("sampler", "radix_tree", "scheduler"):
        hand_in(labs, lab)
    record_pass(labs, "sampler")
    record_pass(labs, "radix_tree")
    ran, rungs = climb(yaie, tiny_folder, tmp_path)
    assert list(rungs) == ["reference", "your sampler", "your radix_tree", "all yours"]
    assert rungs["all yours"]["mine"] == "sampler,radix_tree"
    assert rungs["reference"]["ratio"] == [1, 1]
    for figures in rungs.values():
        for key in ("tokens_per_second", "ratio", "first_token_ms", "peak_kv_usage"):
            assert len(figures[key]) == 2
            assert all(value > 0 for value in figures[key])
        assert max(figures["peak_kv_usage"]) <= 1
    assert "every rung generated exactly the reference's tokens" in ran.out
    assert "all tasks passed" in ran.err


@pytest.mark.nightly
def test_one_part_needs_no_rung_for_all(
    yaie: Yaie, tiny_folder: str, labs: Path, tmp_path: Path
) -> None:
    hand_in(labs, "sampler")
    _, rungs = climb(yaie, tiny_folder, tmp_path, "--mine", "sampler")
    assert list(rungs) == ["reference", "your sampler"]


@pytest.mark.nightly
def test_a_part_that_gives_other_tokens_is_named(
    yaie: Yaie, tiny_folder: str, labs: Path, tmp_path: Path
) -> None:
    worst = "\nSampler.sample = lambda self, logits, batch: logits.argmin(-1)\n"
    hand_in(labs, "sampler", worst)
    hand_in(labs, "scheduler")
    ran, rungs = climb(yaie, tiny_folder, tmp_path, "--mine", "sampler,scheduler")
    assert "your sampler: 4 of 4 answers differ" in ran.out
    assert "to request 1 from output token 1 on" in ran.out
    assert "your scheduler:" not in ran.out
    assert rungs["your sampler"]["differing"][0] == {"request": 0, "token": 0}
    assert rungs["your scheduler"]["differing"] == []


@pytest.mark.nightly
def test_a_part_that_fails_is_named_and_the_others_are_measured(
    yaie: Yaie, tiny_folder: str, labs: Path, tmp_path: Path
) -> None:
    hand_in(labs, "sampler", "\nSampler.sample = lambda self, logits, batch: 1 // 0\n")
    hand_in(labs, "scheduler")
    ran, rungs = climb(yaie, tiny_folder, tmp_path, "--mine", "sampler,scheduler")
    assert "your sampler: your part sampler failed: ZeroDivisionError" in ran.out
    assert rungs["your sampler"]["tokens_per_second"] == []
    assert "labs/sampler/__init__.py, line" in rungs["all yours"]["failure"]
    assert len(rungs["your scheduler"]["ratio"]) == 2


def test_without_a_part_of_ones_own_it_says_what_to_do(yaie: Yaie, labs: Path) -> None:
    ran = yaie("bench", "ladder")
    assert ran.code == 2
    assert "grade them with `make grade`" in ran.err
    assert "--mine sampler" in ran.err


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize(("lab", "backend"), nightly_but([RADIX], [RADIX, ("sampler", "cpu")]))
def test_your_attention_stands_beside_lab_5_of_the_reference_and_not_beside_cpp(
    lab: str,
    backend: str,
    yaie: Yaie,
    tiny_folder: str,
    labs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: set[str] = set()

    class Recorded(LLMEngine):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            used.add(self.backend.name)

    monkeypatch.setattr(ladder, "LLMEngine", Recorded)
    hand_in(labs, lab)
    climb(yaie, tiny_folder, tmp_path, "--mine", lab, "--device", "cpu")
    assert used == {backend}
