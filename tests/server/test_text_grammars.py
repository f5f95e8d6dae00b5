"""A grammar of texts, as it is written for JSON strings and between tags, has the same texts as before.

The judges are llguidance, which follows the grammar itself, and Python's own regular expressions.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.tool_models import tool_tokenizer
from yaie.core.errors import InvalidRequestError
from yaie.server.tools.text_grammars import TextGrammar
from yaie.server.tools.text_grammars.lark import COMMON

CODEX = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
PATCH = """\
*** Begin Patch
*** Add File: a "quoted" \\ name
+
+\tprint("é\\n")\x1b
*** Delete File: old
*** Update File: b
*** Move to: c
@@
 x
@@ def f():
-y
+z
*** End of File
*** End Patch"""
END = "\n</parameter>"

Judge = Callable[[str, str], bool]


class Judges:
    """Follows grammars with a tokenizer whose tokens are bytes, some characters and special ones."""

    def __init__(self, folder: Path) -> None:
        import llguidance.hf
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(tool_tokenizer("hermes", folder))
        self._vocabulary = llguidance.hf.from_tokenizer(self.tokenizer)
        self.matcher = lru_cache(64)(self._matcher)

    def _matcher(self, lark: str) -> Any:
        """At its start. Raises ValueError for what llguidance does not compile."""
        import llguidance

        # It would look without end for tokens that are certain: see `UNFORCED`.
        lark = f'%llguidance {{"no_forcing": true}}\n{lark}'
        grammar = llguidance.grammar_from("lark", lark)
        matcher = llguidance.LLMatcher(self._vocabulary, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def belongs(self, lark: str, text: str) -> bool:
        matcher = self.matcher(lark).deep_copy()
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())

    def in_json(self, written: str, text: str) -> bool:
        return self.belongs(
            f'start: "\\"" x "\\""\n{written}', json.dumps(text, ensure_ascii=False)
        )

    def in_tags(self, written: str, text: str) -> bool:
        return self.belongs(f"start: x\n{written}", text + END)

    def walk(self, lark: str, rng: random.Random, alphabet: str) -> Iterator[str]:
        """Some texts that the grammar leads to, if it can of these characters, and some near them."""
        known = [self.tokenizer.encode(it, add_special_tokens=False) for it in alphabet]
        ids = [it[0] for it in known if len(it) == 1]
        for _ in range(6):
            matcher, text = self.matcher(lark).deep_copy(), ""
            for _ in range(8):
                bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
                allowed = set(np.flatnonzero(np.unpackbits(bits, bitorder="little")))
                if not (ways := [it for it in ids if it in allowed]):
                    break
                matcher.consume_token(choice := rng.choice(ways))
                text += self.tokenizer.decode([choice])
                yield text
            if text:
                place = rng.randrange(len(text))
                yield text[:place] + rng.choice(alphabet) + text[place + 1 :]


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Judges:
    return Judges(tmp_path_factory.mktemp("judges") / "tokenizer")


def lark(definition: str) -> TextGrammar:
    return TextGrammar("input", "lark", definition, "tools[0].format.definition")


def regex(definition: str) -> TextGrammar:
    return TextGrammar("input", "regex", definition, "tools[0].format.definition")


def refusal(grammar: TextGrammar, *, in_tags: bool = False) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        grammar.in_tags("x", END) if in_tags else grammar.in_json("x")
    assert refused.value.param == "tools[0].format.definition"
    return refused.value.message.removeprefix("tools[0].format.definition: ")


# --- the grammar of Codex's patches ---


@pytest.mark.parametrize("text", [PATCH, PATCH + "\n", PATCH.replace("+z", "+</param")])
def test_a_patch_of_codex_belongs_to_its_grammar_in_every_form(judges: Judges, text: str) -> None:
    assert judges.belongs(CODEX, text)
    assert judges.in_json(lark(CODEX).in_json("x"), text)
    assert judges.in_tags(lark(CODEX).in_tags("x", END), text)


@pytest.mark.parametrize(
    "text",
    ["", "*** Begin Patch\n*** End Patch", PATCH.replace("+z", "z"), PATCH + "\n\n", PATCH[:-1],
     PATCH.replace("name\n+", "name\n"), PATCH.replace("File: old", "File: "), f" {PATCH}"],
)  # fmt: skip
def test_what_is_no_patch_belongs_to_it_in_no_form(judges: Judges, text: str) -> None:
    in_json, in_tags = lark(CODEX).in_json("x"), lark(CODEX).in_tags("x", END)
    for count in range(len(text)) if text == PATCH[:-1] else [len(text)]:
        assert not judges.belongs(CODEX, text[:count])
        assert not judges.in_json(in_json, text[:count])
        assert not judges.in_tags(in_tags, text[:count])


def test_a_text_that_holds_the_end_tag_cannot_stand_before_it(judges: Judges) -> None:
    written = lark(CODEX).in_tags("x", END)
    assert not judges.in_tags(written, PATCH.replace("+z", "+</parameter>"))
    assert judges.in_json(lark(CODEX).in_json("x"), PATCH.replace("+z", "+</parameter>"))


# --- grammars at random ---

ALPHABET = 'ab"\\\n\t\x01\x1f\x10<éA'
_WRITTEN = {'"': '"', "\\": r"\\", "\n": r"\n", "\t": r"\t", "\x01": r"\x01", "\x1f": r"\x1f",
            "\x10": r"\x{10}"}  # fmt: skip
_CLASSES = (".", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", "(?s:.)", r"\p{Cc}", r"\P{Po}")


class Author:
    """Writes grammars of characters that JSON escapes, with all operators."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def grammar(self) -> str:
        names = ["T1", "T2", "r1", "r2", *(["start"] if self._chance(0.5) else [])]
        return "\n".join(
            [
                f"start: {self._rule(3, names)}",
                f"r1: {self._rule(2, names)} | {self._rule(1, ['T1', 'T2'])}",
                f"r2: {self._rule(2, names)} | {self._rule(1, ['T1', 'T2'])}",
                f"T1: {self._rule(1, ['T2'])}",
                f"T2: {self._rule(1, ['/a/'])}",
            ]
        )

    def regex(self, depth: int = 2) -> str:
        if not depth or self._chance(0.35):
            return self._set() if self._chance(0.6) else self._char()
        if self._chance(0.4):
            return self.regex(depth - 1) + self.regex(depth - 1)
        if self._chance(0.4):
            return f"({self.regex(depth - 1)}|{self.regex(depth - 1)})"
        return f"({self.regex(depth - 1)})" + self._one_of("*", "+", "?", "{1,2}", "{2}", "{1,}")

    def _rule(self, depth: int, names: list[str]) -> str:
        if not depth or self._chance(0.4):
            if self._chance(0.4):
                text = "".join(self._one_of(*ALPHABET) for _ in range(self._rng.randint(1, 2)))
                return json.dumps(text) + ("i" if self._chance(0.1) else "")
            return f"/{self.regex()}/" if self._chance(0.6) else self._one_of(*names)
        first, second = self._rule(depth - 1, names), self._rule(depth - 1, names)
        if self._chance(0.7):
            return f"{first} {second}" if self._chance(0.6) else f"({first} | {second})"
        return f"({first}){self._one_of('*', '+', '?', '{1,2}', '{2}', '{,2}', '{1,}', '~1..3')}"

    def _set(self) -> str:
        if self._chance(0.15):
            return self._one_of(*_CLASSES)
        items = "".join(self._one_of(self._char(), "a-b", r"\s") for _ in range(2)) + self._char()
        items += f"&&[^{self._char()}]" if self._chance(0.1) else ""
        return f"[{'^' if self._chance(0.4) else ''}{items}]"

    def _char(self) -> str:
        char = self._one_of(*ALPHABET)
        return _WRITTEN.get(char, char)

    def _one_of(self, *choices: str) -> str:
        return self._rng.choice(choices)

    def _chance(self, chance: float) -> bool:
        return self._rng.random() < chance


