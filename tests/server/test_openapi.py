"""The OpenAPI document says what there is: every route, how it fails, and examples that work."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi import FastAPI

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie.engine.background.async_engine import AsyncEngine
from yaie.parts import load_part
from yaie.server.app import create_app

API = load_part("api_server", "none").package
METHODS = {"get", "post"}


def make_app(**settings: Any) -> FastAPI:
    return create_app(AsyncEngine(FakeEngine), API, **settings)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def examples() -> list[Any]:
    return [
        pytest.param(path, sample["value"], id=f"{path} {name}")
        for path, _, operation in operations(DOCUMENT)
        if "requestBody" in operation
        for name, sample in operation["requestBody"]["content"]["application/json"][
            "examples"
        ].items()
    ]


DOCUMENT = make_app().openapi()


def test_every_operation_has_a_name_of_its_own_a_tag_and_an_answer() -> None:
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    names = []
    for path, method, operation in operations(DOCUMENT):
        assert method in METHODS
        assert set(operation["tags"]) <= tags
        content = operation["responses"]["200"]["content"]
        assert all(told.get("schema") != {} for told in content.values()), path
        assert "_" not in operation["operationId"], f"{path} is not described"
        names.append(operation["operationId"])
    assert len(set(names)) == len(names)


def test_failures_are_told_with_the_error_object_and_422_never() -> None:
    errors = {f"#/components/schemas/{name}": name for name in ("Error", "AnthropicError")}
    for path, _, operation in operations(DOCUMENT):
        assert "422" not in operation["responses"], path
        assert "503" in operation["responses"] or path == "/metrics", path
        if "requestBody" in operation:
            assert {"400", "404", "408", "413", "500"} <= operation["responses"].keys(), path
        failed = {status for status in operation["responses"] if status >= "400"}
        if path in ("/health", "/ready"):
            failed.remove("503")  # which says what an answer says
        is_message = path.startswith("/v1/messages")
        for status in failed:
            told = operation["responses"][status]["content"]["application/json"]["schema"]["$ref"]
            assert errors[told] == ("AnthropicError" if is_message else "Error"), path
        assert is_message == ("529" in failed)


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    references = {part.split('"')[0] for part in text.split('"$ref": "#/')[1:]}
    assert references
    for reference in references:
        found: Any = DOCUMENT
        for step in reference.split("/"):
            found = found[step]
    assert "/solutions" not in text
    assert "solutions__" not in text
    assert "yaie__" not in text


def test_keys_are_asked_for_only_where_they_are() -> None:
    assert "securitySchemes" not in DOCUMENT["components"]
    guarded = make_app(api_key=("key",)).openapi()
    scheme = guarded["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    with serving(FakeEngine, api_key=("key",)) as server:
        for path, method, operation in operations(guarded):
            status = server.http.request(method, path).status_code
            assert (status == 401) == ("security" in operation) == ("401" in operation["responses"])


def test_limits_are_stated() -> None:
    assert f"{1234:,} bytes" in make_app(max_body_bytes=1234).openapi()["info"]["description"]
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("ChatRequest", "CompletionRequest", "ResponsesRequest"):
        temperature = schemas[name]["properties"]["temperature"]
        assert (temperature["minimum"], temperature["maximum"]) == (0, 100)
    assert schemas["ChatRequest"]["properties"]["messages"]["maxItems"] == 4096
    assert schemas["TokenizeText"]["properties"]["prompt"]["maxLength"] == 2**20
    assert schemas["DetokenizeRequest"]["properties"]["tokens"]["maxItems"] == 2**17


@pytest.mark.parametrize(("path", "body"), examples())
def test_an_example_is_answered_as_the_document_says(
    live: LiveServer, path: str, body: dict[str, Any]
) -> None:
    answer = live.http.post(path, json=body)
    if "tools" in body:  # this model's template has no place for them
        error = answer.json()["error"]
        assert (answer.status_code, error.get("param", "tools")) == (400, "tools")
        assert "tools" in error["message"]
        return
    assert answer.status_code == 200, answer.text
    content = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
    schema = content[answer.headers["content-type"].partition(";")[0]]
    if body.get("stream"):
        data = schema["itemSchema"]["properties"]["data"]
        schema = data.get("anyOf", [None, data])[1]["contentSchema"]
        told = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
        answers = [json.loads(text) for text in told if text != "[DONE]"]
    else:
        schema, answers = schema["schema"], [answer.json()]
    whole = {**schema, "components": DOCUMENT["components"]}
    assert answers
    for one in answers:
        jsonschema.validate(one, whole)


def test_the_document_is_served_and_no_page_that_loads_scripts(live: LiveServer) -> None:
    assert live.http.get("/openapi.json").json()["paths"].keys() == DOCUMENT["paths"].keys()
    assert live.http.get("/docs").status_code == 404
    assert live.http.get("/redoc").status_code == 404
