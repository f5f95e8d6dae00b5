"""`make break` without running anything: what is drawn, what an attack may use, when outcomes differ."""

import ast
import math

import pytest
import torch

from grader.breaking.attacks import read_attacks
from grader.breaking.draw import LETTERS, draw, num_rounds, usable
from grader.breaking.outcome import apart, raised, returned, same
from grader.breaking.template import text_for, write_template
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab, load_curriculum

LABS = load_curriculum().labs
TREE = load_curriculum()["radix_tree"]


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_every_lab_has_two_rounds_of_ten_that_share_nothing(lab: Lab) -> None:
    assert num_rounds(lab) >= 2
    names = [version.wrong.name for number in (1, 2) for version in draw(lab, number)]
    assert len(set(names)) == 2 * len(LETTERS)
    assert set(names) <= {wrong.name for wrong in usable(lab)}


def test_the_draw_is_the_same_for_every_learner() -> None:
    assert [version.wrong.name for version in draw(TREE, 1)] == [
        "peek_hands_out_the_nodes_list",
        "insert_returns_what_is_new",
        "split_makes_a_young_upper_half",
        "split_moves_the_locks",
        "whole_leaves_evicted",
        "split_forgets_the_locks",
        "lock_without_the_path",
        "tokens_left_behind",
        "locks_do_not_count",
        "unlocking_counts_as_a_use",
    ]


def test_a_round_that_a_lab_does_not_have() -> None:
    with pytest.raises(ConfigError, match=r"has 3 rounds of 10 versions; there is no round 4"):
        draw(TREE, 4)


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_each_labs_file_has_an_example_that_counts(lab: Lab, tmp_path) -> None:
    file = tmp_path / "breaks" / f"{lab.key}.py"
    assert write_template(file, lab)
    assert not write_template(file, lab)
    (attack,) = read_attacks(file, lab.key, file.name)
    assert not attack.refused
    text = file.read_text("utf-8")
    assert ast.get_docstring(ast.parse(text), clean=False) == text_for(lab).strip().strip('"')
    assert max(map(len, text.splitlines())) <= 105


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("return part.RadixTree(2)._root", "._root is private"),
        ("return part.__file__", ".__file__ is private"),
        ("return getattr(part, 'RadixTree')", "getattr reaches"),
        ("import inspect", "does not import inspect"),
        ("from grader.kit import task", "does not import grader.kit.task"),
        ("from yaie.parts import Parts", "leads to files"),
        ("from solutions import radix_tree", "the references of other labs alone"),
        ("return open('x')", "open reaches"),
    ],
)
def test_what_no_contract_promises_is_refused_by_name(code: str, why: str, tmp_path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"def attack_one(part):\n    {code}\n\n\ndef attack_two(part):\n    return 1\n")
    one, two = read_attacks(file, "radix_tree", "a.py")
    assert one.refused.startswith("It is refused: line 2: ")
    assert why in one.refused
    assert not two.refused


def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def attack(:\n")
    with pytest.raises(ConfigError, match=r"^breaks/a.py, line 1: "):
        read_attacks(file, "radix_tree", "breaks/a.py")
    file.write_text("import os\n")
    with pytest.raises(ConfigError, match=r"line 1: an attack does not import os"):
        read_attacks(file, "radix_tree", "breaks/a.py")


def test_an_attack_is_another_one_when_it_or_what_it_shares_changes(tmp_path) -> None:
    file = tmp_path / "a.py"

    def keys(text: str) -> list[str]:
        file.write_text(text)
        return [attack.key for attack in read_attacks(file, "radix_tree", "a.py")]

    two = "def attack_a(part):\n    return N\n\n\ndef attack_b(part):\n    return {}\n"
    before = keys("N = 1\n" + two.format(1))
    assert keys("N = 1  # the same\n\n" + two.format(1)) == before
    first, second = keys("N = 1\n" + two.format(2))
    assert (first == before[0], second == before[1]) == (True, False)
    assert not set(keys("N = 2\n" + two.format(1))) & set(before)


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ([1, (2, "x")], (1, [2, "x"]), True),
        (1, True, False),
        (1.0, 1.0 + 1e-7, True),
        (1.0, 1.001, False),
        (math.nan, math.nan, True),
        (math.inf, -math.inf, False),
        ({"b": {2, 1}, "a": b"x"}, {"a": b"x", "b": {1, 2}}, True),
        (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]), True),
        (torch.tensor([1.0]), torch.tensor([1.0]).double(), False),
        (torch.tensor([1, 2]), torch.tensor([[1, 2]]), False),
        (torch.tensor([1.0, 2.0]).bfloat16(), torch.tensor([1.0, 2.01]).bfloat16(), True),
        (torch.tensor([2**24]), torch.tensor([2**24 + 1]), False),
    ],
)
def test_outcomes_differ_beyond_rounding(one: object, other: object, are_same: bool) -> None:
    assert same(returned(one), returned(other)) is are_same
    assert same(returned(other), returned(one)) is are_same


def test_an_exception_is_an_outcome_by_its_class() -> None:
    assert same(raised(KeyError("a")), raised(KeyError("b")))
    assert not same(raised(KeyError("a")), raised(ValueError("a")))
    assert not same(raised(KeyError("a")), returned(None))


def test_the_first_difference_is_shown() -> None:
    one, other = returned([[1, 2], [3, [4, 5]]]), returned([[1, 2], [3, [4, 6]]])
    assert apart(one, other) == ("5", "6", " in place [1][1][1]")


def test_what_cannot_be_compared_is_refused() -> None:
    assert "an object of Lab" in returned([TREE])["cannot"]
    assert "more than 20,000 values" in returned(torch.zeros(20_001))["cannot"]
    assert not same(returned([TREE]), returned([]))
