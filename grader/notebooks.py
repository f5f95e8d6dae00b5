"""Exploration notebooks: from `solutions/<lab>/explore.py`, the source, to `labs/<lab>/explore.ipynb`.

The source is in jupytext's percent format: `# %%` begins a cell of code, `# %% [markdown]` one of
comments that are its text. Reading just that takes a few lines, so that `make stubs` and `make reset`
need no Jupyter; a test holds it against jupytext. The notebook has no outputs, and ids that depend on
lab and place alone: the same source gives the same bytes.
"""

import hashlib
import json
import re
from pathlib import PurePath
from typing import Any

from grader.regions import MarkerError

SOURCE = "explore.py"
NOTEBOOK = "explore.ipynb"

_CELL = re.compile(r"# %%(?P<markdown> \[markdown\])?")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def make_notebook(source: str, path: PurePath) -> str:
    """The notebook of a source file, as text. Raises MarkerError for what is not a cell.

    path: of the source; its folder is the lab's name, and errors name it.
    """
    cells = [
        _cell(is_markdown, lines, f"{path.parent.name}:{number}")
        for number, (is_markdown, lines) in enumerate(_split(source, path))
    ]
    notebook = {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _split(source: str, path: PurePath) -> list[tuple[bool, list[str]]]:
    """(is it markdown, its lines) for each cell."""
    cells: list[tuple[bool, list[str]]] = []
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("# %%"):
            found = _CELL.fullmatch(line)
            if not found:
                raise MarkerError(f"{path}:{number}: a cell begins with # %% or # %% [markdown]")
            cells.append((found["markdown"] is not None, []))
        elif not cells:
            raise MarkerError(f"{path}:{number}: the file must begin with a cell: # %%")
        elif cells[-1][0] and line and not re.match(r"#( |$)", line):
            raise MarkerError(f"{path}:{number}: a line of a markdown cell is a comment")
        else:
            cells[-1][1].append(line)
    return cells


def _cell(is_markdown: bool, lines: list[str], name: str) -> dict[str, Any]:
    text = "\n".join(lines).strip("\n")
    if is_markdown:
        text = re.sub(r"^# ?", "", text, flags=re.M)
    cell: dict[str, Any] = {
        "cell_type": "markdown" if is_markdown else "code",
        "id": hashlib.sha256(name.encode()).hexdigest()[:8],
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return cell if is_markdown else cell | {"execution_count": None, "outputs": []}
