"""Task 21.1: strings, numbers and constants."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect_raises, task
from grader.suites.structured_output.language import expect_refuses, expect_takes
from yaie.core.errors import UnsupportedSchemaError

DIGITS = (
    "RFC 8259, section 6: a minus perhaps; 0, or digits that begin with 1 to 9; then perhaps a point "
    "with a digit at least behind it; then perhaps e or E, a sign perhaps, and a digit at least."
)
ESCAPES = (
    'RFC 8259, section 7: behind a backslash stands one of " \\ / b f n r t, or u and four '
    "hexadecimal digits. A quote, a backslash and what is below U+0020 never stand for themselves."
)
UNITS = (
    "A character from U+10000 on is written as two \\u: one from D800 to DBFF, then one from DC00 to "
    "DFFF. Neither is a character on its own, in this order or any other."
)
LENGTH = "minLength and maxLength count characters: not bytes, and not the letters of an escape."
WHOLE = (
    "A character in UTF-8 is one to four bytes. The bytes of half a character are no text, though a "
    "token may end there: MULTIBYTE has the ways that are right."
)
EXACT = (
    "A constant is written in one way: json.dumps(value, ensure_ascii=False) for strings and numbers, "
    "WHITESPACE allowed between the tokens of lists and objects."
)


@task("21.1")
def test_integers(part: Any) -> None:
    """`integer` takes the integers of JSON, and nothing that a parser would refuse."""
    for text in ("0", "-0", "7", "-7", "10", "120", "-9080706050403020100"):
        expect_takes(part.integer(), text, "integer()", DIGITS)
    for text in ("", "-", "00", "01", "-01", "+1", "1.0", "1e3", "1-", "--1", " 1", "1 ", "a"):
        expect_refuses(part.integer(), text, "integer()", DIGITS)


@task("21.1")
def test_numbers(part: Any) -> None:
    """`number` takes the numbers of JSON, and nothing that a parser would refuse."""
    exponents = ("1e5", "1E5", "1e+5", "1E-05", "0e0", "-2.50e10", "1e007", "1.5E+3")
    for text in ("0", "-0", "12", "1.0", "0.0", "-0.001", "10.010", *exponents):
        expect_takes(part.number(), text, "number()", DIGITS)
    cut = ("1.", ".5", "-", "-.5", "1e", "1e+", "1.e5", "1.5e", "1.5e-")
    for text in ("", *cut, "01", "-01.5", "00.1", "1.2.3", "1e5.0", "1e5e5", "+1", "1,5", "0x1"):
        expect_refuses(part.number(), text, "number()", DIGITS)


@task("21.1")
def test_characters_that_stand_for_themselves(part: Any) -> None:
    """A string takes every character in UTF-8 but the quote, the backslash and what is below U+0020."""
    string = part.string()
    for text in ("", "a", "~ !#[]", "/", "\x7f", "é", "߿", "ࠀ", "中文", "퟿", "\ue000", "￿", "\U00010000",
                 "\U0010ffff", "a😀b", "{}:,"):  # fmt: skip
        expect_takes(string, f'"{text}"', "string()", WHOLE)
    for code in (*range(0x20), ord('"'), ord("\\")):
        expect_refuses(string, f'"{chr(code)}"', "string()", ESCAPES)
    for data in (b"\x80", b"\xc3", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xe4\xb8",
                 b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xff", b"\xc3a"):  # fmt: skip
        expect_refuses(string, b'"' + data + b'"', "string()", WHOLE)
    for text in ("", '"', "a", '"a', 'a"', '"a"b', '""""', ' "a"'):
        expect_refuses(string, text, "string()", "A string begins and ends with a quote.")


@task("21.1")
def test_escapes(part: Any) -> None:
    """A string takes the escapes of JSON and no others."""
    string = part.string()
    for text in (
        r"\"",
        r"\\",
        r"\/",
        r"\b\f\n\r\t",
        r"\u0000",
        r"\u00e9",
        r"\uFFfF",
        r"\\u",
        r"a\"b",
    ):
        expect_takes(string, f'"{text}"', "string()", ESCAPES)
    for text in ("\\", r"\a", r"\'", r"\x41", r"\u", r"\u12", r"\u123", r"\u123g", r"\U0041", r"\0",
                 r"\N", r"\\\ ", r"\ "):  # fmt: skip
        expect_refuses(string, f'"{text}"', "string()", ESCAPES)


