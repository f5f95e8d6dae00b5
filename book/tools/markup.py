"""Short texts from data files (questions, hints) as HTML."""

from functools import cache
from html import escape

from markdown_it import MarkdownIt

from book.tools.mathml import convert_math

__all__ = ["escape", "inline"]


def inline(text: str) -> str:
    """One line of Markdown, with formulas, as HTML without a block around it. Raises MathError."""
    return str(_markdown().renderInline(convert_math(text.strip())))


@cache
def _markdown() -> MarkdownIt:
    # Formulas are HTML by now. What else these files hold is ours, so HTML in them may pass.
    return MarkdownIt("commonmark", {"html": True})
