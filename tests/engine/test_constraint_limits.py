"""Languages that cannot be enforced are refused, and compiling one holds nobody up."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch

from tests.engine.constrained import PERSON, SAMPLED, ask, run, schema
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.input.grammars import compiler


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def engine(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), num_blocks=400)


BAD: dict[str, tuple[Constraint, str]] = {
    "a list": (schema([PERSON]), "must be a JSON object"),
    "unknown type": (schema({"type": "person"}), "person"),
    "no JSON": (Constraint("json_schema", "{"), "not valid JSON"),
    "nothing fits": (schema({"enum": []}), "Unsatisfiable"),
    "keyword it cannot enforce": (schema({"not": {"type": "string"}}), "not"),
    "refers to itself alone": (schema({"$ref": "#"}), r"its \$ref '#' leads back to itself"),
    "refers in a circle": (schema({
        "type": "object", "properties": {"a": {"$ref": "#/$defs/a~1"}},
        "$defs": {"a/": {"anyOf": [{"$ref": "#/$defs/b%20"}]},
                  "b ": {"allOf": [{"$ref": "#/$defs/a~1"}]}},
    }), "leads back to itself"),
    "circle in lark": (
        Constraint("lark", 'start: %json {"$ref": "#"}'), r"has a \$ref that leads back to itself"),
    "circle behind a choice": (
        schema({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), r"has a \$ref that leads back to itself"),
    "too many states": (
        schema({"type": "string", "pattern": "^(?:a?){300}a{300}$"}), "too many states .*simpler"),
    "too many states on the way": (
        schema({"type": "string",
                "pattern": "^abc(.*[a-z].{50}|.*[b-x].{70}|.*[A-Z].{90}){4}$"}), "too many states"),
    "refers to the network": (schema({"$ref": "http://example.org/x"}), "retriev"),
    "nested too deep": (Constraint("json_schema", '{"not":' * 5000 + "1" + "}" * 5000), "recursion"),
    "pattern too deep": (schema({"type": "string", "pattern": "(" * 9000 + ")" * 9000}), "regex"),
    "too long": (schema({"enum": ["x" * 200_000]}), "131072"),
    "huge multiple": (schema({"type": "integer", "multipleOf": 99_999_999}), "multipleOf"),
    "multiples that multiply": (schema({"allOf": [{"multipleOf": n} for n in (97, 89, 83)]}),
                                "multipleOf"),
    "multiple in disguise": (
        Constraint("json_schema", '{"type": "integer", "multiple\\u004ff": 999983}'), "multipleOf"),
    "multiple in lark": (
        Constraint("lark", 'start: %json {"type": "integer", "multipleOf": 999983}'), "multipleOf"),
    "unclosed lark": (Constraint("lark", "start: ("), "cannot be compiled"),
    "ten thousand enums of nothing": (schema({"allOf": [
        {"anyOf": [{"properties": {f"a{i}_{j}": {"type": "string"}}} for j in range(10)]}
        for i in range(8)]}), "too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_enforced_is_refused_with_a_reason(engine: LLMEngine, name: str) -> None:
    constraint, reason = BAD[name]
    with pytest.raises(InvalidRequestError, match=reason) as error:
        ask(engine, constraint)
    assert error.value.param == "response_format"
    assert len(error.value.message) < 400
    assert "\n" not in error.value.message
    assert not engine.has_work


@pytest.mark.parametrize("multiple", [0.25, 1, 5, 60, 1000, 1e3])
def test_usual_multiples_are_taken(engine: LLMEngine, multiple: float) -> None:
    bounded = {"type": "number", "multipleOf": multiple, "minimum": 0, "maximum": 20_000}
    request = ask(engine, schema(bounded))
    (text,) = run(engine, request)
    if request.finish_reason == "stop":
        jsonschema.validate(json.loads(text), bounded)


def test_a_kind_that_the_server_should_have_translated_is_refused(engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError) as error:
        ask(engine, Constraint("tools", "{}"))
    assert error.value.param == "tool_choice"


def test_tokenizer_that_cannot_be_followed_is_refused(folder: Path) -> None:
    other = LLMEngine(model=str(folder), num_blocks=16)
    other.tokenizer._tokenizer = object()  # such as one written in Python
    with pytest.raises(InvalidRequestError, match=r"tokenizer.*Only fast") as error:
        other.check_params(replace(SAMPLED, constraint=Constraint("json_object")))
    assert error.value.param == "response_format"


def test_grammar_is_compiled_once(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    grammar_of = compiler._grammar
    monkeypatch.setattr(compiler, "_grammar", lambda c: (made.append(c.text), grammar_of(c))[1])
    for seed in range(3):
        ask(engine, schema({"enum": ["only here"]}), seed)
    run(engine)
    assert len(made) == 1


def test_grammar_is_compiled_off_the_engine_s_thread(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    grammar_of = compiler._grammar

    def noted(constraint: Constraint) -> str:
        threads.append(threading.current_thread().name)
        return grammar_of(constraint)

    async def serve() -> str:
        server = AsyncEngine(lambda: LLMEngine(model=str(folder), num_blocks=64))
        await server.start()
        try:
            params = replace(SAMPLED, constraint=schema({"type": "boolean"}))
            stream = await server.submit([5, 6], params)
            text = "".join([output.text async for output in stream])
            with pytest.raises(InvalidRequestError):
                await server.submit([5], replace(SAMPLED, constraint=BAD["unknown type"][0]))
        finally:
            await server.shutdown()
        return text

    monkeypatch.setattr(compiler, "_grammar", noted)
    assert json.loads(asyncio.run(serve())) in (True, False)
    assert len(threads) == 2
    assert all("grammars" in name for name in threads)


@pytest.mark.parametrize(
    "circle_with_a_way_out",
    [
        {"anyOf": [{"$ref": "#"}, {"type": "boolean"}]},
        {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        {
            "$defs": {"a": {"type": "boolean"}, "b": {"$ref": "#/$defs/a"}},
            "allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}],
        },
    ],
)
def test_a_circle_with_a_way_out_is_taken(
    engine: LLMEngine, circle_with_a_way_out: dict[str, object]
) -> None:
    request = ask(engine, schema(circle_with_a_way_out))
    run(engine, request)
    assert request.error is None


def test_a_long_chain_of_references_is_followed_in_no_time(engine: LLMEngine) -> None:
    count = 2000
    chain = {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % count}"} for i in range(count)}
    with pytest.raises(InvalidRequestError, match="leads back to itself"):
        ask(engine, schema({"$defs": chain, "$ref": "#/$defs/d0"}))
    del chain[f"d{count - 1}"]
    assert compiler.circular_ref({"$defs": chain}) is None
