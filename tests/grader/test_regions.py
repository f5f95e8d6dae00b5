"""What a solution region turns into, and which markers are refused."""

import ast
from dataclasses import replace
from pathlib import PurePath

import pytest

from grader.regions import MarkerError, make_stub
from yaie.curriculum.manifest import load_curriculum

LAB = replace(load_curriculum()["paged_cache"], edition=1)

SOLUTION = '''"""Blocks."""

from collections import deque


class BlockManager:
    """Hands out blocks."""

    def __init__(self, n: int) -> None:
        self.free = deque(range(n))

    def allocate(self) -> int:
        """One block."""
        # BEGIN SOLUTION 3.1
        if not self.free:
            raise MemoryError
        # the oldest first
        return self.free.popleft()
        # END SOLUTION

    def size(self) -> int:
        return len(self.free)
'''


def stub_of(source: str, name: str = "solutions/paged_cache/blocks.py") -> str:
    return make_stub(source, PurePath(name), LAB)


def run(stub: str) -> dict:
    names: dict = {}
    exec(compile(stub, "stub", "exec"), names)
    return names


def test_a_region_in_a_method_raises_and_names_lab_task_and_chapter():
    manager = run(stub_of(SOLUTION))["BlockManager"](2)
    with pytest.raises(NotImplementedError) as raised:
        manager.allocate()
    assert str(raised.value) == (
        "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
    )


def test_what_stands_outside_the_region_stays_and_works():
    stub = stub_of(SOLUTION)
    assert '"""One block."""' in stub
    assert run(stub)["BlockManager"](2).size() == 2


def test_nothing_of_the_solution_is_left():
    stub = stub_of(SOLUTION)
    assert "popleft" not in stub
    assert "SOLUTION" not in stub


def test_the_todo_says_how_many_lines_of_code_the_reference_has():
    assert "        # TODO 3.1: your code here (the reference: 3 lines).\n" in stub_of(SOLUTION)


def test_the_first_line_lists_the_tasks_and_the_docstring_stays_a_docstring():
    stub = stub_of(SOLUTION)
    assert stub.startswith("# Lab 3, your part: task 3.1. The rest is given.\n")
    assert ast.get_docstring(ast.parse(stub)) == "Blocks."


def test_the_first_line_says_which_edition_it_is_of_from_the_second_one_on():
    stub = make_stub(SOLUTION, PurePath("solutions/paged_cache/x.py"), replace(LAB, edition=2))
    assert stub.startswith("# Lab 3, your part (edition 2): task 3.1. The rest is given.\n")


def test_a_file_without_regions_is_copied_as_it_is():
    given = '"""Given."""\n\nANSWER = 42\n'
    assert stub_of(given) == given


def test_an_empty_file_stays_empty():
    assert stub_of("") == ""


def test_a_helper_outside_any_function_leaves_a_comment_and_the_stub_still_imports():
    source = (
        "# BEGIN SOLUTION 3.2\ndef helper():\n    return 1\n# END SOLUTION\n\n\n"
        "def task():\n    # BEGIN SOLUTION 3.2\n    return helper()\n    # END SOLUTION\n"
    )
    stub = stub_of(source)
    room = "# TODO 3.2, if you like: helpers of your own (the reference: 2 lines)."
    assert f"{room}\n\n\ndef task" in stub
    assert "helper" not in run(stub)


def test_a_name_imported_only_by_removed_code_does_not_stop_the_import():
    source = (
        "def task():\n    # BEGIN SOLUTION 3.1\n    import no_such_module\n\n"
        "    return no_such_module.answer()\n    # END SOLUTION\n"
    )
    assert "task" in run(stub_of(source))


def test_siblings_are_imported_from_labs():
    source = "from solutions.paged_cache.blocks import Block\nimport solutions.paged_cache\n"
    assert stub_of(source) == source.replace("solutions", "labs")


def test_the_word_solutions_in_prose_stays():
    source = '"""Two solutions. The first is solutions/paged_cache."""\n'
    assert stub_of(source) == source


@pytest.mark.parametrize("marker", ["// {} SOLUTION{}", "/* {} SOLUTION{} */"])
def test_a_region_in_a_cuda_function_says_so_in_its_own_syntax(marker):
    begin, end = marker.format("BEGIN", " 13.1"), marker.format("END", "")
    source = f"__global__ void copy() {{\n  {begin}\n  work();\n  {end}\n}}\n"
    assert stub_of(source, "solutions/cuda_memory_ops/copy.cu") == (
        "// Lab 3, your part: task 13.1. The rest is given.\n"
        "__global__ void copy() {\n"
        "  // TODO 13.1: your code here (the reference: 1 line).\n"
        '  NOT_IMPLEMENTED("paged_cache task 13.1: not implemented yet; '
        'see chapter The paged KV cache");\n'
        "}\n"
    )


CUDA_REGION = "// BEGIN SOLUTION 3.1\nwork();\n// END SOLUTION\n"


