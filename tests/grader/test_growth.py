"""The kit that counts how a cost grows: what it sees, what it passes over, and what it says."""

import builtins
import sys
from types import ModuleType

import pytest
import torch

from grader.kit import own_lists
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
class Kept:
    def __init__(self, n): self.items = [object() for _ in range(n)]
    def popped(self): self.items.pop(0)
    def popped_by_name(self):
        pop = self.items.pop
        return pop(0)
    def contained(self): return None in self.items
    def lacked(self): return None not in self.items
    def in_a_deque(self): return None in deque(self.items, 10**6)
    def cut(self): return self.items[:-1]
    def deleted(self): del self.items[0]
    def cleared(self): del self.items[:2]
    def led(self): self.items[:0] = [None]
    def least(self): return min(self.items, key=id)
    def listed(self): return list(self.items)
    def ordered(self): return sorted(self.items, key=id)
    @property
    def has_none(self): return None in self.items
    @staticmethod
    def of_lambda(items): return (lambda: None in items)()
    def last(self): return self.items.pop()
    def last_again(self):
        item = self.items.pop(-1)
        self.items.append(item)
    def first(self): return self.items[0] in self.items
    def last_two(self): return self.items[-2:]
    def last_gone(self): del self.items[-1]
    def middle(self):
        del self.items[len(self.items) // 2]
        self.items.pop(len(self.items) // 2)
    def longer(self): self.items[len(self.items):] = [None]
    def keyed(self): return None in {1: 2}, "a" in "cab", sum([1, 2]), max(1, 2)
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


OWN = (
    "popped", "popped_by_name", "contained", "lacked", "in_a_deque", "cut", "deleted", "cleared", "led",
    "least", "listed", "ordered", "has_none", "of_lambda",
)  # fmt: skip


def on_its_own(part: ModuleType, name: str) -> None:
    def make(n):
        kept = part.Kept(n)
        if name == "has_none":
            return lambda: kept.has_none
        return (lambda: kept.of_lambda(kept.items)) if name == "of_lambda" else getattr(kept, name)

    expect_growth(part, name, "items", make, memory=False)


@pytest.mark.parametrize("name", OWN)
def test_work_in_c_on_its_own_lists_counts(part, name):
    for _ in range(2):  # the second time the function has its own code again
        with pytest.raises(Fault, match="steps") as caught:
            on_its_own(part, name)
        assert 0.9 < float(caught.value.got.removeprefix("a cost of n^")) <= 1.1
        assert caught.value.line is not None
        assert f" {name}(" in "".join(SOURCE.splitlines()[caught.value.line[1] - 3 :][:3])


@pytest.mark.parametrize(
    "name", ["last", "last_again", "first", "last_two", "last_gone", "middle", "longer", "keyed"]
)
def test_what_is_short_on_a_long_list_passes(part, name):
    on_its_own(part, name)


def test_a_function_that_has_run_often_counts_as_before(part):
    kept = part.Kept(100)
    for _ in range(5000):
        kept.contained()
    line = SOURCE.splitlines().index("    def contained(self): return None in self.items") + 1
    assert steps_of(kept.contained, part)[part.__file__, line] == 101


def test_functions_have_their_own_code_afterwards(part):
    code = part.Kept.contained.__code__
    with pytest.raises(AttributeError):
        steps_of(part.Kept.contained.__get__(object()), part)
    assert part.Kept.contained.__code__ is code
    assert not any(name in vars(builtins) for name in own_lists.HELPERS)


def test_a_file_that_has_changed_since_is_left_alone(part, tmp_path):
    (tmp_path / "a_part.py").write_text(SOURCE.replace("None in self.items", "0 in self.items"))
    steps = steps_of(part.Kept(100).contained, part)
    assert steps.total() == 1
    (tmp_path / "a_part.py").unlink()
    assert steps_of(part.Kept(101).contained, part).total() == 1


def test_operators_do_what_they_did(part, tmp_path):
    source = """
def work(log):
    def said(name, value):
        log.append(name)
        return value
    items = list(range(9))
    found = said("a", 3) in said("b", items), said("c", 30) not in said("d", items)
    cut = said("e", items)[said("f", 1):said("g", 7):said("h", 2)], items[:], (1, 2)[1:], "word"[1:3]
    del items[0], items[-1]
    said("k", items)[said("l", 1):said("m", 1)] = said("j", [20, 21])
    items[::2] = [-one for one in items[::2]]
    del items[:2]
    del items[said("i", 0)]
    class Odd:
        __contains__ = lambda self, item: item == 5
        def __getitem__(self, index): return index
    odd = 5 in Odd(), 6 in Odd(), Odd()[1:2], 1 < 2 in items
    return found, cut, items, odd, sum(items, 100), max(*items), sorted(items, reverse=True), list()
"""
    module, file = ModuleType("another"), tmp_path / "another.py"
    module.__file__ = str(file)
    file.write_text(source)
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    plain, counted = [], []
    right, found = module.work(plain), []
    steps_of(lambda: found.append(module.work(counted)), module)
    assert found == [right]
    assert counted == plain == list("abcdefghjklmi")


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
