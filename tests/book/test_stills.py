"""Every figure has a still, for readers without scripts, and it shows what the figure draws today."""

import pytest

from book.tools.stills import STILLS, add_stills, drawings, pages_with_figures


def test_figures_and_stills_are_the_same(built):
    shown = {name for _, names in pages_with_figures(built) for name in names}
    assert {path.stem for path in STILLS.glob("*.html")} == shown


def test_a_figure_without_a_still_is_a_fault(tmp_path):
    figure = '<yaie-any data-name="no-such"><script type="application/json">{}</script></yaie-any>'
    (tmp_path / "page.html").write_text(figure)
    assert add_stills(tmp_path) == [
        "no book/stills/no-such.html: python -m book.tools.stills no-such"
    ]
    assert (tmp_path / "page.html").read_text() == figure


def test_without_scripts_each_figure_of_a_page_is_seen(browser, built):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((built / "scheduler.html").as_uri())
    stages = opened.locator("figure.moving .stage")
    assert stages.count() == opened.locator("figure.moving").count() > 1
    assert all(stage.bounding_box()["height"] > 60 for stage in stages.all())
    context.close()


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(4))
def test_stills_are_what_figures_draw(browser, built, number):
    for page, names in list(pages_with_figures(built))[number::4]:
        for name, drawing in drawings(browser, page, names).items():
            kept = (STILLS / f"{name}.html").read_text("utf-8").strip()
            assert drawing.strip() == kept, f"python -m book.tools.stills {name}"
