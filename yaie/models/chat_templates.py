"""The chat templates of a model: which one a conversation is given, and in which form it takes contents.

A content is a text to most templates, `message.content`. Others go through its parts, each
{"type": "text", "text": ...}, and make nothing at all of a text: the prompt comes out empty, without an
error. Which of the two a template is shows when it is tried.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.models.bounded_templates import bound_templates
from yaie.models.template_work import metered

Json = dict[str, Any]

DEFAULT, FOR_TOOLS = "default", "tool_use"
"""Names that transformers gives templates, where a model has several."""

_TALKS = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("user",))
"""Conversations that a template is tried with, until it takes one."""
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {}},
    },
}


class ChatTemplates:
    """See the module. May be used on several threads."""

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        bound_templates()
        self._tokenizer = tokenizer
        self._wants_parts: dict[str, bool] = {}

    @property
    def _by_name(self) -> Mapping[str, str]:
        found = getattr(self._tokenizer, "chat_template", None) or {}
        return found if isinstance(found, dict) else {DEFAULT: found}

    @property
    def text(self) -> str:
        """All of them; "" if there is none."""
        return "\n".join(self._by_name.values())

    @property
    def without_default(self) -> str | None:
        """Why most conversations are refused, if they are; None if there is a template for each."""
        if len(self._by_name) < 2 or DEFAULT in self._by_name:
            return None
        names = ", ".join(map(repr, sorted(self._by_name)))
        return (
            f"the model has chat templates named {names} and none named 'default', so it is not known "
            "which one a conversation takes. Rename one of them: chat_template.jinja in the model's "
            'folder is the default, or "name": "default" in tokenizer_config.json'
        )

    def chosen(self, tools: Sequence[Json] | None) -> str:
        """The template for a conversation with these tools, as transformers chooses it; a single one may
        have any name. Raises InvalidRequestError if none of several is the default."""
        if tools and FOR_TOOLS in self._by_name:
            return self._by_name[FOR_TOOLS]
        if self.without_default is not None:
            raise InvalidRequestError(self.without_default, param="messages")
        return self._by_name.get(DEFAULT) or next(iter(self._by_name.values()))

    def rendered(self, template: str, messages: Sequence[Json], **options: Any) -> str:
        """What a template makes of these messages, with a bound on its work (`bounded_templates`).
        Raises whatever its author wants, or its programming does."""
        with metered():
            text: str = self._tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, **options
            )
        return text

    def wants_parts(self, template: str) -> bool:
        """Whether a template goes through the parts of a content, and does not take a text."""
        if template not in self._wants_parts:
            self._wants_parts[template] = self._try(template)
        return self._wants_parts[template]

    def _try(self, template: str) -> bool:
        for tools in (None, [_TOOL]):
            for roles in _TALKS:
                texts = self._shown(template, roles, tools, as_parts=False)
                if texts == len(roles):
                    return False
                parts = self._shown(template, roles, tools, as_parts=True)
                if texts or parts:
                    return parts > texts
        return False

    def _shown(
        self, template: str, roles: Sequence[str], tools: list[Json] | None, *, as_parts: bool
    ) -> int:
        """How many contents a template writes; 0 if it refuses the conversation."""
        marks = [f"yaie{index}content" for index in range(len(roles))]
        talk = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        try:
            told = self.rendered(
                template,
                in_parts(talk) if as_parts else talk,
                tools=tools,
                add_generation_prompt=True,
            )
        except Exception:  # noqa: BLE001 (a template is a program: what it raises is up to its author)
            return 0
        # A template for texts prints a list as Python or as JSON writes it, with quotes.
        quoted = ("'{}'", '"{}"') if as_parts else ()
        return sum(
            mark in told and not any(form.format(mark) in told for form in quoted) for mark in marks
        )


def in_parts(messages: Sequence[Json]) -> list[Json]:
    """The messages, their contents as lists of parts."""
    return [
        {**message, "content": _parts(message)} if "content" in message else message
        for message in messages
    ]


def _parts(message: Json) -> Any:
    content = message["content"]
    if not isinstance(content, str):
        return content
    if not content and message.get("tool_calls"):
        return []
    return [{"type": "text", "text": content}]
