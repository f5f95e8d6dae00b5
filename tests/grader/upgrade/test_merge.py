"""Three files become one: what a learner wrote keeps its place on a stub that has changed."""

from pathlib import Path, PurePath

import pytest

from grader.regions import make_stub
from grader.stubs import generate
from grader.upgrade.changes import renamed
from grader.upgrade.merge import carry_over
from grader.upgrade.package import upgrade_package
from grader.upgrade.places import read_items
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import SOURCES

LAB = load_curriculum()["paged_cache"]
FILE = PurePath("solutions/paged_cache/blocks.py")
SOLUTION = '''"""Blocks."""

from collections import deque


class BlockManager:
    """Hands out blocks."""

    def __init__(self, size):
        self.free = deque(range(size))

    def allocate(self):
        """One block."""
        # BEGIN SOLUTION 3.1
        block = self.free.popleft()
        return block
        # END SOLUTION

    def release(self, block):
        """Give one back."""
        # BEGIN SOLUTION 3.2
        self.free.append(block)
        # END SOLUTION
'''
MINE = "        return self.free.pop()\n"


def stub_of(source: str) -> str:
    return make_stub(source, FILE, LAB)


def filled(stub: str, task: str, code: str) -> str:
    """A stub with one task's place written over."""
    lines = stub.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if f"TODO {task}:" in line)
    return "".join([*lines[:at], code, *lines[at + 4 :]])


def carried(then: str, mine: str, now: str):
    return carry_over(read_items(then, FILE), read_items(mine, FILE), read_items(now, FILE))


def text(result) -> str:
    return "\n".join(result.lines) + "\n"


THEN = stub_of(SOLUTION)


@pytest.mark.parametrize("key", load_curriculum().keys)
def test_a_complete_package_on_the_stubs_that_it_was_written_on_stays_as_it_is(key):
    lab = load_curriculum()[key]
    then = package(key, generate(ROOT))
    mine = package(key, generate(ROOT, [task.id for task in lab.tasks]))
    upgraded = upgrade_package(then, mine, then, [])
    assert upgraded.files == mine
    assert not upgraded.open
    assert not upgraded.left_out


def package(key: str, files: dict[Path, str]) -> dict[str, str]:
    return {
        path.relative_to("labs", key).as_posix(): text
        for path, text in files.items()
        if path.parts[1] == key and path.suffix in SOURCES
    }


def test_given_code_is_renewed_around_what_was_written():
    now = stub_of(SOLUTION.replace('"""One block."""', '"""The oldest free block."""'))
    result = carried(THEN, filled(THEN, "3.1", MINE), now)
    assert text(result) == filled(now, "3.1", MINE)
    assert (result.left, result.open) == ((), ())


def test_the_references_number_of_lines_is_no_difference():
    now = stub_of(
        SOLUTION.replace("        return block\n", "        assert True\n        return block\n")
    )
    result = carried(THEN, filled(THEN, "3.1", MINE), now)
    assert text(result) == filled(now, "3.1", MINE)


def test_a_function_that_moved_past_another_takes_its_code_along():
    head, allocate, release = SOLUTION.replace("    def ", "\0    def ").split("\0")[1:]
    now = stub_of(SOLUTION.split("    def ")[0] + head + release + "\n" + allocate.rstrip() + "\n")
    result = carried(THEN, filled(THEN, "3.1", MINE), now)
    assert text(result) == filled(now, "3.1", MINE)


def test_code_follows_its_place_to_another_depth():
    deeper = SOLUTION.replace(
        "        # BEGIN SOLUTION 3.2\n        self.free.append(block)\n        # END SOLUTION\n",
        "        if block is not None:\n            # BEGIN SOLUTION 3.2\n"
        "            self.free.append(block)\n            # END SOLUTION\n",
    )
    result = carried(
        THEN, filled(THEN, "3.2", "        self.free.append(block)  # mine\n"), stub_of(deeper)
    )
    assert "        if block is not None:\n            self.free.append(block)  # mine\n" in text(
        result
    )


