"""LaTeX between dollars becomes MathML, which browsers show and read aloud without a script."""

import re
from collections.abc import Callable
from functools import cache

from math_core import LatexError, LatexToMathML

from book.tools.fences import FENCE

CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
DISPLAYED = re.compile(r"(?<!\\)\$\$(.+?)(?<!\\)\$\$", re.S)
INLINE = re.compile(r"(?<![\\$])\$(?![\s$])((?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\d$])")
PLAIN = re.compile(r"(?<!\\)\$")
SCRIPT = re.compile(r"<script\b.*?</script>|<code\b.*?</code>|<svg\b.*?</svg>", re.S)
QUOTED = re.compile(r"^[ \t]*>[ \t]?", re.M)
TEXT_NODE = re.compile(r">([^<]+)<")
# A letter as an entity is itself; punctuation is what Markdown would read as its own.
PUNCTUATION = re.compile(r"&#?\w+;|[!-/:-@\[-`{-~]")


class MathError(ValueError):
    """A formula that math-core does not understand. The message quotes it."""


def convert_math(markdown: str) -> str:
    """The Markdown with its formulas as MathML; code and scripts stay. Raises MathError."""
    parts, position = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_prose(markdown[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, _prose(markdown[position:])])


def broken_formulas(markdown: str) -> list[str]:
    r"""The lines with a dollar that belongs to no formula. LaTeX within a sentence stands on one line; a
    plain dollar is `\$`."""
    text = FENCE.sub("", markdown)
    for pattern in (SCRIPT, CODE_SPAN, DISPLAYED, INLINE):
        text = pattern.sub("", text)
    return [line for line in text.splitlines() if PLAIN.search(line)]


def _prose(text: str) -> str:
    kept: list[str] = []

    def keep(render: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        def stash(found: re.Match[str]) -> str:
            kept.append(render(found))
            return f"\0{len(kept) - 1}\0"

        return stash

    for pattern, render in (
        (SCRIPT, lambda found: found[0]),
        (CODE_SPAN, lambda found: found[0]),
        (DISPLAYED, lambda found: mathml(QUOTED.sub("", found[1]).strip(), displayed=True)),
        (INLINE, lambda found: mathml(found[1], displayed=False)),
    ):
        text = pattern.sub(keep(render), text)
    text = text.replace(r"\$", "$")
    while "\0" in text:
        text = re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)
    return text


def mathml(latex: str, *, displayed: bool) -> str:
    """One formula as a line of MathML that passes through Markdown unchanged. Raises MathError."""
    try:
        made = _converter().convert_with_local_state(latex, displaystyle=displayed)
    except LatexError as error:
        raise MathError(f"{error} in the formula {latex!r}") from None
    escaped = TEXT_NODE.sub(lambda node: f">{PUNCTUATION.sub(_entity, node[1])}<", made)
    return escaped.replace("\n", "")


def _entity(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else f"&#{ord(found[0])};"


@cache
def _converter() -> LatexToMathML:
    return LatexToMathML(annotation=False, fancy_error=False)
