"""What a response repeats of its request is written once, though three events of a stream hold it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from yaie.core.params import SamplingParams
from yaie.server.dialects import responses_reply as replies
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.dialects.responses_reply import ResponseReply

LABELS = {str(number): "label" for number in range(50)}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}


def test_labels_and_tools_are_written_once_for_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    dumps = replies._dumps
    monkeypatch.setattr(
        replies, "_dumps", lambda value: written.append(dumps(value)) or written[-1]
    )
    body = ResponsesRequest.model_validate(
        {"input": "x", "metadata": LABELS, "tools": [TOOL], "instructions": 'say "é"'}
    )
    chat: Any = SimpleNamespace(requests=[SimpleNamespace(params=SamplingParams())])
    reply = ResponseReply(chat, body, "tutor")
    for number in range(3):
        response = reply._response("in_progress")
        event = {"type": "response.created", "response": response, "sequence_number": number}
        told = json.loads(reply.encoded(event))
        assert told == event
        assert told["response"]["metadata"] == LABELS
    assert sum("label" in text for text in written) == 1
