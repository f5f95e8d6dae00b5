"""How the parts of a grammar of texts are written in llguidance's Lark."""

from collections.abc import Callable, Iterable, Mapping

from yaie.engine.input.grammars.schema_limits import MOST_CHARS, MOST_LEVELS
from yaie.server.tools.text_grammars.nodes import (
    EMPTY,
    TOO_LARGE,
    Chars,
    Choice,
    Node,
    Repeat,
    Series,
    Symbol,
    Terminal,
    UnenforceableError,
)
from yaie.server.tools.text_grammars.regexes import escaped

_OPERATORS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def regex_text(regex: Node, of_chars: Callable[[Chars], str]) -> str:
    """A regular expression as Lark has it between slashes. of_chars: writes a set of characters, in a
    way that an operator may follow."""
    if isinstance(regex, Chars):
        return of_chars(regex)
    if isinstance(regex, Choice):
        return "|".join(regex_text(part, of_chars) for part in regex.parts)
    if isinstance(regex, Series):
        texts = [(part, regex_text(part, of_chars)) for part in regex.parts]
        return "".join(f"(?:{it})" if isinstance(part, Choice) else it for part, it in texts)
    assert isinstance(regex, Repeat)
    inner = regex_text(regex.inner, of_chars)
    inner = inner if isinstance(regex.inner, Chars) else f"(?:{inner})"
    return f"{inner}{_operator(regex)}"


def expression(node: Node, name_of: Callable[[Terminal | Symbol], str]) -> str:
    """A node as the right side of a rule. name_of: writes its leaves."""
    if isinstance(node, Choice):
        return " | ".join(expression(part, name_of) for part in node.parts)
    if node is EMPTY:
        return '""'
    if isinstance(node, Series):
        texts = [(part, expression(part, name_of)) for part in node.parts]
        return " ".join(f"({it})" if isinstance(part, Choice) else it for part, it in texts)
    if isinstance(node, Repeat):
        inner = expression(node.inner, name_of)
        is_name = isinstance(node.inner, Terminal | Symbol)
        return f"{inner if is_name else f'({inner})'}{_operator(node)}"
    assert isinstance(node, Terminal | Symbol)
    return name_of(node)


def in_lark(text: str) -> str:
    """A regular expression of Lark for this text alone."""
    return f"/{''.join(map(escaped, text))}/"


def plain_chars(chars: Chars) -> str:
    """A set of characters, each of which stands for itself."""
    return f"(?i:{chars.source})" if chars.is_folded else chars.source


def joined(lines: Iterable[str]) -> str:
    """One text of these lines. Raises UnenforceableError if the engine would refuse it for its size."""
    text = "\n".join(lines)
    if len(text) > MOST_CHARS:
        raise UnenforceableError(TOO_LARGE)
    return text


def check_levels(start: str, named: Mapping[str, Iterable[tuple[str, int]]]) -> None:
    """Raise UnenforceableError for rules that would end the compiler's stack, and with it this process.

    The compiler calls itself for each rule, where that is named first, and for each bracket around it.
    named: what each rule names, in its order: (a rule, the number of brackets around it).
    """
    seen = {start}
    open_rules = [(1, iter(named[start]))]
    while open_rules:
        levels, rest = open_rules[-1]
        name, depth = next(rest, ("", -1))
        if depth < 0:
            open_rules.pop()
        elif name in named and name not in seen:
            seen.add(name)
            levels += 1 + depth
            if levels > MOST_LEVELS:
                raise UnenforceableError(
                    f"Its rules lead from one to the next more than {MOST_LEVELS} times."
                )
            open_rules.append((levels, iter(named[name])))


def _operator(node: Repeat) -> str:
    counts = f"{{{node.least},{'' if node.most is None else node.most}}}"
    return _OPERATORS.get((node.least, node.most), counts)
