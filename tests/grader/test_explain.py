"""An error inside a part has a line; one that the grader stumbles over is told as that."""

import pytest

from grader.explain import explain
from grader.kit.differ import told_apart
from grader.kit.expect import Mismatch, expect_raises
from grader.kit.script import MOST_LINES, current_script, start_script
from grader.places import open_places, spans_in_python
from grader.submission import Submission, load
from tests.grader.hostile import RADIX_TREE
from yaie.curriculum.manifest import ROOT, load_curriculum

PART = '''"""A part."""


def look(table):
    return table["r1"]
'''


@pytest.fixture
def submission(tmp_path):
    (tmp_path / "radix_tree").mkdir()
    (tmp_path / "radix_tree/__init__.py").write_text(PART, "utf-8")
    return Submission(RADIX_TREE, tmp_path / "radix_tree", tmp_path)


@pytest.fixture
def part(submission):
    import sys

    yield load(submission)
    del sys.modules["labs.radix_tree"]


def told(submission, run):
    start_script()
    with pytest.raises(BaseException) as raised:  # noqa: PT011, any
        run()
    return explain(raised.value, "A claim.", submission, 10.0)


def test_an_error_in_the_part_has_file_line_and_source(submission, part):
    why = told(submission, lambda: part.look({}))
    assert why.problem == "KeyError: 'r1'"
    assert why.where == 'radix_tree/__init__.py, line 5, in look\n    return table["r1"]'


def test_an_error_of_triton_comes_with_what_to_write_instead(tmp_path):
    (tmp_path / "part.py").write_text("def tile(n):\n    raise ValueError(n)\n", "utf-8")
    lab = load_curriculum()["triton_ops"]
    space = {}
    exec(compile((tmp_path / "part.py").read_text(), str(tmp_path / "part.py"), "exec"), space)
    given = Submission(lab, tmp_path, tmp_path)
    why = told(given, lambda: space["tile"]("arange's range must be a power of 2"))
    assert why.where.startswith("part.py, line 2")
    assert why.why.startswith("Use the next power of two")
    assert told(given, lambda: space["tile"]("another")).why == ""


def test_so_has_one_that_a_check_tells_of(submission, part):
    def check():
        with expect_raises(ValueError, "looking for nobody"):
            part.look({})

    why = told(submission, check)
    assert why.got == "KeyError: 'r1'"
    assert why.where.startswith("radix_tree/__init__.py, line 5, in look")


def test_a_wrong_value_has_no_line_though_an_error_came_before(submission, part):
    def check():
        try:
            part.look({})
        except KeyError:
            raise Mismatch("the table: not as expected", "[1]", "[2]") from None

    assert told(submission, check).where == ""


def test_an_error_of_the_grader_over_what_a_part_left_is_told_as_that(submission):
    """As when a harness looks a request up that the part should have kept."""
    why = told(submission, lambda: told_apart(_Broken(), 1))
    assert "or the state it left, cannot be used: KeyError: 'r1'" in why.problem
    assert why.where.startswith("grader/kit/")
    assert "what your part returned or changed before it" in why.why


class _Broken(list):
    def __iter__(self):
        raise KeyError("r1")

    def __len__(self):
        return 3


def test_of_a_long_script_the_lines_about_what_failed_stay():
    start_script()
    lines = current_script().lines
    lines += [f"cache.allocate(r{i}, 4)" for i in range(200)]
    lines[50] = "cache.swap_out(r77)"
    quoted = current_script().quoted("r77 has lost block 3")
    assert len([line for line in quoted if "left out" not in line]) == MOST_LINES
    assert {"cache.swap_out(r77)", "cache.allocate(r77, 4)", lines[0], lines[-1]} <= set(quoted)
    left_out = sum(int(line.split()[1]) for line in quoted if "left out" in line)
    assert left_out == 200 - MOST_LINES


def test_a_short_script_is_quoted_whole():
    start_script()
    current_script().lines += ["a()", "b()"]
    assert current_script().quoted("r1") == ("a()", "b()")


@pytest.mark.parametrize("key", ["paged_cache", "cuda_ops"])
def test_the_open_places_of_a_stub_are_those_that_raise(key, tmp_path):
    from grader.selfcheck.variants import write_stub

    lab = load_curriculum()[key]
    submission = Submission(lab, write_stub(lab, tmp_path / key), tmp_path)
    places = open_places(submission)
    assert places.keys() == {task.id for task in lab.tasks}
    for lines in places.values():
        for line in lines:
            file, _, functions = line.partition(": ")
            source = (tmp_path / file).read_text("utf-8").splitlines()
            for place in functions.split(", "):
                name, _, number = place.partition(" (line ")
                assert "not implemented yet" in source[int(number.rstrip(")")) - 1]
                assert any(f"{name}(" in row for row in source)


def test_the_reference_has_no_open_place():
    for lab in load_curriculum().labs:
        assert open_places(Submission(lab, ROOT / "solutions" / lab.key)) == {}, lab.key


def test_a_place_in_a_special_method_names_its_class():
    source = "class Split:\n    def __call__(self): return 1\n    def cut(self): return 2\n"
    spans = spans_in_python(source)
    assert [name for _, _, name in spans] == ["Split.__call__", "cut"]
