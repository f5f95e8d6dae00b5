"""What the suite asks of a grammar: which texts it takes, by the oracle that tries every way."""

from typing import Any

from grader.kit import Mismatch, expect
from solutions.structured_output import naive
from yaie.core.grammar import Choice, Concat, Grammar, OneOf, Repeat


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def accepts(grammar: Any, text: str | bytes) -> bool:
    """Whether the text is one of the grammar's. Raises Mismatch if that is no grammar."""
    if not isinstance(grammar, OneOf | Concat | Choice | Repeat):
        raise Mismatch(
            "that is no grammar",
            "OneOf, Concat, Choice or Repeat",
            repr(grammar)[:80],
            why="`yaie.core.grammar` has the nodes, and functions that make them.",
        )
    return naive.is_document(grammar, as_bytes(text))


def expect_takes(grammar: Grammar, text: str | bytes, what: str, why: str = "") -> None:
    expect(accepts(grammar, text), f"{what} refuses {shown(text)}", why=why)


def expect_refuses(grammar: Grammar, text: str | bytes, what: str, why: str = "") -> None:
    expect(not accepts(grammar, text), f"{what} takes {shown(text)}", why=why)


def shown(text: str | bytes) -> str:
    """As a reader would write it."""
    if isinstance(text, str):
        return (
            text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") or "the empty text"
        )
    return repr(text)
