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
    """As Python writes it: a line break in a string of JSON is not the escape of one."""
    return repr(text) if text else "the empty text"


def pattern(grammar: Grammar) -> str:
    """A grammar as a regular expression, for a report."""
    if isinstance(grammar, OneOf):
        values = repr(bytes(sorted(grammar.values)))[2:-1]
        return values if len(grammar.values) == 1 else f"[{values}]"
    if isinstance(grammar, Concat):
        return "".join(map(pattern, grammar.parts)) or "()"
    if isinstance(grammar, Choice):
        return f"({'|'.join(map(pattern, grammar.options))})"
    item, least, most = pattern(grammar.item), grammar.least, grammar.most
    if len(item) > 1 and item[0] + item[-1] not in ("()", "[]"):
        item = f"({item})"
    short = {(0, 1): "?", (0, None): "*", (1, None): "+"}
    return item + short.get((least, most), f"{{{least},{'' if most is None else most}}}")
