"""Regular expressions in the syntax of Rust's `regex`, which llguidance takes, as nodes.

A part of a string has no beginnings of lines and no neighbours, so anchors inside an expression and
boundaries of words are refused. Look-around and back references are not in Rust's syntax.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from yaie.server.tools.text_grammars.nodes import (
    CONTROLS,
    MOST_DEPTH,
    PROBED,
    Chars,
    Node,
    UnenforceableError,
    choice,
    repeat,
    series,
)

Held = frozenset[str]

_NOTHING: Held = frozenset()
_SPACES = frozenset("\t\n\v\f\r")
_PERL = {"d": _NOTHING, "s": _SPACES, "w": _NOTHING}
_POSIX = {
    "alnum": _NOTHING, "alpha": _NOTHING, "ascii": PROBED, "blank": frozenset("\t"),
    "cntrl": CONTROLS, "digit": _NOTHING, "graph": PROBED - CONTROLS, "lower": _NOTHING,
    "print": PROBED - CONTROLS, "punct": PROBED - CONTROLS, "space": _SPACES, "upper": _NOTHING,
    "word": _NOTHING, "xdigit": _NOTHING,
}  # fmt: skip
"""What each class holds of PROBED."""
_LETTERS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUM_DIGITS = {"x": 2, "u": 4, "U": 8}
_PUNCTUATION = frozenset(string.punctuation + " ") - {"<", ">"}  # \< is a boundary of words

_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{1,9})?)?\}")
_HEX = re.compile(r"\{([0-9a-fA-F]{1,8})\}")
_CATEGORY = re.compile(r"\{([LMNPSZC][a-z]?)\}|([LMNPSZC])")
_GROUP = re.compile(r"\?(?:P?<[A-Za-z_][\w.\[\]]*>|([a-zA-Z-]*)(:|(?=\))))")
_POSIX_CLASS = re.compile(r"\[:(\^?)([a-z]+):\]")
_IN_LARK = re.compile(r"\\.|/|\n", re.DOTALL)
_ESCAPED = {"/": r"\/", "\n": r"\n"}
"""What would end a regular expression in Lark, and how it is written in one."""

_OPERATIONS: dict[str, Callable[[Held, Held], Held]] = {
    "&&": frozenset.intersection,
    "--": frozenset.difference,
    "~~": frozenset.symmetric_difference,
}


def one_char(char: str, *, is_folded: bool = False) -> Chars:
    """This character alone."""
    has_cases = char.lower() != char.upper()
    return Chars(escaped(char), PROBED & {char}, is_folded and has_cases)


def char_range(first: str, last: str) -> Chars:
    """Any character from one to another."""
    held = frozenset(char for char in PROBED if first <= char <= last)
    return Chars(f"[{escaped(first)}-{escaped(last)}]", held)


def literal(text: str, *, is_folded: bool = False) -> Node:
    """This text alone."""
    return series(*(one_char(char, is_folded=is_folded) for char in text))


def escaped(char: str) -> str:
    """A character as it is written in a regular expression of Lark, inside a class or not."""
    if char in _PUNCTUATION and char != " ":
        return f"\\{char}"
    return char if char.isprintable() else f"\\x{{{ord(char):x}}}"


def read_regex(text: str, flags: str = "") -> Node:
    """A regular expression. flags: those that Lark writes behind it. Raises UnenforceableError if it is
    none, or cannot be enforced."""
    return _Reader(text, frozenset(flags)).whole()


@dataclass(frozen=True, slots=True)
class _Item:
    """Of a class. char: None if it is a class itself."""

    held: Held
    char: str | None = None


class _Reader:
    def __init__(self, text: str, flags: frozenset[str]) -> None:
        self._text = text
        self._place = 0
        self._flags = flags
        self._depth = 0

    def whole(self) -> Node:
        self._set(flags="".join(self._flags))
        found = self._alternatives()
        if self._place < len(self._text):
            raise self._refusal("a bracket is closed that was not opened")
        return found

    def _alternatives(self) -> Node:
        parts = [self._one_after_the_other()]
        while self._takes("|"):
            parts.append(self._one_after_the_other())
        return choice(*parts)

    def _one_after_the_other(self) -> Node:
        parts: list[Node] = []
        while not self._depth and (self._takes("^") or self._takes(r"\A")):
            pass  # a text is matched as a whole anyway
        while self._place < len(self._text) and self._text[self._place] not in "|)":
            if not self._depth and self._is_at_end():
                break
            if (atom := self._atom()) is not None:
                parts.append(self._repeated(atom))
        return series(*parts)

    def _is_at_end(self) -> bool:
        """Whether an alternative ends here with an anchor, which is passed then."""
        place = self._place
        while self._takes("$") or self._takes(r"\z"):
            pass
        if self._place > place and self._text[self._place : self._place + 1] not in ("", "|"):
            self._place = place
        return self._place > place

    def _repeated(self, atom: Node) -> Node:
        while True:
            if self._takes("*"):
                atom = repeat(atom, 0, None)
            elif self._takes("+"):
                atom = repeat(atom, 1, None)
            elif self._takes("?"):
                atom = repeat(atom, 0, 1)
            elif found := _COUNT.match(self._text, self._place):
                self._place = found.end()
                least = int(found[1])
                most = least if found[2] is None else None if found[3] is None else int(found[3])
                if most is not None and most < least:
                    raise self._refusal(f"{found[0]} counts down")
                atom = repeat(atom, least, most)
            else:
                return atom
            self._takes("?")  # lazy or not, the texts are the same

    def _atom(self) -> Node | None:
        """None for flags, which match nothing."""
        char = self._text[self._place]
        if char == "(":
            return self._group()
        if char == "[":
            start = self._place
            item = self._class()
            return self._chars(self._text[start : self._place], item.held)
        if char in "*+?{":
            raise self._refusal(f"{char} repeats nothing")
        if char in "^$":
            raise self._refusal(f"{char} may stand at the ends alone")
        self._place += 1
        if char == ".":
            has_lines = "s" not in self._flags
            return Chars("[^\\n]", PROBED - {"\n"}) if has_lines else Chars("[\\s\\S]", PROBED)
        if char != "\\":
            return one_char(char, is_folded="i" in self._flags)
        start = self._place - 1
        item = self._escape()
        if item.char is not None:
            return one_char(item.char, is_folded="i" in self._flags)
        return self._chars(self._text[start : self._place], item.held)

    def _chars(self, source: str, held: Held) -> Chars:
        source = _IN_LARK.sub(lambda found: _ESCAPED.get(found[0], found[0]), source)
        return Chars(source, held, "i" in self._flags)

    def _group(self) -> Node | None:
        before = self._flags
        self._place += 1
        if self._text.startswith("?", self._place):
            found = _GROUP.match(self._text, self._place)
            if found is None:
                raise self._refusal("a group of this kind is not supported")
            self._place = found.end()
            self._set(flags=found[1] or "")
            if found[2] == "":
                self._place += 1
                return None  # the flags hold up to the end of the group around
        self._deeper()
        inner = self._alternatives()
        self._depth -= 1
        if not self._takes(")"):
            raise self._refusal("a group is not closed")
        self._flags = before
        return inner

    def _set(self, flags: str) -> None:
        on, _, off = flags.partition("-")
        for flag in on + off:
            if flag not in "isu" or (flag == "u" and flag in off):
                raise self._refusal(f"the flag {flag} is not supported")
        self._flags = (self._flags | frozenset(on)) - frozenset(off)

    # --- classes ---

    def _class(self) -> _Item:
        self._place += 1
        is_negated = self._takes("^")
        total: Held | None = None
        operation, items = "", list[Held]()
        # At the beginning hyphens stand for themselves, and so does a bracket.
        while self._takes("-"):
            items.append(_NOTHING)
        if not items and self._text.startswith("]", self._place):
            items.append(self._range_or_item())
        while not self._takes("]"):
            if (sign := self._text[self._place : self._place + 2]) in _OPERATIONS:
                total = _combined(total, operation, items)
                operation, items = sign, []
                self._place += 2
            else:
                items.append(self._range_or_item())
        held = _combined(total, operation, items)
        return _Item(PROBED - held if is_negated else held)

    def _range_or_item(self) -> Held:
        item = self._item()
        behind = self._text[self._place : self._place + 2]
        if not behind.startswith("-") or behind in ("-]", "--"):
            return item.held
        self._place += 1
        last = self._item()
        if item.char is None or last.char is None or item.char > last.char:
            raise self._refusal("a range in a class has no order")
        return char_range(item.char, last.char).held

    def _item(self) -> _Item:
        if found := _POSIX_CLASS.match(self._text, self._place):
            if found[2] not in _POSIX:
                raise self._refusal(f"{found[0]} is not known")
            self._place = found.end()
            return _Item(PROBED - _POSIX[found[2]] if found[1] else _POSIX[found[2]])
        char = self._text[self._place : self._place + 1]
        if char == "":
            raise self._refusal("a class is not closed")
        if char == "[":
            self._deeper()
            item = self._class()
            self._depth -= 1
            return item
        self._place += 1
        return self._escape() if char == "\\" else _Item(PROBED & {char}, char)

    # --- escapes ---

    def _escape(self) -> _Item:
        """Behind the backslash."""
        char = self._text[self._place : self._place + 1]
        self._place += 1
        if (lower := char.lower()) in _PERL:
            held = _PERL[lower]
            return _Item(held if char == lower else PROBED - held)
        if char in ("p", "P"):
            return self._category(is_negated=char == "P")
        if char in _NUM_DIGITS:
            meant = self._code(_NUM_DIGITS[char])
        elif char in _LETTERS:
            meant = _LETTERS[char]
        elif char in _PUNCTUATION:
            meant = char
        else:
            raise self._refusal(f"\\{char} is not supported")
        return _Item(PROBED & {meant}, meant)

    def _code(self, num_digits: int) -> str:
        found = _HEX.match(self._text, self._place)
        digits = found[1] if found else self._text[self._place : self._place + num_digits]
        self._place = found.end() if found else self._place + num_digits
        is_hex = all(digit in string.hexdigits for digit in digits)
        code = int(digits, 16) if is_hex and digits else -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._refusal(f"{digits!r} is the code of no character")
        return chr(code)

    def _category(self, *, is_negated: bool) -> _Item:
        found = _CATEGORY.match(self._text, self._place)
        if found is None:
            raise self._refusal("\\p and \\P may have a general category alone, as in \\p{Lu}")
        self._place = found.end()
        name = found[1] or found[2]
        held = frozenset(it for it in PROBED if unicodedata.category(it).startswith(name))
        return _Item(PROBED - held if is_negated else held)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self._refusal(f"its brackets nest more than {MOST_DEPTH} levels deep")

    # --- characters ---

    def _takes(self, text: str) -> bool:
        """Whether this comes next; then it is passed."""
        is_next = self._text.startswith(text, self._place)
        self._place += len(text) if is_next else 0
        return is_next

    def _refusal(self, why: str) -> UnenforceableError:
        shown = self._text if len(self._text) <= 40 else f"{self._text[:39]}…"
        return UnenforceableError(f"The regular expression {shown!r} is not enforceable: {why}.")


def _combined(total: Held | None, operation: str, items: Iterable[Held]) -> Held:
    union = frozenset[str]().union(*items)
    return union if total is None else _OPERATIONS[operation](total, union)
