"""Grammars of clients: in GBNF, llama.cpp's notation, as grammars in Lark, and how they are followed."""

import re

from yaie.core.errors import InvalidRequestError
from yaie.engine.input.grammars.schema_limits import PARAM

MOST_RULES = 1024
MOST_LEVELS = 1200
"""Of rules, and of brackets inside each, together: the compiler may call itself for all of them, and its
stack has an end."""
RULE = re.compile(
    r"^[ \t]*[?!]?[A-Za-z_]\w*[ \t]*(?:\.[ \t]*-?\d+|\[[^\]\n]*\])?[ \t]*:", re.MULTILINE
)
"""Of a grammar in Lark: how one begins."""
UNFORCED = '%llguidance {"no_forcing": true}'
"""With a client's grammar, llguidance must not look for tokens that are certain. It would never return
from `/a+/ "a"`, where the first lexeme leaves nothing to the second."""


def num_levels(lark: str) -> int:
    """How deep the rules of a grammar may lead, at most."""
    total = 0
    for rule in RULE.split(lark):
        depth = deepest = 0
        for char in rule:
            depth += (char in "([{") - (char in ")]}" and depth > 0)
            deepest = max(deepest, depth)
        total += 1 + deepest
    return total


def lark_of(text: str) -> str:
    """The same language in Lark; its first rule is `start`. Takes about 2 ms for 1,000 characters.
    Raises InvalidRequestError."""
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    try:
        lark: str = gbnf_to_lark(text)
    except (GbnfToLarkError, LookupError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise InvalidRequestError(f"the grammar is no GBNF: {why}", param=PARAM) from None
    if len(RULE.findall(lark)) > MOST_RULES or num_levels(lark) > MOST_LEVELS:
        raise InvalidRequestError(
            f"the grammar has more than {MOST_RULES} rules, or more than {MOST_LEVELS} rules and "
            "brackets in them; use fewer",
            param=PARAM,
        )
    return f"{lark}\n{UNFORCED}\n"
