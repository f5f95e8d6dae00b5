"""A script is called a program only if it was carried out, and led to the same again."""

from types import ModuleType

import pytest

from grader.kit.program import as_program
from grader.kit.script import note, start_script, watch
from solutions import radix_tree, sampler
from solutions.radix_tree import RadixTree


@pytest.fixture(autouse=True)
def _own_script():
    start_script()


def test_imports_and_names_that_later_calls_use_are_filled_in():
    lines = [
        "tree = RadixTree(block_size=2)",
        "tree.insert([1, 2, 3, 4], [10, 11])  # -> (0, node1)",
        "tree.lock(node1)",
        "tree.num_evictable  # -> 0",
    ]
    program = as_program(lines, radix_tree)
    assert program == (
        "from solutions.radix_tree import RadixTree",
        "tree = RadixTree(block_size=2)",
        "_, node1 = tree.insert([1, 2, 3, 4], [10, 11])  # -> (0, node1)",
        "tree.lock(node1)",
        "tree.num_evictable  # -> 0",
    )


def test_what_is_watched_is_made_where_that_leads_to_the_same():
    import torch

    filters = watch(sampler.filters, "filters")
    filters.apply_temperature(torch.tensor([[1.0, 2.0]]), torch.tensor([0.1]))
    from grader.kit.script import current_script

    program = as_program(current_script().lines, sampler)
    assert program[:2] == ("import torch", "from solutions.sampler import filters")
    space: dict = {}
    exec("\n".join(program), space)


def test_an_error_that_a_call_raised_must_come_again():
    made = "tree = RadixTree(block_size=1)"
    assert as_program([made, "tree.evict()  # raises TypeError"], radix_tree) is not None
    assert as_program([made, "tree.evict()  # raises KeyError"], radix_tree) is None
    assert as_program([made, "tree.evict(1)  # raises KeyError"], radix_tree) is None


@pytest.mark.parametrize(
    "lines",
    [
        ["tree = RadixTree(block_size=1)", "tree.insert([1], [0])  # -> (1, node1)"],
        ["tree = RadixTree(block_size=1)", "tree.insert([1], [0])"],
        ["# the tree has [1] in block 0", "RadixTree(1).num_blocks  # -> 0"],
        ["an engine with 4 blocks", "RadixTree(1).num_blocks  # -> 0"],
        ["tree.num_blocks  # -> 0"],
        ["kernels.rms_norm(tensor [3, 5])  # -> tensor [3, 5]"],
        [],
    ],
    ids=[
        "gives something else",
        "says nothing of what it gave",
        "something happens between the calls",
        "words",
        "a name without a source",
        "data that is left out",
        "no calls",
    ],
)
def test_an_account_is_no_program(lines):
    assert as_program(lines, radix_tree) is None


def test_calls_that_write_themselves_down_must_write_the_same():
    module = ModuleType("bench")

    def step(count):
        note(f"step({count})")

    module.step = step
    note("step(1)")
    assert as_program(["step(1)"], _importable(module)) is not None
    note("step(2)")
    assert as_program(["step(1)"], _importable(module)) is None


def _importable(module):
    import sys

    sys.modules[module.__name__] = module
    return module


def test_what_a_program_prints_is_dropped(capsys):
    tree = watch(RadixTree(1), "tree")
    tree.insert([1], [0])
    module = ModuleType("loud")

    class Loud(RadixTree):
        def __init__(self):
            print("loud")
            super().__init__(1)

    module.RadixTree = Loud
    start_script()
    lines = ["tree = RadixTree()", "tree.insert([1], [0])  # -> (0, node1)"]
    assert as_program(lines, _importable(module)) is not None
    assert capsys.readouterr().out == ""
