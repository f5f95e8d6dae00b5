"""The notebooks of the labs: generated, empty as committed, and for unfinished parts a clear word.

That they run on the reference and draw is in tests/book/test_notebooks_in_book.py.
"""

import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

from grader.notebooks import NOTEBOOK, SOURCE, make_notebook
from grader.regions import MarkerError
from grader.stubs import generate
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import part_digest

LABS = [lab.key for lab in load_curriculum().labs if lab.number <= 8]
SOURCES = [ROOT / "solutions" / lab / SOURCE for lab in LABS]
SECONDS = 120  # on a busy machine; on an idle one each takes less than 10


@pytest.fixture(scope="module")
def stubs() -> dict[Path, str]:
    return generate(ROOT)


def notebook_of(lab: str, stubs: dict[Path, str]) -> nbformat.NotebookNode:
    return nbformat.reads(stubs[Path("labs", lab, NOTEBOOK)], as_version=4)


def run(
    notebook: nbformat.NotebookNode, monkeypatch: pytest.MonkeyPatch, **environment: str
) -> None:
    """Execute in a kernel of this interpreter, as `jupyter` would."""
    from nbclient import NotebookClient

    monkeypatch.delenv("YAIE_MINE", raising=False)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute()


@pytest.mark.slow
def test_an_unfinished_part_is_told_by_its_tasks_and_without_a_traceback(
    stubs, tmp_path, monkeypatch
):
    from nbclient.exceptions import CellExecutionError

    for path, text in stubs.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    (tmp_path / "labs" / "__init__.py").touch()
    notebook = notebook_of("radix_tree", stubs)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    with pytest.raises(CellExecutionError):
        run(notebook, monkeypatch, PYTHONPATH=paths)
    [error] = [
        o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "error"
    ]
    assert "radix_tree task 4." in "\n".join(error.traceback)
    assert "4.5  Evict the least recently used" in "\n".join(error.traceback)
    assert "Traceback" not in "\n".join(error.traceback)
    assert "yaie/explore" not in "\n".join(error.traceback)


@pytest.mark.parametrize("source", SOURCES, ids=LABS)
def test_its_source_is_what_jupytext_reads(source, stubs):
    import jupytext

    read = jupytext.reads(source.read_text("utf-8"), fmt="py:percent")
    ours = notebook_of(source.parent.name, stubs)
    assert [(cell.cell_type, cell.source) for cell in ours.cells] == [
        (cell.cell_type, cell.source) for cell in read.cells
    ]


@pytest.mark.parametrize("lab", LABS)
def test_it_is_valid_empty_and_of_a_readable_size(lab, stubs):
    notebook = notebook_of(lab, stubs)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert 8 <= len(notebook.cells) <= 15
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[-1].source.startswith("## Change this and see")
    for before, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
        if re.search(r"^(draw\.show|compare)\(", cell.source, re.M):
            assert "?" in before.source, f"no question before the picture of {cell.source[:60]!r}"


@pytest.mark.parametrize("lab", LABS)
def test_its_ids_are_its_own_and_stay(lab, stubs):
    path = Path("solutions", lab, SOURCE)
    again = json.loads(make_notebook((ROOT / path).read_text("utf-8"), path))
    ids = [cell["id"] for cell in again["cells"]]
    assert ids == [cell.id for cell in notebook_of(lab, stubs).cells]
    assert len(set(ids)) == len(ids)


def test_its_source_is_no_part_of_the_lab(stubs):
    assert [path for path in stubs if path.name == SOURCE] == []


def test_a_notebook_does_not_change_what_was_passed(tmp_path):
    (tmp_path / "part.py").write_text("answer = 42\n")
    before = part_digest(tmp_path)
    (tmp_path / NOTEBOOK).write_text("{}")
    assert part_digest(tmp_path) == before


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import torch\n", 1),
        ("# %% [raw]\n", 1),
        ("# %% [markdown]\nnot a comment\n", 2),
    ],
)
def test_what_is_no_cell_is_refused_with_its_line(source, line):
    with pytest.raises(MarkerError, match=rf"^solutions/x/explore.py:{line}: "):
        make_notebook(source, Path("solutions/x/explore.py"))


def test_generating_needs_no_jupyter(monkeypatch):
    for name in ("jupytext", "nbformat"):
        monkeypatch.setitem(sys.modules, name, None)
    assert make_notebook("# %%\n1 + 1\n", Path("solutions/x/explore.py")).endswith("}\n")
