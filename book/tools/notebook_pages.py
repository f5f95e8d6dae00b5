"""A lab's notebook as a page of the book: run on the reference, rendered, compared with an older one.

Needs Jupyter and matplotlib, which come with `make setup`.
"""

import base64
import copy
import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.tools.fences import FENCE
from book.tools.mdbook import ROOT
from book.tools.plots import ALT, SVG, for_page
from grader.notebooks import SOURCE, make_notebook
from yaie.curriculum.manifest import load_curriculum
from yaie.system.files import write_whole

SECONDS = 120  # for a cell, on a busy machine; on an idle one a whole notebook takes less than 10
TOLERANCE = 0.05  # of coordinates, in points; arithmetic differs a little between machines
SHADES = 3  # of 255, for the same reason

_SETUP = "from book.tools.plots import prepare; prepare()"
_TEMPLATE = """\
{% extends 'markdown/index.md.j2' %}
{% block input %}

```python
{{ cell.source }}
```
{% endblock input %}
{% block stream %}

```text
{{ output.text.rstrip() }}
```
{% endblock stream %}
{% block data_text scoped %}

```text
{{ output.data['text/plain'] }}
```
{% endblock data_text %}
"""
# What cells draw and print that speak of this differs from run to run: times, what came first, ids.
_MEASURED = re.compile(r"milliseconds|\btime\.|\"created\":")


@dataclass(frozen=True, slots=True)
class Page:
    """Markdown, and the pictures that it includes, by number. measured: numbers of those, and the
    cells' printed texts, that come out differently each time."""

    text: str
    pictures: dict[int, str]
    measured: set[int] = field(default_factory=set)
    measured_texts: set[str] = field(default_factory=set)


