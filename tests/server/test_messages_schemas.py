"""The bodies of Anthropic's API, as they are read and handed on."""

from yaie.server.dialects.messages_body import MessagesRequest, OutputFormat

ASKED = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}


def test_a_format_is_handed_on_under_the_name_that_it_came_with() -> None:
    given = {"type": "json_schema", "schema": {"type": "boolean"}}
    assert OutputFormat.model_validate(given).model_dump() == given


def test_what_has_no_effect_here_is_taken() -> None:
    more = {
        "context_management": {"edits": []},
        "speed": "standard",
        "thinking": {"type": "disabled"},
    }
    body = MessagesRequest.model_validate({**ASKED, **more})
    assert body.context_management is not None
    assert body.context_management.edits == []
