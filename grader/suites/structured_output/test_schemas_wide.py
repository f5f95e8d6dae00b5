"""Task 21.2: keywords of what is refused, schemas in schemas, and how many places a grammar opens."""

from collections.abc import Callable
from itertools import count
from typing import Any

from grader.kit import Mismatch, count_calls, expect, expect_equal, note, start_script, task
from grader.kit.apart import deep_calls
from grader.kit.memory import expect_keeps_nothing
from grader.suites.structured_output.language import accepts, expect_refuses, expect_takes
from grader.suites.structured_output.test_schemas import OF_TYPE, grammar_of, record
from grader.suites.structured_output.vocabulary import state_behind
from solutions import structured_output as reference
from yaie.core.errors import UnsupportedSchemaError
from yaie.engine.input.grammars.grammar_size import size_of

KEYWORD = (
    "An UnsupportedSchemaError has the keyword that is not supported, and nothing else in its place: "
    "the log says by it why llguidance follows a schema."
)
READ_ONCE = (
    "Each schema within the schema is read once. Whatever is read twice on each of many levels is "
    "read twice, four times, eight times. One node may stand in several places of a grammar."
)
OPEN = (
    "The engine follows up to 256 places at once, and leaves the rest to llguidance. What may come "
    "again is one Repeat, not a part for each time; what may follow is one node for all that it "
    "follows."
)
MOST_PLACES = 256
ANYWHERE = "A reference may lead to any schema within the root, and through many others."
NO_END = "A reference may lead on through any number of others."
SAME_NAME = (
    "#/$defs/a and #/definitions/a are two schemas, of which only the last name is the same."
)
NO_LIMIT = "Without maxItems there is no limit, and an enum has all of its values."


@task("21.2")
def test_what_is_refused_is_named_by_its_keyword(part: Any) -> None:
    """A schema that is outside of the subset is refused with the keyword that is to blame."""
    cases: tuple[tuple[Any, str], ...] = (
        ({"enum": []}, "enum"),
        ({"enum": [1, "a"], "type": "null"}, "enum"),
        ({"enum": "ab"}, "enum"),
        ({"enum": {"a": 1}}, "enum"),
        ({"enum": None}, "enum"),
        ({"const": True, "type": "integer"}, "const"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": {"const": 1}}, "anyOf"),
        ({"anyOf": 5}, "anyOf"),
        ({"type": "array"}, "items"),
        ({"type": "array", "items": {"type": "string", "pattern": "a"}}, "pattern"),
        ({"type": "array", "items": {"type": "string", "pattern": "a"}, "maxItems": 0}, "pattern"),
        ({"anyOf": [{"const": 1}, {"type": "string", "format": "date"}]}, "format"),
        (record("", "\ud800"), ""),  # what `constant` says of it
    )
    for schema, keyword in cases:
        start_script()
        note(f"schema_grammar({schema!r})")
        try:
            part.schema_grammar(schema)
        except UnsupportedSchemaError as error:
            right = keyword or error.keyword
            expect_equal(error.keyword, right, "the keyword of the error", why=KEYWORD)
        except (ValueError, TypeError, AttributeError) as error:
            problem = f"schema_grammar raises {type(error).__name__}: {error}"
            raise Mismatch(problem, f"UnsupportedSchemaError({keyword!r})", why=KEYWORD) from None
        else:
            raise Mismatch(
                "it passes silently", f"UnsupportedSchemaError({keyword!r})", why=KEYWORD
            )


@task("21.2")
def test_what_stands_within_is_read_once(part: Any) -> None:
    """The work for schemas in schemas grows with their number, not by a factor for each level."""

    def lists(depth: int) -> Any:
        schema: Any = {"const": 0}
        for _ in range(depth):
            schema = {"type": "array", "items": schema}
        return schema

    def objects(depth: int) -> Any:
        schema: Any = {"const": 0}
        for _ in range(depth):
            schema = {**record("", "a"), "properties": {"a": schema}}
        return schema

    kinds: dict[str, Callable[[int], Any]] = {"arrays": lists, "objects": objects}
    for name, made in kinds.items():

        def calls(depth: int, made: Callable[[int], Any] = made) -> int:
            return count_calls(lambda: part.schema_grammar(made(depth)))

        few, many = calls(4), calls(8)
        start_script()
        note(f"schema_grammar of {name} in {name}, 4 and 8 levels deep")
        problem = f"4 levels of {name} in {name} take {few} calls, 8 levels {many}"
        expect(many <= 4 * few, problem, why=READ_ONCE)


@task("21.2")
def test_references_lead_anywhere(part: Any) -> None:
    """A reference may lead to any schema within the root, and through many others."""
    schema = {
        **record("xy", "xy"),
        "properties": {"x": {"const": 1}, "y": {"$ref": "#/properties/x"}},
    }
    expect_takes(grammar_of(part, schema), '{"x":1,"y":1}', "the grammar", ANYWHERE)
    schema = {
        "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/definitions/a"}],
        "$defs": {"a": {"const": 2}},
        "definitions": {"a": {"const": 3}},
    }
    grammar = grammar_of(part, schema)
    taken = [text for text in ("2", "3") if accepts(grammar, text)]
    why = f"It takes {taken[0]} alone. {SAME_NAME}" if len(taken) == 1 else ANYWHERE
    for text in ("2", "3"):
        expect_takes(grammar, text, "the grammar", why)
    chain: Any = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, "d60": {"const": 7}}}
    start_script()
    note("schema_grammar of a chain of 60 references, the last to {'const': 7}")
    with deep_calls():
        try:
            grammar = part.schema_grammar(schema)
        except UnsupportedSchemaError:
            raise Mismatch("a chain of 60 references is refused", why=NO_END) from None
    expect_takes(grammar, "7", "the grammar of a chain of 60 references", NO_END)


