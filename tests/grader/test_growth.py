"""The kit that counts how a cost grows: what it sees, what it passes over, and what it says."""

import sys
from types import ModuleType

import pytest
import torch

from grader.kit.counted import CountedList
from grader.kit.expect import Fault
from grader.kit.growth import expect_growth, steps_of

SOURCE = """
from collections import deque
def constant(items): return len(items)
def loop(items):
    total = 0
    for item in items:
        total += 1
    return total
def summed(items): return sum(1 for item in items)
def square(items): return [one for one in items for other in items]
def searched(items): return items.index(items[-1])
def contained(items): return -1 in items
def sliced(items): return items[1:][0]
def copied(items): return items.copy()
def added(items): return items + [1]
def spread(items): return [*items]
def turned(items): return list(reversed(items))
def front(items):
    own = deque(range(len(items)))
    return own
def made(items): return [0] * len(items)
def calls(items, other): return other(items)
def doubled(tensor): return tensor * 2
def looked_up(tensor): return tensor[torch.tensor([1, 2])]
def viewed(tensor): return tensor[1:].reshape(-1)
def written(tensor): tensor[torch.tensor([1])] = 0.0
"""
SIZE = 64
LINEAR = (
    "loop", "summed", "searched", "contained", "sliced", "copied", "added", "spread", "turned",
)  # fmt: skip


@pytest.fixture
def part(tmp_path) -> ModuleType:
    """A learner's file."""
    module = ModuleType("a_part")
    module.__file__ = str(tmp_path / "a_part.py")
    (tmp_path / "a_part.py").write_text(SOURCE)
    module.__dict__["torch"] = torch
    exec(compile(SOURCE, module.__file__, "exec"), module.__dict__)
    return module


def on_lists(part: ModuleType, name: str, exponent: float = 0, kind: type = CountedList) -> None:
    def make(n):
        items = kind(range(n))
        return lambda: getattr(part, name)(items)

    expect_growth(
        part, name, "items", make, size=16 if name == "square" else SIZE, exponent=exponent
    )


def test_what_does_not_grow_passes(part):
    on_lists(part, "constant")
    for name in LINEAR:
        on_lists(part, name, exponent=1)
    on_lists(part, "square", exponent=2)


@pytest.mark.parametrize("name", LINEAR)
def test_what_looks_at_all_is_named_with_its_line(part, name):
    with pytest.raises(Fault) as caught:
        on_lists(part, name)
    lines = SOURCE.splitlines()
    assert caught.value.line is not None
    file, number = caught.value.line
    assert file == part.__file__
    begin = next(i for i, line in enumerate(lines, 1) if line.startswith(f"def {name}("))
    assert begin <= number <= begin + 3
    assert "steps" in caught.value.problem
    assert "64, 128 and 256 items" in caught.value.problem
    assert caught.value.expected == "a cost that does not grow"
    assert 0.9 < float(caught.value.got.removeprefix("a cost of n^")) <= 1


def test_a_square_is_more_than_linear(part):
    with pytest.raises(Fault, match=r"square takes .* with 16, 32 and 64 items"):
        on_lists(part, "square", exponent=1)


def test_work_in_c_on_its_own_lists_shows_where_it_copies(part):
    lines = SOURCE.splitlines()
    for name in ("made", "front"):
        with pytest.raises(Fault, match="bytes at once") as caught:
            on_lists(part, name, kind=list)
        assert caught.value.line is not None
        file, number = caught.value.line
        begin = next(i for i, line in enumerate(lines, 1) if line.startswith(f"def {name}("))
        assert file == part.__file__
        assert begin <= number <= begin + 1


def test_what_a_part_calls_counts_for_its_line(part):
    def other(items):
        return [item for item in items for _ in range(3)]

    steps = steps_of(lambda: part.calls(list(range(100)), other), part)
    line = SOURCE.splitlines().index("def calls(items, other): return other(items)") + 1
    assert steps[part.__file__, line] > 300
    assert steps.total() == steps[part.__file__, line]


def test_what_others_do_outside_of_the_part_does_not_count(part):
    def work():
        for _ in range(1000):
            pass
        return part.constant([])

    assert steps_of(work, part).total() == 1


def test_elements_of_tensors_count_and_views_do_not(part):
    def steps(name, size):
        tensor = torch.zeros(size)
        return steps_of(lambda: getattr(part, name)(tensor), part).total()

    assert steps("doubled", 1000) - steps("doubled", 100) == 2 * 900
    for name in ("looked_up", "viewed", "written"):
        assert steps(name, 1000) == steps(name, 100)


def test_tracing_is_as_before(part):
    before = sys.gettrace(), sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        steps_of(lambda: part.calls([], lambda items: 1 / 0), part)
    assert (sys.gettrace(), sys.getprofile()) == before
