"""An engine of three files and its tests."""

from collections.abc import Iterable
from pathlib import Path

from tests.mutants.reached import Store, TimedTest

ENGINE = """\
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

LIMIT = 3


def capped(value):
    return min(value, LIMIT)


def doubled(value):
    return 2 * value


def never(value):
    return value + 1


if __name__ == "__main__":
    print(doubled(int(sys.argv[1])))
"""
CONSTANTS = "MOST = 9\n"
USER = """\
from yaie.constants import MOST


def most():
    return MOST
"""
TEST_CAPPED = """\
import time

import pytest

from tests.helper import FIVE
from yaie.small import capped
from yaie.user import most


@pytest.fixture(scope="module")
def top():
    return capped(FIVE)


def test_of_the_fixture(top):
    assert top == 3


def test_that_shares_it(top):
    assert top < FIVE


def test_that_fails():
    assert capped(1) == 7


def test_most():
    assert most() == 9
"""
TEST_DOUBLED = """\
import subprocess
import sys


def test_in_a_process():
    command = [sys.executable, "-m", "yaie.small", "4"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "8\\n"
"""
FILES = {
    "yaie/__init__.py": "",
    "yaie/small.py": ENGINE,
    "yaie/constants.py": CONSTANTS,
    "yaie/user.py": USER,
    "tests/helper.py": "FIVE = 5\n",
    "tests/test_capped.py": TEST_CAPPED,
    "tests/test_doubled.py": TEST_DOUBLED,
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n"
    "pythonpath = ['.']\nmarkers = ['nightly', 'gpu']\n",
}
SMALL = "yaie/small.py"
JUDGED = ["tests/test_capped.py", "tests/test_doubled.py"]


def store_of(root: Path) -> Store:
    return Store(root, root / ".mutants")


def line(text: str) -> int:
    return ENGINE.splitlines().index(text) + 1


def names(tests: Iterable[TimedTest]) -> set[str]:
    return {test.name.partition("::")[2] for test in tests}
