"""The labs as they are generated from this repository's own `solutions`."""

import importlib
from pathlib import Path

import pytest

from grader.regions import find_regions
from grader.stubs import ROOT, generate, read_labs, text_files
from yaie.parts import LABS


def modules() -> list[str]:
    files = sorted((ROOT / "labs").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", modules())
def test_a_lab_imports_before_it_is_filled_in(name):
    importlib.import_module(name)


def test_the_engine_knows_the_labs_of_the_curriculum_in_its_order():
    assert list(read_labs(ROOT)) == list(LABS)


def test_every_stub_that_leaves_something_open_says_so_by_lab_and_task():
    open_files = [text for text in generate(ROOT).values() if "your part: task" in text]
    assert len(open_files) >= 7
    assert all("not implemented yet; see chapter" in text for text in open_files)


@pytest.mark.parametrize("lab", read_labs(ROOT).values(), ids=lambda lab: lab.key)
def test_a_lab_has_tasks_and_numbers_them_after_itself(lab):
    tasks = [
        region.task
        for path in text_files(ROOT / "solutions" / lab.key)
        for region in find_regions(path.read_text("utf-8").splitlines(), Path(path.name))
    ]
    assert tasks
    assert {task.split(".")[0] for task in tasks} == {str(lab.number)}
