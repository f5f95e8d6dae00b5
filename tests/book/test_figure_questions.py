"""What a figure asks is not answered by the paragraph above it."""

import re

import pytest

from book.tools.figures import load_figure
from tests.book.reading import SOURCE

FIGURE = re.compile(r"\{\{#figure (?P<name>[\w-]+)[^}]*\}\}")
BEFORE = 1500  # characters
ANSWERED: tuple[str, ...] = ()
"""Figures whose number may still be above them."""


def asked() -> list[tuple[str, str, str]]:
    """Each figure that asks for a number: its page, its name, what is above it."""
    found = []
    for path in sorted(SOURCE.glob("*.md")):
        text = path.read_text("utf-8")
        for figure in FIGURE.finditer(text):
            if "number" in load_figure(figure["name"]).get("predict", {}):
                above = text[max(0, figure.start() - BEFORE) : figure.start()]
                found.append((path.stem, figure["name"], above))
    return found


@pytest.mark.parametrize(("page", "name", "above"), asked(), ids=[name for _, name, _ in asked()])
def test_the_number_that_a_figure_asks_for_is_not_above_it(page, name, above):
    number = load_figure(name)["predict"]["number"]
    shown = {f"{number:g}", f"{number:,}"}
    unit = re.escape(load_figure(name)["predict"].get("unit", ""))
    form = r"(?<![\d.,]){}\s*{}(?![\d.,]*\d)"
    said = [one for one in shown if re.search(form.format(re.escape(one), unit), above)]
    assert said == [] or name in ANSWERED, f"{page}.md says {said} before it asks"
