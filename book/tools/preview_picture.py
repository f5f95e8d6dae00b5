"""Draws the picture of link previews: `python -m book.tools.preview_picture` (images/preview.png).

The book's own drawing of four requests under its title, in the size that services show.
"""

from book.tools.mdbook import ROOT
from book.tools.previews import PICTURE, SIZE
from book.tools.xray_picture import FLAGS, find_browser

DRAWING = ROOT / "book/figures/landing.svg"
PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>
body {{ margin: 0; width: {width}px; height: {height}px; box-sizing: border-box; padding: 52px 70px 0;
  background: #161923; color: #f2f3f8; font-family: "Open Sans", "DejaVu Sans", system-ui, sans-serif; }}
h1 {{ margin: 0; font-size: 66px; line-height: 1.1; letter-spacing: 0.02em; color: #7db8f0; }}
p {{ margin: 14px 0 20px; font-size: 35px; line-height: 1.25; }}
svg {{ display: block; width: 1060px; height: auto; }}
svg text {{ fill: currentColor; }}
</style><h1>YAIE</h1>
<p>Write an LLM inference engine, and talk to a model that runs on it.</p>{drawing}"""


def draw() -> None:
    """Draw it with Chromium."""
    from playwright.sync_api import sync_playwright

    width, height = SIZE
    drawing = DRAWING.read_text("utf-8").replace("svg:root { color: #1f2328 }", "")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark")
        page.set_content(PAGE.format(width=width, height=height, drawing=drawing))
        page.screenshot(path=ROOT / "book/src" / PICTURE)
        browser.close()


if __name__ == "__main__":
    draw()