@task("21.2")
def test_an_enum_of_several_types(part: Any) -> None:
    """Of a list of types each counts."""
    schema = {"enum": ["a", 1, None, True, [0]], "type": ["string", "boolean", "null", "array"]}
    grammar = grammar_of(part, schema)
    for text in ('"a"', "null", "true", "[0]"):
        expect_takes(grammar, text, "the enum of four types", OF_TYPE)
    expect_refuses(grammar, "1", "the enum of four types", OF_TYPE)


@task("21.2")
def test_nothing_is_cut_off(part: Any) -> None:
    """An array without a limit may have a hundred items, and an enum 256 values."""
    for what, schema, text in (
        ("an array of 100 items", {"type": "array", "items": {"const": 1}}, f"[{'1,' * 99}1]"),
        ("value 255 of an enum", {"enum": [f"v{i}" for i in range(256)]}, '"v255"'),
    ):
        automaton = reference.ByteAutomaton(part.schema_grammar(schema))
        start_script()
        note(f"# {what}")
        is_taken = automaton.is_final(state_behind(automaton, text.encode()))
        expect(is_taken, f"the grammar refuses {what}", why=NO_LIMIT)


@task("21.2")
def test_few_places_are_open(part: Any) -> None:
    """Half of what the contract gives as examples of 256 places has no more than 256."""
    boolean = {"type": "boolean"}
    optional = {f"p{i}": boolean for i in range(30)}
    schemas: dict[str, Any] = {
        "an object of 30 properties that may be left out": {
            **record("", ""),
            "properties": optional,
        },
        "an enum of 128 values": {"enum": [f"v{i}" for i in range(128)]},
    }
    for what, schema in schemas.items():
        size = size_of(part.schema_grammar(schema))
        start_script()
        note(f"# {what}")
        problem = f"the grammar of {what} has {size.places} places open at once"
        expect(size.places <= MOST_PLACES, problem, why=OPEN)


@task("21.2")
def test_new_schemas_leave_nothing_behind(part: Any) -> None:
    """Another schema in each call: nothing of it is kept."""
    numbers = count(10**9)

    def call() -> None:
        number = next(numbers)
        inner = {"enum": [number, "a"]}
        part.schema_grammar(
            {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [inner, {"const": None}]}}}
        )

    note("# schema_grammar, each time of a schema with a number of its own")
    expect_keeps_nothing(call, "schema_grammar of new schemas")