@task("21.1")
def test_surrogates(part: Any) -> None:
    """`\\u` of a surrogate comes in pairs, the high one first."""
    string = part.string()
    for text in (r"\ud83d\ude00", r"\uD800\uDC00", r"\udbff\udfff", r"a\ud83d\ude00b", r"\ud7ff",
                 r"\ue000", r"\uD7FF\uE000", r"\uda12\udE34"):  # fmt: skip
        expect_takes(string, f'"{text}"', "string()", UNITS)
    for text in (r"\ud800", r"\uDFFF", r"\udc00\ud800", r"\ud83dx", r"\ud83d\u0041", r"\ud83d\ud83d",
                 r"\ud83d\n", r"\ude00", r"\ud83d\ude00\ude00", r"\uD83D\ue000"):  # fmt: skip
        expect_refuses(string, f'"{text}"', "string()", UNITS)


@task("21.1")
def test_lengths(part: Any) -> None:
    """`string(least, most)` counts characters, however they are written."""
    for least, most in ((0, 0), (0, 2), (2, 2), (1, 3), (3, None)):
        what = f"string({least}, {most})"
        grammar = part.string(least, most)
        for character in ("a", "é", "😀", r"\n", r"\u00e9", r"\ud83d\ude00"):
            for count in range(6):
                is_right = least <= count and (most is None or count <= most)
                check = expect_takes if is_right else expect_refuses
                check(grammar, f'"{character * count}"', what, LENGTH)


@task("21.1")
def test_constants(part: Any) -> None:
    """`constant` takes a value as `json.dumps(ensure_ascii=False)` writes it, and no other value."""
    values = [
        None,
        True,
        False,
        0,
        -3,
        2.5,
        1e300,
        10**20,
        "",
        "red",
        'a"b',
        "grün",
        "\n",
        "/",
        "😀",
    ]
    for value in values:
        right = json.dumps(value, ensure_ascii=False)
        expect_takes(part.constant(value), right, f"constant({value!r})", EXACT)
        for text in (right + " ", right[:-1], right + "0", "x"):
            expect_refuses(part.constant(value), text, f"constant({value!r})", EXACT)
    expect_refuses(part.constant("grün"), r'"gr\u00fcn"', "constant('grün')", EXACT)
    expect_refuses(part.constant(True), "1", "constant(True)", EXACT)
    expect_refuses(part.constant(1), "true", "constant(1)", EXACT)


@task("21.1")
def test_constants_of_many_parts(part: Any) -> None:
    """A constant list or object may have whitespace between its tokens, and keeps its order."""
    value = {"a": [1, {}], "b": []}
    grammar = part.constant(value)
    for text in ('{"a":[1,{}],"b":[]}', '{"a": [1, {}], "b": []}', '{ "a" : [ 1 , { } ] , "b" : [ ] }',
                 '{\n  "a": [1, {}],\n  "b": []\n}'):  # fmt: skip
        expect_takes(grammar, text, f"constant({value})", EXACT)
    for text in ('{"b":[],"a":[1,{}]}', '{"a":[1,{}]}', '{"a":[1,{}],"b":[],}', '{"a":[1 {}],"b":[]}',
                 '{"a":[1,{}],"b":[]} ', '{"a":[1,{}]"b":[]}', '{" a":[1,{}],"b":[]}'):  # fmt: skip
        expect_refuses(grammar, text, f"constant({value})", EXACT)


@task("21.1")
def test_constants_that_json_cannot_write(part: Any) -> None:
    """NaN, infinities and half a surrogate pair are refused as UnsupportedSchemaError."""
    for value in (float("nan"), float("inf"), "\ud800", [1, {"a": -float("inf")}], {"\udfff": 1}):
        with expect_raises(UnsupportedSchemaError, f"constant({value!r})"):
            part.constant(value)


@task("21.1")
@examples(80)
@given(value=st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_is_taken(part: Any, value: Any) -> None:
    """Whatever text or number `json.dumps` writes is taken, with and without `ensure_ascii`."""
    is_text = isinstance(value, str)
    grammar = part.string() if is_text else part.number()
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        expect_takes(
            grammar, text, "string()" if is_text else "number()", ESCAPES if is_text else DIGITS
        )
