"""Grammars in llguidance's Lark, as nodes.

A grammar of texts has rules, terminals and imports of the module `common`. All else is refused:
directives such as %ignore and %json, special tokens, other grammars, templates, attributes and
priorities of rules, and the operators & and ~ of terminals.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from yaie.engine.input.grammars.gbnf import MOST_RULES
from yaie.server.tools.text_grammars.nodes import (
    MOST_DEPTH,
    Choice,
    Node,
    Repeat,
    Series,
    Symbol,
    Terminal,
    UnenforceableError,
    choice,
    repeat,
    series,
    terminal,
)
from yaie.server.tools.text_grammars.regexes import char_range, literal, read_regex

START = "start"
_TOKEN = re.compile(
    r"""
      (?P<space>      [ \t\f]+ | (?:\#|//)[^\n]* )
    | (?P<newline>    (?:\r?\n)+ )
    | (?P<arrow>      -> )
    | (?P<rule>       [?!]{0,2} _{0,2}[a-z][_a-z0-9-]* )
    | (?P<terminal>   _{0,2}[A-Z][_A-Z0-9-]* )
    | (?P<string>     "(?:\\.|[^"\\\n])*"i? )
    | (?P<regex>      /(?:\\.|[^/\\\n])+/[a-z]* )
    | (?P<number>     [+-]?[0-9]+ )
    | (?P<directive>  %[a-z]+ )
    | (?P<sign>       \.\. | <[^<>\s]+> | @[\w-]+ | [:|()\[\]{}?*+~,.&] )
    """,
    re.VERBOSE,
)
_HEX = re.compile(r"\\(?:x([0-9a-fA-F]{2})|.)", re.DOTALL)
_FLOAT = r"([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": "[eE][+-]?[0-9]+",
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?({_FLOAT})",
    "NUMBER": f"[0-9]+|{_FLOAT}",
    "SIGNED_NUMBER": f"[+-]?([0-9]+|{_FLOAT})",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+([^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""The terminals of the module `common`, as llguidance has them."""


def read_lark(text: str) -> dict[str, Node]:
    """The rules that `start` leads to, by name. Terminals stand in them where they are named. Raises
    UnenforceableError if that is no grammar, or cannot be enforced."""
    definitions = _Reader(text).definitions()
    if START not in definitions:
        raise UnenforceableError("It has no rule that is called start.")
    return _Names(definitions).rules()


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    tokens, place, line = list[_Token](), 0, 1
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise UnenforceableError(f"Line {line} is no Lark at {text[place : place + 20]!r}.")
        kind = found.lastgroup or ""
        if kind != "space":
            tokens.append(_Token(kind, found[0], line))
        line += found[0].count("\n")
        place = found.end()
    tokens.append(_Token("newline", "", line))
    tokens.append(_Token("end", "", line))
    return tokens


class _Reader:
    """Reads definitions, in which other rules and terminals are symbols."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0
        self._found: dict[str, Node] = {}

    def definitions(self) -> dict[str, Node]:
        """Of all rules and terminals, by name."""
        while self._kind != "end":
            token = self._next()
            if token.text == "%import":
                self._import()
            elif token.text == "%llguidance":
                is_empty = self._takes("{") and self._takes("}")
                self._require(is_empty, "options of llguidance cannot be set here")
            elif token.kind in ("rule", "terminal"):
                self._require(self._takes(":"), "a colon must follow a name and nothing else")
                self._define(token.text.lstrip("?!"), self._alternatives())
            elif token.kind != "newline":
                self._place -= 1
                self._require(False, f"{token.text} is not supported here")
        return self._found

    def _define(self, name: str, node: Node) -> None:
        self._require(name not in self._found, f"{name} is defined twice")
        self._require(self._kind == "newline", f"{self._tokens[self._place].text!r} has no place")
        self._require(len(self._found) < MOST_RULES, f"there are more than {MOST_RULES} rules")
        self._found[name] = node

    def _import(self) -> None:
        self._require(self._next().text == "common", "only the module common can be imported")
        if self._takes("."):
            name = self._next().text
            self._import_as(name, self._next().text if self._takes("->") else name)
            return
        self._require(self._takes("("), "names must be imported")
        while not self._takes(")"):
            name = self._next().text
            self._import_as(name, name)
            self._takes(",")

    def _import_as(self, name: str, alias: str) -> None:
        self._require(name in COMMON, f"common has no terminal {name}")
        self._require(alias not in self._found, f"{alias} is defined twice")
        self._found[alias] = terminal(read_regex(COMMON[name]))

    def _alternatives(self) -> Node:
        parts = [self._one_after_the_other()]
        while self._is_another():
            parts.append(self._one_after_the_other())
        return choice(*parts)

    def _is_another(self) -> bool:
        place = self._place
        while self._kind == "newline":
            self._place += 1
        if self._takes("|"):
            return True
        self._place = place
        return False

    def _one_after_the_other(self) -> Node:
        parts: list[Node] = []
        while self._kind not in ("newline", "arrow") and self._text not in ("|", ")", "]"):
            parts.append(self._repeated(self._atom()))
        if self._takes("->"):
            self._require(self._next().kind in ("rule", "terminal"), "an alias must be a name")
        return series(*parts)

    def _repeated(self, atom: Node) -> Node:
        if self._takes("*"):
            return repeat(atom, 0, None)
        if self._takes("+"):
            return repeat(atom, 1, None)
        if self._takes("?"):
            return repeat(atom, 0, 1)
        if self._takes("~"):
            least = self._number()
            return self._counted(atom, least, self._number() if self._takes("..") else least)
        if self._takes("{"):
            least = 0 if self._text == "," else self._number()
            most: int | None = least
            if self._takes(","):
                most = None if self._text == "}" else self._number()
            self._require(self._takes("}"), "a count is not closed")
            return self._counted(atom, least, most)
        return atom

    def _number(self) -> int:
        token = self._next()
        is_count = token.kind == "number" and token.text.isdecimal() and len(token.text) < 10
        self._require(is_count, f"{token.text!r} is no count")
        return int(token.text)

    def _counted(self, atom: Node, least: int, most: int | None) -> Node:
        self._require(most is None or least <= most, "a count goes down")
        return repeat(atom, least, most)

    def _atom(self) -> Node:
        token = self._next()
        if token.text in ("(", "["):
            self._depth += 1
            self._require(self._depth <= MOST_DEPTH, f"brackets nest over {MOST_DEPTH} levels deep")
            inner = self._alternatives()
            self._require(self._takes(")" if token.text == "(" else "]"), "a bracket is not closed")
            self._depth -= 1
            return inner if token.text == "(" else repeat(inner, 0, 1)
        if token.kind == "string":
            return terminal(self._string(token))
        if token.kind == "regex":
            text, _, flags = token.text[1:].rpartition("/")
            return terminal(read_regex(text, flags))
        is_name = token.kind in ("rule", "terminal") and token.text[0] not in "?!"
        self._require(is_name, f"{token.text} is not supported here")
        return Symbol(token.text)

    def _string(self, token: _Token) -> Node:
        text = self._unquoted(token)
        if not self._takes(".."):
            return literal(text, is_folded=token.text.endswith("i"))
        last = self._unquoted(self._next())
        is_range = len(text) == len(last) == 1 and text <= last
        self._require(is_range, "a range goes from one character up to another")
        return char_range(text, last)

    def _unquoted(self, token: _Token) -> str:
        quoted = _HEX.sub(
            lambda found: f"\\u00{found[1]}" if found[1] else found[0], token.text.removesuffix("i")
        )
        try:
            text: str = json.loads(quoted, strict=False)
            text.encode()
        except ValueError:
            self._require(False, f"{token.text[:40]} is no string")
        return text

    # --- tokens ---

    @property
    def _kind(self) -> str:
        return self._tokens[self._place].kind

    @property
    def _text(self) -> str:
        return self._tokens[self._place].text

    def _next(self) -> _Token:
        token = self._tokens[self._place]
        self._place += token.kind != "end"
        return token

    def _takes(self, text: str) -> bool:
        """Whether this comes next; then it is passed."""
        is_next = self._text == text
        self._place += is_next
        return is_next

    def _require(self, is_right: bool, otherwise: str) -> None:
        if not is_right:
            line = self._tokens[self._place].line
            raise UnenforceableError(f"Line {line}: {otherwise}.")


class _Names:
    """Puts terminals in the place of their names."""

    def __init__(self, definitions: Mapping[str, Node]) -> None:
        self._definitions = definitions
        self._known: dict[str, Node] = {}
        self._open: set[str] = set()

    def rules(self) -> dict[str, Node]:
        """See `read_lark`."""
        found: dict[str, Node] = {}
        waiting = [START]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self._rule(self._defined(name), waiting)
        return found

    def _rule(self, node: Node, waiting: list[str]) -> Node:
        """waiting: it gets the names of rules in it."""
        if not isinstance(node, Symbol):
            return _mapped(node, lambda inner: self._rule(inner, waiting))
        if node.name.lstrip("_")[0].isupper():
            return self._terminal(node.name)
        waiting.append(node.name)
        return node

    def _terminal(self, name: str) -> Node:
        if name not in self._known:
            if name in self._open:
                raise UnenforceableError(f"The terminal {name} refers to itself.")
            self._open.add(name)
            self._known[name] = terminal(self._regex(self._defined(name)))
        return self._known[name]

    def _regex(self, node: Node) -> Node:
        if isinstance(node, Symbol):
            if not node.name.lstrip("_")[0].isupper():
                raise UnenforceableError(f"A terminal refers to the rule {node.name}.")
            return self._regex(self._terminal(node.name))
        return node.regex if isinstance(node, Terminal) else _mapped(node, self._regex)

    def _defined(self, name: str) -> Node:
        if name not in self._definitions:
            raise UnenforceableError(f"It does not define {name}.")
        return self._definitions[name]


def _mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    if isinstance(node, Series):
        return series(*map(change, node.parts))
    if isinstance(node, Choice):
        return choice(*map(change, node.parts))
    if isinstance(node, Repeat):
        return repeat(change(node.inner), node.least, node.most)
    return node
