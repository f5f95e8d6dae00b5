"""A hole in given code is an empty function today: its surroundings go with the learner's lines."""

from pathlib import PurePath

import pytest

from grader.regions import make_stub
from grader.stubs import generate
from grader.upgrade.changes import changes_since, stubs_of
from grader.upgrade.keep import stubs_of_today
from grader.upgrade.package import Upgraded, upgrade_package
from yaie.curriculum.manifest import ROOT, load_curriculum

LAB = load_curriculum()["tensor_parallel"]
FILE = PurePath("solutions/tensor_parallel/stage.py")
THEN = '''"""Stages."""


class Stage:
    """One of them."""

    def run(self, count):
        """All of it."""
        results = []
        # BEGIN SOLUTION 20.9
        for index in range(count):
            results.append(self._ask(index))
        # END SOLUTION
        return results

    def _ask(self, index):
        """One input."""
        # BEGIN SOLUTION 20.9
        return index
        # END SOLUTION
'''
NOW = '''"""Stages."""


class Stage:
    """One of them."""

    def run(self, count):
        """All of it, in count steps."""
        # BEGIN SOLUTION 20.9
        return list(range(count))
        # END SOLUTION

    # BEGIN SOLUTION 20.9
    def _helper(self):
        return 1

    # END SOLUTION
'''
LOOP = "        for index in range(count):\n            results += [self._ask(index)]\n"


def stub_of(source: str) -> str:
    return make_stub(source, FILE, LAB)


def filled(stub: str, *codes: str) -> str:
    """A stub with its places written over, from the first on."""
    lines = stub.splitlines(keepends=True)
    for code in codes:
        at = next(n for n, line in enumerate(lines) if "TODO 20.9: your code here" in line)
        lines[at : at + 4] = [code]
    return "".join(lines)


def upgraded(mine: str) -> Upgraded:
    return upgrade_package(
        {"stage.py": stub_of(THEN)}, {"stage.py": mine}, {"stage.py": stub_of(NOW)}, []
    )


def test_a_finished_function_takes_along_what_surrounded_it_and_its_helpers():
    mine = filled(stub_of(THEN), LOOP, "        return index\n")
    done = upgraded(mine)
    assert (done.open, done.left_out) == ((), ())
    text = done.files["stage.py"]
    body = f"        results = []\n{LOOP}        return results\n"
    assert f'"""All of it, in count steps."""\n{body}' in text
    assert '    def _ask(self, index):\n        """One input."""\n        return index\n' in text
    assert "TODO" not in text


def test_an_untouched_stub_is_todays():
    assert upgraded(stub_of(THEN)).files == {"stage.py": stub_of(NOW)}


def test_a_helper_that_is_not_written_is_not_carried_over_and_what_is_written_is():
    text = upgraded(filled(stub_of(THEN), LOOP)).files["stage.py"]
    assert LOOP in text
    assert "def _ask" not in text
    assert "TODO 20.9, if you like: helpers of your own" in text
    (begun,) = upgraded(filled(stub_of(THEN), LOOP, "        return 7\n")).files.values()
    assert "return 7" in begun


@pytest.mark.parametrize(
    "key", ["triton_paged_attention", "cuda_graphs", "tensor_parallel", "state_cache"]
)
def test_the_stubs_of_the_edition_before_become_todays(key):
    lab = load_curriculum()[key]
    now = stubs_of_today(lab)
    then = stubs_of(lab, lab.edition - 1)
    done = upgrade_package(then, then, now, changes_since(lab, lab.edition - 1))
    assert (done.files, done.open, done.left_out) == (now, (), ())


def test_a_given_kernel_stays_only_where_the_functions_that_it_calls_were_written():
    lab = load_curriculum()["triton_paged_attention"]
    now, then = stubs_of_today(lab), stubs_of(lab, 1)
    old = then["prefill.py"]
    mine = old.replace("def find_tile(", "def find_tile_(")  # a stranger to today's form
    done = upgrade_package(then, {**then, "prefill.py": mine}, now, [])
    assert "seq, first = find_tile(" not in done.files["prefill.py"]


def test_the_reference_itself_needs_no_upgrade():
    files = {
        path.name: text
        for path, text in generate(ROOT, [task.id for task in LAB.tasks]).items()
        if path.parts[1] == LAB.key and path.suffix == ".py"
    }
    now = stubs_of_today(LAB)
    assert upgrade_package(now, files, now, []).files == files
