"""A still of every figure, for readers without scripts: python -m book.tools.stills [NAME ...]

A figure is drawn by its script. A still is its drawing as it is printed, taken by Chromium from the
built book (`make docs`) and kept in book/stills/NAME.html. `make docs` puts it into its page after
mdBook, in a <noscript>: with scripts no browser reads it, and the search does not index its words.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from book.tools.check import DERIVED
from book.tools.mdbook import ROOT
from book.tools.xray_picture import FLAGS, find_browser

STILLS = ROOT / "book/stills"
OUT = ROOT / "book/out"
WINDOW = {"width": 1280, "height": 900}
"""A page's figures have their full width in it."""
_FIGURE = re.compile(
    r'<yaie-[\w-]+ data-name="(?P<name>[\w-]+)"[^>]*><script type="application/json">.*?</script>',
    re.S,
)
_FOR_SCRIPTS = re.compile(r' data-(key|thing)="[^"]*"')
_PRINTED = "dispatchEvent(new Event('beforeprint'))"
_DRAWING = "name => document.querySelector(`#figure-${name} .stage`).innerHTML"


def add_stills(output: Path) -> list[str]:
    """Put each figure's still into the pages below `output`. Returns a fault for each that has none."""
    faults: list[str] = []

    def with_still(figure: re.Match[str]) -> str:
        path = STILLS / f"{figure['name']}.html"
        if not path.is_file():
            faults.append(f"no {path.relative_to(ROOT)}: python -m book.tools.stills {path.stem}")
            return figure[0]
        drawing = path.read_text("utf-8").strip()
        return f'{figure[0]}<noscript><div class="stage">{drawing}</div></noscript>'

    for page, _ in pages_with_figures(output):
        page.write_text(_FIGURE.sub(with_still, page.read_text("utf-8")), "utf-8")
    return sorted(set(faults))


def pages_with_figures(output: Path) -> Iterator[tuple[Path, list[str]]]:
    """The built pages that have figures, each with the figures' names in order."""
    for page in sorted(output.rglob("*.html")):
        names = [found["name"] for found in _FIGURE.finditer(page.read_text("utf-8"))]
        if names and page.name not in DERIVED:
            yield page, names


def take(output: Path, wanted: Iterable[str] = ()) -> dict[str, str]:
    """Draw the figures of a built book as they are printed. wanted: their names; by default all.

    Raises ValueError for a name that no page has, as where the book is not built."""
    from playwright.sync_api import sync_playwright

    found: dict[str, str] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        for page, names in pages_with_figures(output):
            missing = [name for name in names if name not in found and name in (wanted or names)]
            if missing:
                found |= drawings(browser, page, missing)
        browser.close()
    if unknown := sorted(set(wanted) - found.keys()):
        raise ValueError(
            f"no page of {output} has the figure {', '.join(unknown)}; run `make docs`"
        )
    return found


def drawings(browser: object, page: Path, names: Iterable[str]) -> dict[str, str]:
    """What the stages of some figures of a page hold on paper. browser: playwright's."""
    context = browser.new_context(viewport=WINDOW, reduced_motion="reduce")  # type: ignore[attr-defined]
    opened = context.new_page()
    opened.goto(page.as_uri())
    opened.evaluate(_PRINTED)
    found = {name: _FOR_SCRIPTS.sub("", opened.evaluate(_DRAWING, name)) for name in names}
    context.close()
    return found


def main() -> None:
    STILLS.mkdir(exist_ok=True)
    try:
        stills = take(OUT, sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
    for name, drawing in stills.items():
        (STILLS / f"{name}.html").write_text(f"{drawing}\n", "utf-8")
        print(f"book/stills/{name}.html")


if __name__ == "__main__":
    main()
