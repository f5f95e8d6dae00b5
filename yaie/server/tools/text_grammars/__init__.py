"""Grammars that clients give for the input of a tool, which is a text.

They become a part of the grammar for calls (`yaie.server.tools.formats`). `lark.py` and `regexes.py`
read them as `nodes.py` has them. `json_strings.py` writes them for models that put the text into a JSON
string, `tags.py` for models that put it between tags. `written.py` has what both need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from yaie.core.errors import InvalidRequestError
from yaie.server.tools.text_grammars.json_strings import json_rules
from yaie.server.tools.text_grammars.lark import START, read_lark
from yaie.server.tools.text_grammars.nodes import Node, UnenforceableError, terminal
from yaie.server.tools.text_grammars.regexes import read_regex
from yaie.server.tools.text_grammars.tags import tagged_rules

__all__ = ["TEXTS", "TextGrammar"]

TEXTS = "text_grammars"
"""The name under which a request has its text grammars beside it (`yaie.server.lenient.notes`), by the
names of the functions."""
MOST_KEPT = 32
"""Grammars that were written last. Agents send the same ones with every request."""
MOST_REASON = 240
NESTED = "Too much in it is nested."


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """A grammar for the one argument of a function, which is a text.

    argument: its name. field: where the client has written the grammar, for errors.
    """

    argument: str
    syntax: Literal["lark", "regex"]
    definition: str
    field: str

    def in_json(self, rule: str) -> str:
        """Lark with a rule of that name, for such a text between the quotation marks of a JSON string.
        Raises InvalidRequestError if it cannot be enforced."""
        return self._written(rule, "")

    def in_tags(self, rule: str, end: str) -> str:
        """Lark with a rule of that name, for such a text and the tag after it. end: a newline and the
        tag. Raises InvalidRequestError if it cannot be enforced."""
        return self._written(rule, end)

    def refusal(self, why: str) -> InvalidRequestError:
        """An error that names the client's field."""
        return InvalidRequestError(f"{self.field}: {why}", param=self.field)

    def _written(self, rule: str, end: str) -> str:
        try:
            return _written(self.syntax, self.definition, rule, end)
        except UnenforceableError as error:
            raise self.refusal(str(error)) from None
        except RecursionError:
            raise self.refusal(NESTED) from None


@lru_cache(MOST_KEPT)
def _written(syntax: str, definition: str, rule: str, end: str) -> str:
    rules: Mapping[str, Node]
    rules = read_lark(definition) if syntax == "lark" else {START: terminal(read_regex(definition))}
    lark = tagged_rules(rules, START, rule, end) if end else json_rules(rules, START, rule)
    if (why := _fault(f"start: {rule}\n{lark}")) is not None:
        raise UnenforceableError(f"It cannot be compiled: {why}.")
    return lark


def _fault(lark: str) -> str | None:
    """Why a grammar cannot be compiled; None if it can. Without a vocabulary some reasons stay
    hidden."""
    import llguidance

    told = llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(lark))
    # In front of the reason it may show a regular expression, which is not the client's.
    reason = told.rpartition("error: ")[2].partition("\n")[0]
    return reason[:MOST_REASON] or None
