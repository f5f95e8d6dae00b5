"""Lab 8 in the engine: what the HTTP API answers on the part, beside what the reference answers."""

import json
from types import ModuleType
from typing import Any

import solutions.api_server as reference
from grader.kit.expect import expect_equal
from grader.kit.in_engine.runs import WHY
from grader.kit.script import note, start_script
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine
from yaie.explore.wire import Answer, Client

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "tutor",
    "messages": [{"role": "user", "content": "What is a KV cache?"}],
    "temperature": 0,
    "max_tokens": 12,
    "seed": 1,
}
BODIES: tuple[dict[str, Any], ...] = (
    BODY,
    {**BODY, "stream": True},
    {**BODY, "stream": True, "n": 2, "temperature": 0.9, "stream_options": {"include_usage": True}},
    {**BODY, "stop": ["cache"]},
    {**BODY, "max_tokens": -1},
)
OF_A_CALL = ("id", "created")
"""What is another in each answer."""


def expect_the_same_replies(part: ModuleType, settings: dict[str, Any]) -> None:
    """Answer the same bodies on both."""
    right = _answers(reference, settings)
    start_script()
    for number, body in enumerate(BODIES):
        note(f"# request {number}: POST {PATH} {json.dumps(body)}")
    for number, (got, wanted) in enumerate(zip(_answers(part, settings), right, strict=True)):
        expect_equal(got, wanted, f"(status, what the answer to request {number} holds)", why=WHY)


def _answers(package: ModuleType, settings: dict[str, Any]) -> list[tuple[int, list[Any]]]:
    engine = LLMEngine(EngineConfig(device="cpu", mine="none", threads=1, **settings))
    client = Client(package, engine)
    client.start()
    try:
        return [_held(client.post(PATH, body)) for body in BODIES]
    finally:
        client.stop()
        engine.close()


def _held(answer: Answer) -> tuple[int, list[Any]]:
    """The status, and the documents of the body: one, or the chunks of a stream, those of each choice
    joined. How the text is cut into chunks depends on how late the event loop is."""
    texts = [line for _, line in answer.events() if line != "[DONE]"]
    documents = [json.loads(text) for text in texts]
    for document in documents:
        for name in OF_A_CALL:
            document.pop(name, None)
    is_stream = b"data:" in answer.body
    return answer.status, _joined(documents) if is_stream else documents


def _joined(chunks: list[dict[str, Any]]) -> list[Any]:
    """By choice: its text, and why it ended; then what chunks hold besides."""
    choices: dict[int, tuple[str, str]] = {}
    others: dict[str, Any] = {}
    for chunk in chunks:
        for choice in chunk.pop("choices"):
            text, ended = choices.get(choice["index"], ("", ""))
            text += choice["delta"].get("content") or ""
            choices[choice["index"]] = text, choice["finish_reason"] or ended
        others |= {name: value for name, value in chunk.items() if value is not None}
    return [sorted(choices.items()), others]
