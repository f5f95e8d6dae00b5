"""The labs as they are generated from this repository's own `solutions`."""

import importlib
from pathlib import Path

import pytest

from grader.regions import find_regions
from grader.stubs import generate, text_files
from yaie.curriculum.manifest import ROOT, load_curriculum


def modules() -> list[str]:
    files = sorted((ROOT / "labs").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", modules())
def test_a_lab_imports_before_it_is_filled_in(name):
    importlib.import_module(name)


def test_every_stub_that_leaves_something_open_says_so_by_lab_and_task():
    open_files = [text for text in generate(ROOT).values() if "your part: task" in text]
    assert len(open_files) >= 7
    assert all("not implemented yet; see chapter" in text for text in open_files)


@pytest.mark.parametrize("lab", load_curriculum().labs, ids=lambda lab: lab.key)
def test_the_stub_of_a_lab_leaves_every_task_of_the_manifest_open(lab):
    tasks = {
        region.task
        for path in text_files(ROOT / "solutions" / lab.key)
        for region in find_regions(path.read_text("utf-8").splitlines(), Path(path.name))
    }
    assert tasks == {task.id for task in lab.tasks}