@pytest.mark.parametrize(
    "source",
    [
        "int f(int a) {{\n{}}}\n",
        "template <typename T>\n__global__ void f(T* x,\n                  int n) {{\n{}}}\n",
        "namespace lab {{\nint f() {{\nif (true) {{\n{}}}\n}}\n}}\n",
        'extern "C" {{\nint f() {{\n{}}}\n}}\n',
        "struct Pair {{\n  int sum() const {{\n{}}}\n}};\n",
        '// a { in a comment\nconst char* text = "{{";\nint f() {{\n{}}}\n'.replace("a {", "a {{"),
    ],
)
def test_where_a_cuda_function_is_does_not_depend_on_what_is_around_it(source):
    assert "NOT_IMPLEMENTED" in stub_of(source.format(CUDA_REGION), "solutions/paged_cache/a.cu")


@pytest.mark.parametrize(
    "source",
    [
        "{}",
        "namespace lab {{\n{}}}\n",
        "struct Pair {{\n{}}};\n",
        "int f() {{ return 1; }}\n{}",
        "constexpr int SIZES[] = {{\n{}}};\n",
    ],
)
def test_a_cuda_region_outside_any_function_leaves_a_comment(source):
    stub = stub_of(source.format(CUDA_REGION), "solutions/paged_cache/a.cuh")
    assert "// TODO 3.1: your code here (the reference: 1 line).\n" in stub
    assert "NOT_IMPLEMENTED" not in stub
    assert "work" not in stub


def test_a_cuda_file_includes_its_siblings_from_labs():
    source = '#include "solutions/paged_cache/warp.cuh"\n'
    assert stub_of(source, "solutions/paged_cache/a.cu") == source.replace("solutions", "labs")


@pytest.mark.parametrize(
    ("tail", "complaint"), [("}\n", "closes nothing"), ("int f() {\n", "nothing closes")]
)
def test_a_cuda_file_whose_braces_do_not_match_is_refused(tail, complaint):
    with pytest.raises(MarkerError, match=complaint):
        stub_of(CUDA_REGION + tail, "solutions/paged_cache/a.cu")


def test_the_end_may_repeat_the_task():
    assert "TODO 3" in stub_of(
        "def f():\n    # BEGIN SOLUTION 3\n    return 1\n    # END SOLUTION 3\n"
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("# BEGIN SOLUTION 1.1\nx = 1\n", ":1: region 1.1 has no END SOLUTION"),
        ("x = 1\n# END SOLUTION\n", ":2: END SOLUTION without a BEGIN SOLUTION before it"),
        (
            "# BEGIN SOLUTION 1.1\nx = 1\n# BEGIN SOLUTION 1.2\n# END SOLUTION\n",
            ":3: a region inside the one that begins on line 1",
        ),
        (
            "# BEGIN SOLUTION 1.1\nx = 1\n# END SOLUTION 1.2\n",
            ":3: END SOLUTION 1.2 closes region 1.1",
        ),
        ("# BEGIN SOLUTION\n", ":1: expected a task number such as 3.2, found ''"),
        ("# BEGIN SOLUTION one\n", ":1: expected a task number such as 3.2, found 'one'"),
        ("x = 1  # BEGIN SOLUTION 1.1\n", ":1: a solution marker stands alone in a comment"),
        ("# BEGIN SOLUTION 1.1\n\n# why\n# END SOLUTION\n", ":1: region 1.1 holds no code"),
        (
            "class C:\n    # BEGIN SOLUTION 1.1\n    x = 1\n    # END SOLUTION\n",
            "of its stub is not Python",
        ),
        ("def f(:\n    # BEGIN SOLUTION 1.1\n    1\n    # END SOLUTION\n", "is not Python"),
    ],
)
def test_a_marker_that_cannot_be_right_is_refused_by_file_and_line(source, complaint):
    with pytest.raises(MarkerError) as raised:
        stub_of(source, "solutions/sampler/draw.py")
    assert str(raised.value).startswith("solutions/sampler/draw.py:")
    assert complaint in str(raised.value)


ORACLES = {PurePath("solutions/paged_cache/naive.py"), PurePath("solutions/cuda_ops/naive.cuh")}


@pytest.mark.parametrize(
    ("name", "line", "of_stub"),
    [
        ("a.py", "from .naive import f", "from solutions.paged_cache.naive import f"),
        ("a.py", "    from .naive import f", "    from solutions.paged_cache.naive import f"),
        ("a.py", "from .naive_pool import f", "from .naive_pool import f"),
        ("a.py", "import solutions.paged_cache.naive", "import solutions.paged_cache.naive"),
        ("a.py", "import solutions.paged_cache.naive_pool", "import labs.paged_cache.naive_pool"),
        ("a.py", "from solutions.sampler.noise import f", "from labs.sampler.noise import f"),
        (
            "a.cu",
            '#include "solutions/cuda_ops/naive.cuh"',
            '#include "solutions/cuda_ops/naive.cuh"',
        ),
        ("a.cu", '#include "solutions/cuda_ops/pack.cuh"', '#include "labs/cuda_ops/pack.cuh"'),
    ],
)
def test_an_oracle_is_imported_from_solutions(name, line, of_stub):
    source = f"if True:\n{line}\n" if line.startswith(" ") else f"{line}\n"
    stub = make_stub(source, PurePath("solutions/paged_cache", name), LAB, ORACLES)
    assert stub.splitlines()[-1] == of_stub


def test_an_oracle_imported_as_a_module_is_refused():
    with pytest.raises(MarkerError, match="import from an oracle by its name"):
        make_stub("from . import naive\n", PurePath("solutions/paged_cache/a.py"), LAB, ORACLES)
