"""The chat templates of a model: which one a conversation is given, and what it makes of it."""

from collections.abc import Mapping, Sequence
from typing import Any

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
