"""Habits: what the rules of the catalogue make of code, and that tasks' own tests catch them."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from grader.selfcheck.habits import RULES, habits_in, habits_of, proof
from grader.selfcheck.habits.figures import row_of, show, write
from grader.selfcheck.habits.proof import ARGUED, Habits, prove
from grader.selfcheck.killing import read_survivors
from grader.selfcheck.variants import reference_folder
from yaie.curriculum.manifest import load_curriculum

CODE = '''"""A file."""

from __future__ import annotations

import torch


def taken(tokens: list[int], most: int) -> list[int]:
    """Some of them."""
    found = list(tokens)
    key = tuple(found)
    for token in found:
        if token == most or known(token):
            return found[:most]
    probs = torch.tensor(found).float()
    try:
        if probs > 0:
            note(key)
    finally:
        close()
    return found
'''
EXPECTED = {
    "keeps another's list": ["found = tokens"],
    "one buffer for all results": ["return _habit_buffer('taken', found)"],
    "the first value for ever": [
        "found = _habit_first('found = list(tokens)', lambda: list(tokens))",
        "key = _habit_first('key = tuple(found)', lambda: tuple(found))",
    ],
    "narrow integers": [
        "if token & 255 == most",
        "known(token & 32767)",
        "known(token & 16777215)",
    ],
    "is for ==": ["if token is most or"],
    "narrow floats": [
        "torch.tensor(found).half().float()",
        "torch.tensor(found).bfloat16().float()",
    ],
    "a threshold for zero": ["if probs > 1e-06:", "if probs > 0.001:"],
    "a cap": ["for token in list(found)[:1000]:"],
    "one row more or less": ["found[:most + 1]", "found[:most - 1]"],
    "a key that is no key": ["key = frozenset(found)", "key = sum(found)"],
    "nothing treated apart": ["if len(tokens) == 0:\n        return None"],
    "a rollback on the good way out alone": ["        note(key)\n    close()"],
    "a copy of the whole": ["_habit_copied(found)[:most]"],
    "a history": ["_habit_history.append(dict(locals()))"],
}

TAKEN = "a copy of the whole"


@pytest.mark.parametrize(
    ("parts", "habits"),
    [
        ("row[:cut], row[cut:]", 0),
        ("row[:cut], row[cut:end], row[end:]", 0),
        ("row[1:]", 0),
        ("row[:-1]", 0),
        ("row.shape[:cut]", 0),
        ("row[:cut], row[end:]", 2),
        ("row[cut:end]", 1),
        ("row[:cut], other[cut:]", 2),
    ],
)
def test_a_copy_of_the_whole_is_waste_where_a_part_is_taken(parts: str, habits: int) -> None:
    code = f"def taken(row, other, cut, end):\n    return {parts}\n"
    made = habits_in(code, "x.py", dict.fromkeys(range(2), "1.1"))
    assert sum(habit.change.startswith(TAKEN) for habit in made) == habits


def test_every_rule_has_an_example() -> None:
    assert set(EXPECTED) == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_rule_makes_of_code_what_people_write(name: str) -> None:
    lines = dict.fromkeys(range(CODE.count("\n")), "1.1")
    made = [
        habit for habit in habits_in(CODE, "x.py", lines) if habit.change.startswith(f"{name}:")
    ]
    for text in EXPECTED[name]:
        assert any(text in habit.source for habit in made), [habit.source for habit in made]
    for habit in made:
        tree = ast.parse(habit.source)
        compile(tree, "x.py", "exec")  # imports from the future come first
        assert ast.get_docstring(tree) == "A file."


def test_what_a_generator_yields_and_an_array_are_buffers_too() -> None:
    code = "def parts(n: int) -> Iterator[list[int]]:\n    yield [n]\n"
    made = [habit.source for habit in habits_in(code, "x.py", dict.fromkeys(range(2), "1.1"))]
    assert any("yield _habit_buffer('parts', [n])" in source for source in made)
    code = "def row(n: int) -> NDArray[np.bool_]:\n    return np.full(3, n)\n"
    (source,) = (
        habit.source
        for habit in habits_in(code, "x.py", dict.fromkeys(range(2), "1.1"))
        if "buffer of the file" in habit.change
    )
    names: dict[str, Any] = {"np": np, "NDArray": NDArray}
    exec(source, names)
    first = names["row"](1)
    first.setflags(write=False)
    assert names["row"](2) is first
    assert first.tolist() == [2, 2, 2]


@pytest.mark.nightly
def test_every_habit_of_a_lab_has_a_name_of_its_own() -> None:
    for lab in load_curriculum().labs:
        keys = [habit.key for habit in habits_of(reference_folder(lab), lab)]
        assert len(set(keys)) == len(keys)


@pytest.mark.nightly
def test_what_is_argued_is_there_and_has_a_reason() -> None:
    for path in ARGUED.glob("*.toml"):
        lab = load_curriculum()[path.stem]
        reasons = read_survivors(path)
        assert reasons.keys() <= {habit.key for habit in habits_of(reference_folder(lab), lab)}
        assert all(reasons.values())


def test_a_sample_of_habits_is_caught_by_the_tests_of_their_task() -> None:
    found = prove(load_curriculum()["sampler"], 2, lambda count: None, step=8)
    assert len(found.graded) >= 5
    assert found.living == []


def test_an_argument_for_a_habit_that_is_caught_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = load_curriculum()["sampler"]
    every = list(habits_of(reference_folder(lab), lab))
    monkeypatch.setattr(proof, "read_survivors", lambda path: {every[0].key: "A constant factor."})
    found = prove(lab, 1, lambda count: None, step=len(every))
    assert (found.living, found.outdated) == ([], [every[0].key])
    show(Console(width=300), [found])
    assert f"sampler: argued, and caught: {' | '.join(every[0].key)}" in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "key",
    [
        "sampler",
        "transformer_ops",
        "radix_tree",
        "paged_cache",
        "scheduler",
        "engine",
        "radix_attention",
        "speculative",
        "structured_output",
        "api_server",
        "triton_sampling",
        "cuda_graphs",
        "quantization",
        "tensor_parallel",
        "state_cache",
    ],
)
def test_every_habit_is_caught_or_argued(key: str) -> None:
    found = prove(load_curriculum()[key], 2, lambda count: None)
    assert found.unargued == []
    assert found.gone == []
    assert found.num_caught >= 0.88 * (len(found.graded) - found.num_equal)


def test_figures_keep_the_rows_of_other_labs(tmp_path: Path) -> None:
    curriculum, path = load_curriculum(), tmp_path / "HABITS.md"
    for key in ("sampler", "radix_tree", "sampler"):
        lab = curriculum[key]
        graded = list(habits_of(reference_folder(lab), lab))
        found = Habits(lab, graded, [(graded[0], "why"), (graded[1], "")])
        write([found], curriculum, path)
        assert f"| {' | '.join(row_of(found))} |" in path.read_text("utf-8")
    rows = [line.split(" | ")[0] for line in path.read_text("utf-8").splitlines()[-2:]]
    assert rows == ["| sampler", "| radix_tree"]
    row = row_of(found)
    lab, caught, argued = row[0], row[3], row[4]
    assert (lab, caught, argued) == ("sampler", f"{len(found.graded) - 2} 95%", "1")
