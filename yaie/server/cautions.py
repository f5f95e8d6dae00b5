"""What of the settings and the model does not go together: told once, when the model is ready."""

from collections.abc import Iterator
from typing import Any

from yaie.server.settings import ServerSettings
from yaie.server.tools import choose_format, form_in


def cautions(tokenizer: Any, settings: ServerSettings) -> Iterator[str]:
    """One sentence or two for each. tokenizer: the model's."""
    if tokenizer.template_note:
        yield f"{tokenizer.template_note}. Until then chats are refused."
    yield from _of_tools(settings.tool_parser, tokenizer)


def _of_tools(parser: str, tokenizer: Any) -> Iterator[str]:
    """Of a parser that was named: whether anything of it is used."""
    if parser in ("auto", "none"):
        return
    template = tokenizer.chat_template
    named = f"--tool-parser {parser}"
    if choose_format(parser, template, tokenizer.special_token_id) is None:
        why = "a chat template that mentions no tools" if template else "no chat template"
        yield (
            f"{named} has no effect: the model has {why}, so it cannot be told about them, and requests "
            "with tools are refused. Serve a model that was tuned to call tools, or add a template that "
            "lists them (chat_template.jinja in the model's folder)."
        )
        return
    written = form_in(template)
    if written not in (parser, "none"):
        yield (
            f"{named}: the model's chat template writes calls as {written} does. Calls in that form are "
            f"not read with this setting; leave it out, or take --tool-parser {written}."
        )