def test_a_new_place_stays_a_stub_and_is_told():
    more = SOLUTION + (
        "\n    def size(self):\n        # BEGIN SOLUTION 3.2\n        return 1\n        # END SOLUTION\n"
    )
    now = stub_of(more)
    result = carried(THEN, filled(THEN, "3.2", "        self.free.append(block)\n"), now)
    ((place, line),) = result.open
    assert (place.task, place.scope) == ("3.2", "BlockManager.size")
    assert "TODO 3.2" in result.lines[line - 1]


def test_a_place_that_was_left_open_is_not_told():
    assert not carried(THEN, THEN, stub_of(SOLUTION)).open


def test_a_comment_that_the_learner_left_above_their_code_goes():
    todo = "        # TODO 3.1: your code here (the reference: 2 lines).\n"
    result = carried(THEN, filled(THEN, "3.1", todo + MINE), THEN)
    assert text(result) == filled(THEN, "3.1", MINE)


def test_imports_and_helpers_of_the_learners_own_are_kept():
    mine = filled(THEN, "3.1", MINE).replace(
        "from collections import deque\n",
        "import math\nfrom collections import deque\n\nMORE = 3\n",
    )
    now = stub_of(SOLUTION.replace('"""Blocks."""', '"""Blocks of memory."""'))
    result = carried(THEN, mine, now)
    assert "import math\nfrom collections import deque\n\nMORE = 3\n" in text(result)
    assert not result.left


def test_a_line_of_given_code_that_both_have_changed_is_todays_and_the_learners_is_told():
    mine = filled(THEN, "3.1", MINE).replace("deque(range(size))", "list(range(size))")
    now = stub_of(SOLUTION.replace("deque(range(size))", "deque(range(1, size))"))
    result = carried(THEN, mine, now)
    assert text(result) == filled(now, "3.1", MINE)
    (left,) = result.left
    assert left.lines == ("        self.free = list(range(size))",)
    assert mine.splitlines()[left.line - 1] == left.lines[0]


def test_a_line_of_given_code_that_only_the_learner_has_changed_is_theirs():
    mine = THEN.replace("deque(range(size))", "list(range(size))")
    assert text(carried(THEN, mine, stub_of(SOLUTION))) == mine


def test_code_whose_function_is_gone_is_told():
    mine = filled(THEN, "3.2", "        self.free.append(block)\n")
    result = carried(
        THEN, mine, stub_of(SOLUTION[: SOLUTION.index("    def release")].rstrip() + "\n")
    )
    assert [line.strip() for left in result.left for line in left.lines] == [
        "self.free.append(block)"
    ]


def test_names_change_in_code_and_not_in_comments_or_strings():
    source = 'seat = table.seat  # a seat\nprint("seat", seats)\n'
    assert (
        renamed(source, {"seat": "row"}, FILE)
        == 'row = table.row  # a seat\nprint("seat", seats)\n'
    )
    assert renamed("int seat = 1;", {"seat": "row"}, PurePath("a.cu")) == "int row = 1;"


def test_what_is_no_python_is_left_out_with_its_line_and_the_rest_goes_on():
    mine = {
        "a.py": THEN.replace("def release(self, block):", "def release(self block):"),
        "b.py": "X = 1\n",
    }
    upgraded = upgrade_package(
        {"a.py": THEN, "b.py": "X = 1\n"}, mine, {"a.py": THEN, "b.py": "X = 2\n"}, []
    )
    (left,) = upgraded.left_out
    assert (left.file, left.line > 0) == ("a.py", True)
    assert "cannot be read" in left.why
    assert upgraded.files == {"a.py": THEN, "b.py": "X = 2\n"}


def test_files_that_the_learner_added_stay_and_those_that_we_removed_go():
    then = {"a.py": "A = 1\n", "old.py": "B = 1\n"}
    mine = {**then, "notes.py": "C = 1\n"}
    upgraded = upgrade_package(then, mine, {"a.py": "A = 1\n"}, [])
    assert upgraded.files == {"a.py": "A = 1\n", "old.py": None, "notes.py": "C = 1\n"}
    assert not upgraded.left_out
