"""Where a test fails by what a module keeps between calls, the report names the variable."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from grader.kit.kept import Memory, with_cause
from grader.kit.memory import HISTORY

Imported = Callable[[str], ModuleType]


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Imported]:
    """Imports a part of one file."""
    name = "a_part_that_keeps"

    def load(source: str) -> ModuleType:
        file = tmp_path / "part.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = part = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(part)
        return part

    yield load
    sys.modules.pop(name, None)


def cause(part: ModuleType, test: Callable[[], None], *earlier: int) -> str:
    """What is found after calls with these numbers and a failure of the test."""
    memory = Memory(part)
    for number in earlier:
        part.double(number)
    with pytest.raises(AssertionError):
        test()
    return memory.cause_of(test)


KEEPS = {
    "a dict": (
        "_first (part.py)",
        "_first = {}\ndef double(n): return _first.setdefault(0, 2 * n)",
    ),
    "a global": (
        "_first (part.py)",
        (
            "_first = None\ndef double(n):\n    global _first\n    _first = _first or 2 * n\n"
            "    return _first"
        ),
    ),
    "a new global": (
        "_first (part.py)",
        "def double(n):\n    globals().setdefault('_first', 2 * n)\n    return _first",
    ),
    "a default argument": (
        "a default argument of double (part.py)",
        "def double(n, kept=[]):\n    kept.append(2 * n)\n    return kept[0]",
    ),
    "a function's attribute": (
        "double.first (part.py)",
        "def double(n):\n    double.first = getattr(double, 'first', 2 * n)\n    return double.first",
    ),
    "an attribute of a class": (
        "Twice.first (part.py)",
        (
            "class Twice:\n    first = []\n    def of(self, n):\n        self.first.append(2 * n)\n"
            "        return self.first[0]\ndef double(n): return Twice().of(n)"
        ),
    ),
    "a cache": (
        "the cache of _made (part.py)",
        (
            "from functools import cache\nasked = [0]\n@cache\ndef _made(): return 2 * asked[0]\n"
            "def double(n):\n    asked[0] = n\n    return _made()"
        ),
    ),
}


@pytest.mark.parametrize("kind", KEEPS)
def test_a_value_of_an_earlier_call_is_told_with_its_variable(
    imported: Imported, kind: str
) -> None:
    name, source = KEEPS[kind]
    part = imported(source)

    def test() -> None:
        assert [part.double(3), part.double(5)] == [6, 10]

    told = cause(part, test, 7)
    assert told == name


def test_a_memory_that_is_right_is_not_blamed(imported: Imported) -> None:
    part = imported("_seen = {}\ndef double(n): return _seen.setdefault(n, 2 * n + (n == 5))")

    def test() -> None:
        assert part.double(5) == 10

    assert cause(part, test, 3) == ""


def test_a_call_inside_the_part_sees_what_its_caller_kept(imported: Imported) -> None:
    part = imported(
        "_now = []\ndef _half(): return _now[0]\ndef double(n):\n    _now.append(n)\n"
        "    return 2 * _half()"
    )

    def test() -> None:
        assert part.double(5) == 10

    assert cause(part, test, 3) == "_now (part.py)"


def test_what_was_kept_is_there_again_afterwards(imported: Imported) -> None:
    part = imported(KEEPS["a dict"][1])

    def test() -> None:
        assert part.double(5) == 10

    cause(part, test, 3)
    assert part._first == {0: 6}


def test_what_is_said_of_a_history_stays() -> None:
    assert with_cause(HISTORY, "_all (part.py)") == f"{HISTORY} Here it is kept in _all (part.py)."
    told = with_cause("Divide by 5.", "_first (part.py)")
    assert told.startswith("An earlier call decides what this one gives")
    assert "_first (part.py)" in told
    assert "Divide" not in told
