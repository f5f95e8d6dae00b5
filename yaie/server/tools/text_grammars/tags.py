"""A grammar of texts as one of the same texts between tags, where they stand as they are.

A text ends where its end tag is written first, so no text may hold the tag. And the lexer, which looks
one byte ahead, must not take the beginning of the tag for more of the text, or the next line for the
tag. If no rule refers to itself, the grammar becomes one regular expression that includes the tag. Other
grammars are refused unless their texts share neither a newline nor a `<` with the tag.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from yaie.server.tools.text_grammars.nodes import (
    Choice,
    Node,
    Repeat,
    Series,
    Symbol,
    Terminal,
    UnenforceableError,
    chars_in,
)
from yaie.server.tools.text_grammars.written import (
    check_levels,
    expression,
    in_lark,
    joined,
    plain_chars,
    regex_text,
)


def tagged_rules(rules: Mapping[str, Node], start: str, name: str, end: str) -> str:
    """Lark with a rule of that name, for a text and the tag after it.

    rules: of the texts, by name; `start` is the first. end: a newline and the tag. Raises
    UnenforceableError if that is too large, or could not be read back.
    """
    named = {name: list(_symbols(node)) for name, node in rules.items()}
    check_levels(start, named)
    is_regular = _is_regular(named)
    if not is_regular and _may_have(rules, "\n<"):
        raise UnenforceableError(
            "Its rules refer to themselves, and its texts may have several lines, or a < in them. This "
            "model writes a text between tags, where that cannot be enforced."
        )
    # In upper case they are parts of one regular expression.
    names = {rule: f"{name}_{number}" for number, rule in enumerate(rules)}
    if is_regular:
        names = {rule: own.upper() for rule, own in names.items()}

    def written(leaf: Terminal | Symbol) -> str:
        if isinstance(leaf, Symbol):
            return names[leaf.name]
        return f"/{regex_text(leaf.regex, plain_chars)}/"

    lines = [f"{names[rule]}: {expression(node, written)}" for rule, node in rules.items()]
    tag = in_lark(end)
    if is_regular:
        has_tag = f"/(.|\\n)*{in_lark(end.lstrip())[1:-1]}(.|\\n)*/"
        lines.insert(0, f"{name}[lazy]: ({names[start]} & ~{has_tag}) {tag}")
    else:
        lines.insert(0, f"{name}: {names[start]} {tag}")
    return joined(lines)


def _symbols(node: Node, depth: int = 0) -> Iterator[tuple[str, int]]:
    """The rules that a rule names, in its order: (a rule, the number of brackets around it)."""
    if isinstance(node, Symbol):
        yield node.name, depth
    elif isinstance(node, Series | Choice):
        for part in node.parts:
            yield from _symbols(part, depth + isinstance(part, Choice))
    elif isinstance(node, Repeat):
        yield from _symbols(node.inner, depth + 1)


def _is_regular(named: Mapping[str, list[tuple[str, int]]]) -> bool:
    """Whether no rule leads back to itself."""
    try:
        TopologicalSorter(
            {rule: [it for it, _ in others] for rule, others in named.items()}
        ).prepare()
    except CycleError:
        return False
    return True


def _may_have(rules: Mapping[str, Node], some: str) -> bool:
    """Whether a text may have one of these characters, of PROBED."""
    return any(chars.held.intersection(some) for node in rules.values() for chars in chars_in(node))
