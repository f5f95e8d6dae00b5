"""Task 21.2: objects, arrays, choices, references."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import (
    count_calls,
    examples,
    expect,
    expect_equal,
    expect_raises,
    note,
    start_script,
    task,
)
from grader.kit.apart import expect_unchanged
from grader.suites.structured_output.grammar_kinds import why_object
from grader.suites.structured_output.language import accepts, expect_refuses, expect_takes, shown
from grader.suites.structured_output.schemas import DocumentMaker, SchemaMaker, spoiled
from solutions import structured_output as reference
from yaie.core.errors import UnsupportedSchemaError

ORDER = "Properties come in the order of `properties`; which of them are there is all that varies."
COMMA = (
    "A comma stands between two properties, and only there. What comes first is not known: a property "
    "that may be left out cannot bring the comma behind it along, nor can the next one the comma before."
)
REQUIRED = "What `required` names must be there; everything else may be left out."
OF_OBJECTS = {"comma": COMMA, "order": ORDER, "required": REQUIRED}
EMPTY = "An object or a list may be empty, unless `required` or `minItems` says otherwise."
ITEMS = "Commas stand between items; minItems and maxItems count the items, not the commas."
BLANK = (
    "WHITESPACE may stand between any two tokens of JSON, once: it has a bound, and two of them in a "
    "row have twice that."
)
NUMBERS = "integer", "number"
NO_FIT = "No value of the enum is of the type: nothing would fit this schema."
NO_LIST = (
    "A schema comes from a client: an enum that is no list is refused, not taken apart. A string would "
    "give an option for each of its characters."
)
OF_TYPE = "With a `type` beside it, an enum keeps the values of that type."
OF_VALUES = {"true": "True is no integer and no number.", "2.0": "2.0 is an integer."}
SHARED = (
    "What may follow a property is the same whether the property is there or not. Build from the right "
    "and use the same node twice; written out twice, the grammar doubles with each property."
)
CIRCLE = (
    "A reference that is met again while its own schema is being read leads back to itself: values in "
    "values without end, which no regular language has."
)


def grammar_of(part: ModuleType, schema: Any) -> Any:
    """Begins a new script: the calls before it are about other schemas."""
    start_script()
    note(f"schema_grammar({schema!r})")
    given = deepcopy(schema)
    made = part.schema_grammar(given)
    expect_unchanged(given, schema, "the schema that schema_grammar was given")
    return made


@contextmanager
def expect_unsupported(schema: Any, why: str = "") -> Iterator[None]:
    """That this schema is refused, in the block."""
    start_script()
    with expect_raises(UnsupportedSchemaError, f"schema_grammar({schema!r})", why=why):
        yield


def record(required: str, names: str = "abc") -> Any:
    return {
        "type": "object",
        "properties": {name: {"const": index} for index, name in enumerate(names)},
        "required": list(required),
        "additionalProperties": False,
    }


@task("21.2")
def test_objects(part: ModuleType) -> None:
    """An object has its required properties, perhaps the others, in order, with a comma between two."""
    for required in ("", "a", "b", "c", "ab", "ac", "bc", "abc"):
        grammar = grammar_of(part, record(required))
        what = f"with a, b, c of which {', '.join(required) or 'none'} required, the grammar"
        for chosen in ("", "a", "b", "c", "ab", "ac", "bc", "abc"):
            text = "{" + ",".join(f'"{name}":{"abc".index(name)}' for name in chosen) + "}"
            if set(required) <= set(chosen):
                if not accepts(grammar, text):
                    told, why = why_object(grammar, "abc", chosen, OF_OBJECTS)
                    expect(False, f"{what} refuses {shown(text)}{told}", why=why)
            else:
                expect_refuses(grammar, text, what, REQUIRED)
            if chosen:
                for wrong in (text[:-1] + ",}", "{," + text[1:], text.replace("}", ",,}")):
                    expect_refuses(grammar, wrong, what, COMMA)
            if len(chosen) > 1:
                expect_refuses(grammar, text.replace(",", "", 1), what, COMMA)
        for wrong in (
            '{"b":1,"a":0,"c":2}',
            '{"a":0,"b":1,"c":2,"a":0}',
            '{"a":0,"a":0,"b":1,"c":2}',
        ):
            expect_refuses(grammar, wrong, what, ORDER)
        for wrong in ('{"a":0,"b":1,"c":2', '"a":0', "", "{", '{"a":0,"b":1,"c":2}}', '{"d":1}'):
            expect_refuses(grammar, wrong, what)


def expect_blanks(grammar: Any, text: str) -> None:
    """That a text with whitespace is taken. If it is refused without any, blanks are not to blame."""
    bare = "".join(text.split())
    is_bare = accepts(grammar, bare)
    if not accepts(grammar, text):
        told = f", and takes {shown(bare)}" if is_bare else f", and {shown(bare)} as well"
        why = BLANK if is_bare else EMPTY if bare in ("{}", "[]") else ""
        expect(False, f"the grammar refuses {shown(text)}{told}", why=why)


@task("21.2")
def test_arrays(part: ModuleType) -> None:
    """An array has minItems to maxItems items, with a comma between two."""
    for least, most in (
        (0, None),
        (0, 0),
        (0, 1),
        (0, 3),
        (1, None),
        (1, 1),
        (2, 3),
        (3, None),
        (3, 3),
    ):
        schema: Any = {"type": "array", "items": {"enum": [7, "x"]}, "minItems": least}
        if most is not None:
            schema["maxItems"] = most
        grammar = grammar_of(part, schema)
        what = f"with minItems {least} and maxItems {most}, the grammar"
        for count in range(6):
            text = "[" + ",".join(["7", '"x"'][i % 2] for i in range(count)) + "]"
            is_right = least <= count and (most is None or count <= most)
            why = EMPTY if is_right and not count else ITEMS
            (expect_takes if is_right else expect_refuses)(grammar, text, what, why)
            for wrong in (text[:-1] + ",]", "[," + text[1:], text[:-1], text.replace(",", " ")):
                if wrong != text:
                    expect_refuses(grammar, wrong, what, ITEMS)
        expect_refuses(grammar, "[8]", what)


@task("21.2")
def test_blanks(part: ModuleType) -> None:
    """Whitespace may stand between two tokens, not around the whole, and not twice in one place."""
    grammar = grammar_of(part, record("a", "ab"))
    for text in (
        '{ "a" : 0 , "b" : 1 }',
        '{\n  "a": 0,\n  "b": 1\n}',
        '{"a"\n:\n0\n}',
        '{  "a":0  }',
    ):
        expect_blanks(grammar, text)
    for text in (' {"a":0}', '{"a":0} ', '{"a" :   0}', '{   "a":0}', '{"a":0   }', '{"a":0,   "b":1}',
                 '{"a":0   ,"b":1}', '{\n\n"a":0}', '{" a":0}', '{"a":0,\n\n"b":1}'):  # fmt: skip
        expect_refuses(grammar, text, "the grammar", BLANK)
    for names in ("", "a"):
        grammar = grammar_of(part, record("", names))
        for text, is_right in (("{}", True), ("{  }", True), ("{    }", False), ("{\n \n}", False)):
            expect_blanks(grammar, text) if is_right else expect_refuses(
                grammar, text, "the grammar", BLANK
            )
    listed = grammar_of(part, {"type": "array", "items": {"const": 1}})
    for text, is_right in (("[ ]", True), ("[    ]", False), ("[ 1 , 1 ]", True), ("[1,   1]", False),
                           ("[1   ,1]", False), ("[   1]", False), ("[1   ]", False)):  # fmt: skip
        expect_blanks(listed, text) if is_right else expect_refuses(
            listed, text, "the grammar", BLANK
        )


@task("21.2")
def test_an_array_says_what_its_items_are(part: Any) -> None:
    """An array without `items` may hold any values in values, which is outside of the subset."""
    for wrong in ({"type": "array"}, {"type": "array", "maxItems": 0}):
        with expect_unsupported(wrong):
            part.schema_grammar(wrong)


@task("21.2")
def test_arrays_in_objects_in_arrays(part: ModuleType) -> None:
    """Schemas stand in one another."""
    inner = {"type": "array", "items": record("a", "a"), "maxItems": 2}
    grammar = grammar_of(part, {**record("x", "x"), "properties": {"x": inner}})
    for text in ('{"x":[]}', '{"x":[{"a":0}]}', '{"x":[{"a":0},{"a":0}]}'):
        expect_takes(grammar, text, "the grammar")
    for text in ('{"x":{}}', '{"x":[{"a":0},{"a":0},{"a":0}]}', '{"x":[{}]}', '{"x":[[]]}', "[]"):
        expect_refuses(grammar, text, "the grammar")


@task("21.2")
def test_enums(part: ModuleType) -> None:
    """An enum, or a const, is one of its values; with a type beside it, one of those of that type."""
    values = ["red", 3, 2.0, True, None, [1], {"k": 0}, 2.5]
    kept = {
        "string": ['"red"'],
        "integer": ["3", "2.0"],
        "number": ["3", "2.0", "2.5"],
        "boolean": ["true"],
        "null": ["null"],
        "array": ["[1]"],
        "object": ['{"k":0}'],
    }
    texts = [text for texts in kept.values() for text in texts]
    plain = grammar_of(part, {"enum": values})
    for text in texts:
        expect_takes(plain, text, "the enum", OF_TYPE)
    for text in ('"blue"', "1", "false", '"red"3', ""):
        expect_refuses(plain, text, "the enum", OF_TYPE)
    for name, right in kept.items():
        grammar = grammar_of(part, {"enum": values, "type": name})
        for text in texts:
            check = expect_takes if text in right else expect_refuses
            why = (
                f"{OF_TYPE} {OF_VALUES[text]}" if text in OF_VALUES and name in NUMBERS else OF_TYPE
            )
            check(grammar, text, f"the enum of type {name}", why)
    both = grammar_of(part, {"enum": values, "type": ["string", "null"]})
    for text in texts:
        check = expect_takes if text in ('"red"', "null") else expect_refuses
        check(both, text, "the enum of type string or null", OF_TYPE)
    const = grammar_of(part, {"const": "a"})
    expect_takes(const, '"a"', "the const")
    expect_refuses(const, '"b"', "the const")
    expect_takes(grammar_of(part, {"const": None}), "null", "the const null", OF_TYPE)
    nothing_fits: list[Any] = [
        {"enum": []},
        {"enum": [1, "a"], "type": "null"},
        {"const": True, "type": "integer"},
    ]
    for wrong in nothing_fits:
        with expect_unsupported(wrong, NO_FIT):
            part.schema_grammar(wrong)
    no_lists: list[Any] = [{"enum": "ab"}, {"enum": 5}]
    for wrong in no_lists:
        with expect_unsupported(wrong, NO_LIST):
            part.schema_grammar(wrong)


@task("21.2")
def test_choices(part: ModuleType) -> None:
    """Any one of the schemas in anyOf is enough."""
    options = [{"const": 1}, {"type": "array", "items": {"const": 2}}, {"enum": ["a", 1]}]
    grammar = grammar_of(part, {"anyOf": options})
    for text in ("1", "[]", "[2,2]", '"a"'):
        expect_takes(grammar, text, "anyOf")
    for text in ("2", "[1]", "1[]", ""):
        expect_refuses(grammar, text, "anyOf")
    expect_takes(grammar_of(part, {"anyOf": [{"const": 5}]}), "5", "anyOf with one schema")
    outside: list[Any] = [
        {"anyOf": []},
        {"anyOf": {"const": 1}},
        {"anyOf": [{"const": 1}, {"pattern": "a"}]},
    ]
    for wrong in outside:
        with expect_unsupported(wrong):
            part.schema_grammar(wrong)


@task("21.2")
def test_references(part: ModuleType) -> None:
    """A reference stands for the schema that it leads to, in every place where it is named."""
    schema = {
        **record("xy", "xy"),
        "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/list%20of"}},
        "$defs": {
            "a/b": {"const": 1},
            "list of": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}, "maxItems": 2},
        },
    }
    grammar = grammar_of(part, schema)
    for text in ('{"x":1,"y":[]}', '{"x":1,"y":[1,1]}'):
        expect_takes(grammar, text, "the grammar")
    for text in ('{"x":2,"y":[]}', '{"x":1,"y":[2]}', '{"x":1,"y":1}'):
        expect_refuses(grammar, text, "the grammar")
    d = {"$ref": "#/definitions/d"}
    twice = {"anyOf": [d, {"type": "array", "items": d}], "definitions": {"d": {"const": 0}}}
    for text in ("0", "[0,0]"):
        expect_takes(grammar_of(part, twice), text, "the grammar")


@task("21.2")
def test_references_in_a_circle(part: ModuleType) -> None:
    """A reference to itself, to nothing, or that is no text is refused by its keyword."""
    tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    there = {"$defs": {"a": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/b"}]},
                       "b": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}  # fmt: skip
    for schema in (
        {"$ref": "#/$defs/tree", "$defs": {"tree": tree}},
        {"$ref": "#/$defs/a", **there},
        {"anyOf": [{"const": 1}, {"$ref": "#"}]},
        {"$ref": "#/$defs/none"},
        {"$ref": ["#"]},
    ):
        try:
            grammar_of(part, schema)
        except UnsupportedSchemaError as error:
            expect_equal(error.keyword, "$ref", "the keyword of the error", why=CIRCLE)
        except RecursionError:
            expect(False, "a reference that leads back to itself is followed for ever", why=CIRCLE)
        else:
            expect(False, "a reference that leads back to itself passes silently", why=CIRCLE)


@task("21.2")
def test_references_are_read_once(part: ModuleType) -> None:
    """A schema that is named twice in each of many levels is read as often as there are levels."""

    def levels(count: int) -> Any:
        definitions: Any = {"d0": {"const": 0}}
        for i in range(1, count):
            ref = {"$ref": f"#/$defs/d{i - 1}"}
            definitions[f"d{i}"] = {"anyOf": [{"type": "array", "items": ref}, ref]}
        return {"$ref": f"#/$defs/d{count - 1}", "$defs": definitions}

    few, many = (count_calls(lambda n=n: part.schema_grammar(levels(n))) for n in (6, 12))  # type: ignore[misc]
    expect(
        many <= 4 * few,
        f"6 levels of references take {few} calls, 12 levels {many}",
        why="Each level names the one below twice. Keep the grammar of a reference, and give it again.",
    )


@task("21.2")
def test_objects_grow_with_their_properties(part: ModuleType) -> None:
    """The work for an object of optional properties grows with their number, not with its square."""

    def work(count: int) -> int:
        def build() -> None:
            automaton = reference.ByteAutomaton(part.schema_grammar(record("", names)))
            automaton.step(automaton.step(automaton.start, ord("{")), ord('"'))

        names = "".join(chr(0x4E00 + i) for i in range(count))
        return count_calls(build)

    few, many = work(20), work(80)
    expect(
        many <= 8 * few,
        f"20 optional properties take {few} calls up to the first key, 80 take {many}",
        why=SHARED,
    )


@task("21.2")
@examples(250)
@given(rng=st.randoms(use_true_random=False))
def test_documents_of_any_schema(part: ModuleType, rng: random.Random) -> None:
    """Every document of a schema is taken; what is spoiled is refused unless it still is one."""
    schema = SchemaMaker(rng, plain=True).schema()
    grammar, right = grammar_of(part, schema), reference.schema_grammar(schema)
    documents = DocumentMaker(schema, rng)
    for _ in range(3):
        text = documents.document()
        expect_takes(grammar, text, "the grammar of this schema")
        wrong = spoiled(text, rng)
        is_one = accepts(right, wrong)
        says = "refuses, and should take," if is_one else "takes, and should refuse,"
        expect(
            accepts(grammar, wrong) == is_one, f"the grammar of this schema {says} {shown(wrong)}"
        )