@pytest.mark.parametrize("seed", range(40))
def test_random_grammars_have_the_same_texts_in_json(judges: Judges, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        grammar = Author(rng).grammar()
        texts = ["".join(rng.choices(ALPHABET, k=rng.randint(0, 5))) for _ in range(20)]
        texts += judges.walk(grammar, rng, ALPHABET)
        belong = [text for text in texts if judges.belongs(grammar, text)]
        try:
            written = lark(grammar).in_json("x")
        except InvalidRequestError:  # no text belongs to it
            written = None
        found = [text for text in texts if written is not None and judges.in_json(written, text)]
        assert found == belong, grammar


@pytest.mark.parametrize("seed", range(20))
def test_random_grammars_keep_their_texts_between_tags(judges: Judges, seed: int) -> None:
    """And may have more. llguidance does not go back from a lexeme that has taken too much."""
    rng = random.Random(seed)
    for _ in range(4):
        grammar = Author(rng).grammar()
        texts = ["".join(rng.choices(ALPHABET, k=rng.randint(0, 5))) for _ in range(20)]
        texts += judges.walk(grammar, rng, ALPHABET)
        try:
            written = lark(grammar).in_tags("x", END)
        except InvalidRequestError:  # its rules refer to themselves
            continue
        for text in texts:
            assert judges.in_tags(written, text) or not judges.belongs(grammar, text), grammar


@pytest.mark.parametrize("seed", range(30))
def test_random_expressions_have_the_texts_that_python_says(judges: Judges, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        expression = Author(rng).regex(3)
        if re.search(r"\\[pPwW]|&&", expression):
            continue  # these mean something else there
        python = re.compile(expression.replace(r"\x{10}", r"\x10"), re.ASCII)
        in_json, in_tags = regex(expression).in_json("x"), regex(expression).in_tags("x", END)
        texts = ["".join(rng.choices(ALPHABET, k=rng.randint(0, 5))) for _ in range(20)]
        texts += judges.walk(f"start: x\n{in_tags}", rng, ALPHABET)
        for text in texts:
            belongs = python.fullmatch(text) is not None
            assert judges.in_json(in_json, text) == belongs, (expression, text)
            assert judges.in_tags(in_tags, text) == belongs, (expression, text)


# --- characters ---


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize(
    ("expression", "python"),
    [
        (r"(.|\n)*", r"(.|\n)*"),
        (r".*", r".*"),
        (r"[^\x00-\x1f]*", r"[^\x00-\x1f]*"),
        (r"[\x{0}-\x{10}\u{1f600}\\\]\^-]*", "[\x00-\x10\U0001f600\\\\\\]^-]*"),
        (r"[^\n\\\x7f\"]*", r'[^\n\\\x7f"]*'),
    ],
)
def test_any_text_is_found_again_in_json(
    judges: Judges, expression: str, python: str, text: str
) -> None:
    belongs = re.fullmatch(python, text) is not None
    assert judges.in_json(regex(expression).in_json("x"), text) == belongs


@pytest.mark.parametrize(
    "expression",
    [r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\p{Cc}", r"\P{Cc}", r"\pP", r"\p{Zs}", ".",
     "(?s:.)", "(?i)[^k]", "(?i:é)", r"[[:space:]]", r"[[:^print:]]", r"[[:punct:]]", r"[[:cntrl:]a]",
     r"[&&\"]", r"[--\\]", r"[]\"]", r"[^]\"]", r"[\x00-\x1f--[\n\t]]", r"[a-z~~\\-b]", r"[-\"]",
     r"[a-]", r"[a&&b]|c", r"[\D\"]", r"[^\S\n]", r"\x5C", r"\u0022", r"\U0000000b", r"\v", r"\f",
     r"\a"],
)  # fmt: skip
def test_sets_hold_the_characters_that_llguidance_says(judges: Judges, expression: str) -> None:
    original = f"start: /{expression.replace('/', chr(92) + '/')}/"
    in_json, in_tags = regex(expression).in_json("x"), regex(expression).in_tags("x", END)
    for char in [*map(chr, range(0x100)), "\u2028", "\u0130", "\u017f", "\u212a", "🙂", ""]:
        belongs = judges.belongs(original, char)
        assert judges.in_json(in_json, char) == belongs, repr(char)
        assert judges.in_tags(in_tags, char) == belongs, repr(char)


# --- what Lark has ---


@pytest.mark.parametrize("name", COMMON)
def test_terminals_of_common_are_those_of_llguidance(judges: Judges, name: str) -> None:
    rng = random.Random(name)
    grammar = f"start: {name}\n%import common.{name}"
    own = lark(grammar).in_json("x")
    alphabet = '0a.e+-E_"\\/*# \t\r\n\fF'
    texts = ["".join(rng.choices(alphabet, k=rng.randint(0, 4))) for _ in range(200)]
    texts += judges.walk(grammar, rng, alphabet)
    assert [it for it in texts if judges.in_json(own, it)] == [
        it for it in texts if judges.belongs(grammar, it)
    ]


@pytest.mark.parametrize(
    ("definition", "right", "wrong"),
    [
        ('?start: a // one\n!a: "x" -> alias # two\n  | "y"\n\n  | "z"\n', "z", "w"),
        ('start: ( "x"\n | "y" ) ["\\""]', 'y"', 'x""'),
        ('start: "a".."c" "\\u0001".."\\u0003"', "b\x02", "d\x02"),
        (r'start: "\x41\"\/"', 'A"/', "A/"),
        ('start: "Ab\\n"i', "aB\n", "a\n"),
        ('start: "a"~2 "b"~1..2 "c"{2} "d"{,1} "e"{1,}', "aabccdeee", "aabcccd"),
        ("start: /é+/i /./s", "Éé\n", "é"),
        ('start: _X-Y\n_X-Y: A "\\n"? | ""\nA: /[^\\n]/', '"\n', "\n"),
        ("start: INT NUM\n%import common (INT, WS)\n%import common.LF -> NUM", "12\n", "12"),
        ('%llguidance {}\nstart: | "a" start "\\n"', "aa\n\n", "aa\n"),
        ("start: /^a$/ | /\\Ab\\z/", "b", "ab"),
        ('start: "" /()/ "x"', "x", ""),
    ],
)
def test_lark_is_read_as_llguidance_reads_it(
    judges: Judges, definition: str, right: str, wrong: str
) -> None:
    written = lark(definition).in_json("x")
    for text, belongs in ((right, True), (wrong, False)):
        assert judges.belongs(definition, text) == judges.in_json(written, text) == belongs


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("a: B", "no rule that is called start"),
        ("start: a", "does not define a"),
        ("start: A", "does not define A"),
        ("start: A\nA: B\nB: A", "A refers to itself"),
        ('start: A\nA: b\nb: "x"', "refers to the rule b"),
        ('start: "a"\nstart: "b"', "Line 2: start is defined twice"),
        ('start: "a"\n%ignore " "', "Line 2: %ignore is not supported"),
        ('start: %json {"type": "object"}', "Line 1: %json is not supported"),
        ('start: %regex {"substring_chars": "abc"}', "%regex is not supported"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "options of llguidance"),
        ("start: @other", "@other is not supported"),
        ("start: <[3]>", "<[3]> is not supported"),
        ("start: <|end|>", "<|end|> is not supported"),
        ('start: pair{"a", "b"}\npair{x, y}: x y', "no count"),
        ('start[lazy]: "a"', "colon"),
        ('start.2: "a"', "colon"),
        ('start: A\nA: /a+/ & /b/', "& is not supported"),
        ("start: A\nA: ~/a/", "~ is not supported"),
        ("%import other.INT\nstart: INT", "only the module common"),
        ("%import common.NAME\nstart: NAME", "no terminal NAME"),
        ('start: ("a"', "bracket is not closed"),
        ('start: "a")', "has no place"),
        ('start: "a" {2,1}', "count goes down"),
        ('start: "\\q"', "no string"),
        ('start: "\\ud800"', "no string"),
        ("start: 'a'", "no Lark"),
        (f'start: {"(" * 65}"a"{")" * 65}', "over 64 levels"),
        ("start: a\na: b a\nb: /x/", "No text belongs"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_of_lark_is_refused_with_a_reason(
    definition: str, why: str
) -> None:
    assert why in refusal(lark(definition))


@pytest.mark.parametrize(
    "expression",
    ["a(?=b)", "(?<!a)b", r"(a)\1", r"\bword", r"a\B", "a^b", "a$b", "(a$)", r"\<a", "(?m)^a$",
     "(?x)a b", "(?-u)a", "(?#no)", "(a", "a)", "[a", "*a", "a{2,1}", "a{,2}", "a{", r"\p{Greek}", r"\q",
     r"\x{d800}", r"\xg0", "[b-a]", r"[a-\d]", "[[:no:]]", "(" * 65 + ")" * 65,
     "[" * 66 + "a" + "]" * 66, "\\"],
)  # fmt: skip
def test_what_cannot_be_enforced_of_an_expression_is_refused_with_a_reason(expression: str) -> None:
    shown = expression if len(expression) <= 40 else expression[:39]
    assert repr(shown)[1:-1] in refusal(regex(expression))


def test_an_expression_that_llguidance_does_not_know_is_refused_with_its_reason() -> None:
    assert "cannot be compiled" in refusal(regex(r"\p{Lx}"))


# --- between tags ---


@pytest.mark.parametrize(
    ("definition", "right", "wrong"),
    [
        ('start: "(" start ")" | /[a-z\\/>]+/', "((a/>))", "((a)"),
        ('start: "[" (start ("," start)*)? "]" | /[0-9]/', "[1,[],[2]]", "[1"),
    ],
)
def test_rules_that_refer_to_themselves_stand_before_a_tag_that_they_do_not_touch(
    judges: Judges, definition: str, right: str, wrong: str
) -> None:
    written = lark(definition).in_tags("x", END)
    assert judges.in_tags(written, right)
    assert not judges.in_tags(written, wrong)


@pytest.mark.parametrize("inside", [r"/[a-z\n]+/", '"<"', "/./", r"/\s/", '"\\n"'])
def test_others_that_refer_to_themselves_are_refused_there_and_not_in_json(inside: str) -> None:
    grammar = lark(f'start: "(" start ")" | {inside}')
    assert "refer to themselves" in refusal(grammar, in_tags=True)
    assert grammar.in_json("x")


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "<", "\n<", "a\n</parameter", "</parameter\n>"])
def test_all_but_the_tag_itself_may_stand_before_it(judges: Judges, text: str) -> None:
    lines = lark('start: (/[^\\n]*/ "\\n")* /[^\\n]*/').in_tags("x", END)
    assert judges.in_tags(lines, text)
    assert judges.in_tags(regex(r"(?s:.)*").in_tags("x", END), text)


# --- how much there may be ---


def test_many_texts_of_one_rule_take_few_rules(judges: Judges) -> None:
    written = lark('start: (/[ab]*/ "\\n"){3,100000}').in_json("x")
    assert len(written) < 1 << 14
    assert judges.in_json(written, "ab\n\na\n")
    assert not judges.in_json(written, "ab\n\n")


def test_what_comes_to_too_much_is_refused_and_not_written() -> None:
    doubled = "\n".join(f"A{number}: A{number + 1} A{number + 1}" for number in range(60))
    assert "too much" in refusal(lark(f'start: A0\n{doubled}\nA60: "a"'))
    assert "too much" in refusal(
        lark(f'start: {" ".join(["/[a-z]+/? QUOTED?"] * 6000)}\nQUOTED: "\\n"')
    )
    assert "too much" in refusal(regex('"?' * 40_000))
    assert "too much" in refusal(lark("start: " + "|".join(f'"\\n{it}"' for it in range(9000))))


def test_rules_that_would_end_the_compilers_stack_are_refused() -> None:
    """llguidance calls itself for each, and the process would end with its stack."""
    chain = "\n".join(f'r{number}: "a" r{number + 1}' for number in range(1000))
    for in_tags in (True, False):
        assert "more than 800 times" in refusal(
            lark(f'start: r0\n{chain}\nr1000: "b"'), in_tags=in_tags
        )
    nested = "\n".join(f"r{it}: {'(' * 9}r{it + 1}{' | /a/)*' * 9}" for it in range(200))
    message = refusal(lark(f'start: r0\n{nested}\nr200: "b"'), in_tags=True)
    assert "more than 800 times" in message


def test_terminals_that_lead_to_too_many_others_are_refused() -> None:
    chain = "\n".join(f'R{number}: "a" R{number + 1}' for number in range(1000))
    assert "nested" in refusal(lark(f'start: R0\n{chain}\nR1000: "b"'))


def test_rules_are_counted() -> None:
    rules = "\n".join(f'r{number}: "a"' for number in range(1024))
    assert "more than 1024 rules" in refusal(lark(f"start: r0\n{rules}"))
