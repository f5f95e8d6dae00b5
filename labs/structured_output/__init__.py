"""Lab 21: masks that keep an output to a JSON schema."""

from .automaton import ByteAutomaton
from .masks import TokenMasks
from .matcher import Matcher
from .schema import schema_grammar
from .trie import TokenTrie
from .values import constant, integer, number, string

__all__ = [
    "ByteAutomaton",
    "Matcher",
    "TokenMasks",
    "TokenTrie",
    "constant",
    "integer",
    "number",
    "schema_grammar",
    "string",
]
