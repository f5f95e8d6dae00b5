"""What the document says of bodies beyond their models: fields that are honoured beside them, and, where
a server is not strict, what it leaves out.
"""

from typing import Any

from yaie.core.params_lists import MAX_BAD_WORDS, MAX_SALT_CHARS, MAX_STOP_CHARS
from yaie.core.ranges import RANGES
from yaie.server.lenient.beside import ID_PATTERN, MAX_ID_CHARS
from yaie.server.lenient.declared import OURS
from yaie.server.lenient.fields import BESIDE, DIALECTS

Json = dict[str, Any]

REF = "#/components/schemas/"
_WORD: Json = {"type": "string", "maxLength": MAX_STOP_CHARS, "pattern": r"\S"}
_FLAG: Json = {"type": "boolean"}
_THOUGHT = RANGES["thinking_token_budget"]
SHAPES: dict[str, Json] = {
    "bad_words": {"anyOf": [_WORD, {"type": "array", "items": _WORD, "maxItems": MAX_BAD_WORDS}]},
    "include_stop_str_in_output": _FLAG,
    "skip_special_tokens": _FLAG,
    "thinking_token_budget": {
        "type": "integer",
        "minimum": int(_THOUGHT.low),
        "maximum": int(_THOUGHT.high),
    },
    "return_tokens_as_token_ids": _FLAG,
    "request_id": {"type": "string", "pattern": f"^{ID_PATTERN}$", "maxLength": MAX_ID_CHARS},
    "cache_salt": {"type": "string", "minLength": 1, "maxLength": MAX_SALT_CHARS},
}
"""Of the fields that `lenient/beside.py` takes out of a body."""
OTHER_TOOL: Json = {
    "description": "Of a kind that the server would have to run itself: it is left out.",
    "type": "object",
    "properties": {"type": {"type": "string", "not": {"enum": list(OURS)}}},
    "required": ["type"],
}


def add_beside(said: Json) -> None:
    """Describe the fields that are honoured though a body's model has none of them."""
    for path, dialect in DIALECTS.items():
        fields = _body(said, path).get("properties", {})
        for name in BESIDE if fields else ():
            if dialect in BESIDE[name]:
                fields[name] = {"anyOf": [SHAPES[name], {"type": "null"}]}


def _body(said: Json, path: str) -> Json:
    """The schema of what is posted to a path; empty if the server does not have it."""
    operation = said["paths"].get(path, {}).get("post")
    if operation is None:
        return {}
    schema: Json = operation["requestBody"]["content"]["application/json"]["schema"]
    schemas: dict[str, Json] = said["components"]["schemas"]
    return schemas.get(schema.get("$ref", "").removeprefix(REF), schema)


def open_bodies(said: Json) -> None:
    """Let bodies hold what is ignored: unknown fields, and null where a field may be absent."""
    schemas = said["components"]["schemas"]
    schemas["AnyTool"] = {"anyOf": [schemas["Tool"], OTHER_TOOL]}
    for body in ("ChatRequest", "TokenizeChat"):
        schemas[body]["properties"]["tools"] = _of_any_tool(schemas[body]["properties"]["tools"])
    waiting = [
        operation["requestBody"]
        for operations in said["paths"].values()
        for operation in operations.values()
        if "requestBody" in operation
    ]
    seen: set[str] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        if not isinstance(value, dict):
            continue
        if isinstance(name := value.get("$ref"), str) and name not in seen:
            seen.add(name)
            waiting.append(schemas[name.removeprefix(REF)])
        if isinstance(fields := value.get("properties"), dict):
            if value.get("additionalProperties") is False:
                del value["additionalProperties"]
            for field, schema in fields.items():
                if field not in value.get("required", ()):
                    fields[field] = _or_null(schema)
        waiting += [inner for key, inner in value.items() if key not in ("examples", "default")]


def _of_any_tool(tools: Json) -> Json:
    return {**tools, "anyOf": [
        {**option, "items": {"$ref": REF + "AnyTool"}} if "items" in option else option
        for option in tools["anyOf"]
    ]}  # fmt: skip


ABOUT_A_FIELD = ("title", "description", "default")


def _or_null(schema: Json) -> Json:
    """What a description says of a field stays beside it."""
    options = schema.get("anyOf", [schema])
    if {"type": "null"} in options or schema.get("type") == "null":
        return schema
    about: Json = {key: schema[key] for key in ABOUT_A_FIELD if key in schema}
    inner = {key: value for key, value in schema.items() if key not in about}
    return {**about, "anyOf": [*inner.get("anyOf", [inner]), {"type": "null"}]}
