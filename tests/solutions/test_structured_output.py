"""Lab 21's reference on schemas drawn at random: what it takes and what it lets a model write."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from grader.suites.structured_output.schemas import DocumentMaker, SchemaMaker
from solutions.structured_output import (
    ByteAutomaton,
    Matcher,
    TokenMasks,
    TokenTrie,
    schema_grammar,
)
from solutions.structured_output.steps import StepTable
from tests.marks import nightly_but
from yaie.core.contracts.constraining import DEAD
from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import Repeat, any_of

NUM_SCHEMAS, PARTS = 1000, 2
EOS = 0
WORDS = (
    '{"',
    '":',
    '","',
    '"}',
    '"]',
    "[]",
    "{}",
    '": ',
    ', "',
    "name",
    "tr",
    "ue",
    "null",
    "ab",
    "12",
    "\\u",
)
TOKENS = [
    b"",
    *(bytes([byte]) for byte in range(256)),
    *(word.encode() for word in WORDS),
    "é中".encode(),
]
TRIE = TokenTrie(TOKENS)
ENDERS = frozenset(b'"}],')


def masks_of(schema: Any) -> tuple[ByteAutomaton, TokenMasks]:
    automaton = ByteAutomaton(schema_grammar(schema))
    return automaton, TokenMasks(automaton, TRIE, [EOS])


def drawn(schema: Any, rng: random.Random) -> bytes | None:
    """An output drawn from the masks, with a leaning to its end; None if that does not come."""
    automaton, masks = masks_of(schema)
    matcher, output, bits = Matcher(automaton, masks), b"", np.zeros(-(-len(TOKENS) // 8), np.uint8)
    for _ in range(250):
        matcher.fill(bits)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        assert allowed, f"nothing may come behind {output!r} of {schema}"
        ending = [token for token in allowed if token == EOS or ENDERS & set(TOKENS[token])]
        token = rng.choice(ending if ending and rng.random() < 0.5 else allowed)
        assert matcher.accept(token)
        if token == EOS:
            assert matcher.is_complete
            return output
        output += TOKENS[token]
    return None


@pytest.mark.parametrize("part", nightly_but([0], range(PARTS)))
def test_what_the_masks_let_through_is_valid_and_what_is_valid_passes(part: int) -> None:
    rng, num_ended = random.Random(part), 0
    for seed in range(part, NUM_SCHEMAS, PARTS):
        schema = SchemaMaker(random.Random(seed)).schema()
        automaton = ByteAutomaton(schema_grammar(schema))
        text = DocumentMaker(schema, random.Random(seed)).document()
        jsonschema.validate(json.loads(text), schema)
        state = automaton.start
        for byte in text.encode():
            state = automaton.step(state, byte)
        assert automaton.is_final(state), f"{text} is refused, though it is of {schema}"
        output = drawn(schema, rng)
        if output is not None:
            num_ended += 1
            jsonschema.validate(json.loads(output.decode("utf-8")), schema)
    assert num_ended > 0.9 * NUM_SCHEMAS / PARTS


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string", "pattern": "a"}, "pattern"),
        ({"type": "string", "format": "date"}, "format"),
        ({"type": "integer", "minimum": 0}, "minimum"),
        ({"type": "string", "maxLength": 65}, "maxLength"),
        ({"type": "array", "items": {"type": "null"}, "minItems": True}, "minItems"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 1}, "maxItems"),
        ({"type": "array"}, "items"),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, "additionalProperties"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "required"),
        ({"type": "object", "properties": [], "additionalProperties": False}, "properties"),
        ({"type": "person"}, "type"),
        ({"type": []}, "type"),
        ({}, "a schema without a type"),
        (True, "True"),
        ({"enum": ["a"], "maxLength": 1}, "maxLength"),
        ({"enum": []}, "enum"),
        ({"const": float("inf")}, "const"),
        ({"anyOf": [{"type": "null"}], "type": "null"}, "type"),
        ({"$ref": "http://example.org/x"}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"allOf": [{"type": "null"}]}, "allOf"),
    ],
)
def test_what_is_outside_the_subset_is_named(schema: Any, keyword: str) -> None:
    with pytest.raises(UnsupportedSchemaError) as error:
        schema_grammar(schema)
    assert error.value.keyword == keyword


def record(count: int) -> Any:
    kinds = [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["a", "b"]}]
    return {
        "type": "object",
        "properties": {f"field_{i}": kinds[i % 4] for i in range(count)},
        "required": [f"field_{i}" for i in range(0, count, 2)],
        "additionalProperties": False,
    }


def test_a_first_mask_makes_few_states_of_a_large_schema() -> None:
    automaton, masks = masks_of(record(50))
    masks.mask(automaton.start)
    assert automaton.num_states < 60  # what one token can reach


def test_states_of_a_document_grow_with_its_length() -> None:
    automaton, _ = masks_of(record(50))
    text = DocumentMaker(record(50), random.Random(1)).document().encode()
    state = automaton.start
    for byte in text:
        state = automaton.step(state, byte)
        assert state != DEAD
    assert automaton.num_states <= len(text) + 1


def test_a_step_from_dead_leads_to_dead_and_spoils_no_other() -> None:
    """DEAD is -1, which as an index is the last row of a table."""
    automaton = ByteAutomaton(Repeat(any_of(b"a"), 0, 200))
    state, steps = automaton.start, StepTable(automaton)
    for _ in range(63):
        state = automaton.step(state, ord("a"))
    states, letters = np.array([DEAD, state, DEAD]), np.array([ord("a")] * 3)
    for _ in range(2):
        assert steps(states, letters).tolist() == [DEAD, state + 1, DEAD]