def execute(lab: str) -> Any:
    """The notebook of a lab with its outputs, an nbformat notebook, as the reference makes them."""
    import nbformat
    from nbclient import NotebookClient

    path = Path("solutions", lab, SOURCE)
    text = make_notebook((ROOT / path).read_text("utf-8"), path)
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_SETUP, id="setup"))
    environment = os.environ | {
        "YAIE_MINE": "none",
        "OMP_NUM_THREADS": "1",  # sums depend on it, and GPTQ on a few inputs shows that
        "PYTHONPATH": str(ROOT),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    # On a busy machine what a cell prints comes in several pieces.
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", coalesce_streams=True)
    client.execute(env=environment)
    del notebook.cells[0]
    return notebook


def render(lab: str, notebook: Any, title: str, origin: str) -> Page:
    """An executed notebook as a page. title: its heading. origin: the comment of its first line."""
    from nbconvert import MarkdownExporter

    notebook = copy.deepcopy(notebook)
    pictures: dict[int, str] = {}
    measured, texts = set(), set()
    heading = title
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = re.match(r"#+ (.*)", cell.source)[1]  # type: ignore[index]
            continue
        first = len(pictures) + 1
        cell.outputs = [_placed(lab, out, heading, pictures) for out in _described(cell.outputs)]
        printed = {text for out in cell.outputs if (text := _printed(out))}
        if _MEASURED.search("\n".join([cell.source, *printed])):
            measured |= set(range(first, len(pictures) + 1))
            texts |= printed
    opening = notebook.cells[0]
    opening.source = re.sub(r"^# .*\n*", "", opening.source)
    body, _ = MarkdownExporter(raw_template=_TEMPLATE).from_notebook_node(notebook)
    body = _without_gaps(body)
    return Page(f"{origin}\n\n# {title}\n\n{_note(lab)}\n\n{body}\n", pictures, measured, texts)


def _without_gaps(markdown: str) -> str:
    """At most one blank line in a row, but for what is fenced."""
    pieces, end = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [re.sub(r"\n{3,}", "\n\n", markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*pieces, re.sub(r"\n{3,}", "\n\n", markdown[end:])]).strip()


def _note(lab: str) -> str:
    number = load_curriculum()[lab].number
    return (
        f"> [!NOTE]\n> This is the notebook of lab {number}, as it draws the reference. "
        f"`make notebook LAB={lab}` opens it in your\n> browser: there it draws your own part, and "
        "you can change a cell and run it again."
    )


def _printed(output: Any) -> str:
    """What an output says in plain text, if it is no picture."""
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return str(text).rstrip()


def _described(outputs: list[Any]) -> list[Any]:
    """The outputs without the descriptions, each of which goes to the picture that follows it."""
    kept, words = [], ""
    for output in outputs:
        data = output.get("data", {})
        if ALT in data:
            words = data[ALT]
            continue
        if SVG in data:
            output.metadata["alt"], words = words, ""
        kept.append(output)
    return kept


def _placed(lab: str, output: Any, heading: str, pictures: dict[int, str]) -> Any:
    """The output; if it is a picture, what includes it, and the picture is put to the others."""
    data = output.get("data", {})
    if SVG not in data:
        return output
    number = len(pictures) + 1
    words = output.metadata.pop("alt", "")
    alt = f"{heading}: {words}" if words else heading
    pictures[number] = for_page(data[SVG], f"{lab}-{number}", alt)
    output.data = {
        "text/html": '<figure class="plot"><div style="overflow-x: auto" tabindex="0" role="group" '
        f'aria-label="Picture {number}">\n{{{{#include {lab}/{number}.svg}}}}\n</div></figure>'
    }
    return output


def read_page(lab: str, folder: Path) -> Page:
    """A page and its pictures as they lie in the folder of explorations."""
    pictures = {int(path.stem): path.read_text("utf-8") for path in (folder / lab).glob("*.svg")}
    return Page((folder / f"{lab}.md").read_text("utf-8"), pictures)


def write_page(lab: str, page: Page, folder: Path) -> None:
    """Write a page and its pictures, and remove pictures that it no longer has."""
    (folder / lab).mkdir(parents=True, exist_ok=True)
    for path in (folder / lab).glob("*.svg"):
        path.unlink()
    for number, picture in page.pictures.items():
        write_whole(folder / lab / f"{number}.svg", picture)
    write_whole(folder / f"{lab}.md", page.text)


def faults(fresh: Page, written: Page, *, same_matplotlib: bool = True) -> list[str]:
    """Where a written page differs from a fresh one, but for what was measured.

    same_matplotlib: another version may place things differently; then texts are compared alone.
    """
    found = []
    if _unmeasured(fresh, fresh.text) != _unmeasured(fresh, written.text):
        found.append("the text differs")
    if fresh.pictures.keys() != written.pictures.keys():
        return [*found, f"{len(fresh.pictures)} pictures, not {len(written.pictures)}"]
    for number, picture in fresh.pictures.items():
        other = written.pictures[number]
        if number in fresh.measured:
            # An axis of time may have more marks or fewer.
            one, two = (set(_masked(_texts(each)).split("\n")) for each in (picture, other))
            same = one == two
        else:
            same = _texts(picture) == _texts(other)
            same = same and (not same_matplotlib or alike(picture, other))
        if not same:
            found.append(f"picture {number} differs")
    return found


def _unmeasured(fresh: Page, text: str) -> str:
    """A page's text without its digest, and with the numbers masked in what was measured."""
    text = re.sub(r"\A<!--.*-->", "", text)
    shapes = {_masked(printed) for printed in fresh.measured_texts}

    def mask(found: re.Match[str]) -> str:
        masked = _masked(found[1])
        return masked if masked in shapes else found[0]

    return re.sub(r"^```text\n(.*?)\n```$", mask, text, flags=re.M | re.S)


def _masked(text: str) -> str:
    """Without numbers: counts, times, and ids in hexadecimal."""
    return re.sub(r"[0-9a-f]{8,}|[\d.,−]+", "#", text)


def _texts(svg: str) -> str:
    return "\n".join(sorted(re.findall(r"<text[^>]*>([^<]*)", svg)))


def alike(one: str, other: str) -> bool:
    """Whether two SVGs are the same but for rounding, in coordinates and in the shades of images."""
    number = re.compile(r"-?\d+(?:\.\d+)?(?![\w-])")
    image = re.compile(r"data:image/png;base64,([^\"]+)")
    if number.sub("#", image.sub("", one)) != number.sub("#", image.sub("", other)):
        return False
    pairs = zip(
        number.findall(image.sub("", one)), number.findall(image.sub("", other)), strict=True
    )
    if any(abs(float(a) - float(b)) > TOLERANCE for a, b in pairs):
        return False
    images = zip(image.findall(one), image.findall(other), strict=True)
    return all(_same_image(a, b) for a, b in images)


def _same_image(one: str, other: str) -> bool:
    import numpy as np
    from PIL import Image

    a, b = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode("".join(data.split()))))).astype(int)
        for data in (one, other)
    )
    return a.shape == b.shape and bool((abs(a - b) <= SHADES).all())
