"""The chat templates of a model: what a conversation may hold, which template it is given, and what that
makes of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from yaie.core.conversation import ROLES
from yaie.core.errors import InvalidRequestError
from yaie.models.bounded_templates import bound_templates
from yaie.models.template_parts import takes_parts
from yaie.models.template_work import begin_prompt

Json = dict[str, Any]

DEFAULT, FOR_TOOLS = "default", "tool_use"
"""Names that transformers gives templates, where a model has several."""


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
        begin_prompt()
        text: str = self._tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, **options
        )
        return text

    def wants_parts(self, template: str) -> bool:
        """Whether a template goes through the parts of a content, and does not take a text."""
        if template not in self._wants_parts:
            self._wants_parts[template] = takes_parts(template, self.rendered)
        return self._wants_parts[template]


def checked_messages(messages: Any, *, as_parts: bool = False) -> list[Json]:
    """The messages as chat templates expect them: contents are plain text, lists of text parts are
    joined, and the role `developer` goes by its older name, `system`.

    as_parts: for a template that goes through them; then every content is a list of parts.

    Raises InvalidRequestError naming the message and field that is wrong.
    """
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError(
            "messages must be a list of at least one message", param="messages"
        )
    return [
        _checked_message(message, f"messages[{i}]", as_parts) for i, message in enumerate(messages)
    ]


def _checked_message(message: Any, where: str, as_parts: bool) -> Json:
    if not isinstance(message, dict):
        raise InvalidRequestError(f"{where} must be an object with role and content", param=where)
    if message.get("role") not in ROLES:
        raise InvalidRequestError(
            f"{where}.role must be one of {', '.join(ROLES)}, got {str(message.get('role'))[:40]!r}",
            param=f"{where}.role",
        )
    role = "system" if message["role"] == "developer" else message["role"]
    content, calls = message.get("content"), message.get("tool_calls")
    if calls and (content == "" or (content is None and role == "assistant")):
        texts = []  # templates print what they are given, and None is no word
    else:
        texts = _texts(content, f"{where}.content")
    parts = [{"type": "text", "text": text} for text in texts]
    return {**message, "role": role, "content": parts if as_parts else "".join(texts)}


def _texts(content: Any, where: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequestError(f"{where} must be a string or a list of text parts", param=where)
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRequestError(
                f"{where}[{i}] is of type {str(kind)[:40]!r}; only text parts are "
                "supported: this model is served as text only",
                param=f"{where}[{i}].type",
            )
        if not isinstance(part.get("text"), str):
            raise InvalidRequestError(
                f"{where}[{i}].text must be a string", param=f"{where}[{i}].text"
            )
        texts.append(part["text"])
    return texts
