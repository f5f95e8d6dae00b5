"""What of the settings and the model does not go together: told once, when the model is ready."""

from collections.abc import Iterator
from typing import Any

from yaie.server.extras.reasoning import FORMATS, choose_reasoning
from yaie.server.settings import ServerSettings
from yaie.server.tools import choose_format, form_in


def cautions(tokenizer: Any, settings: ServerSettings) -> Iterator[str]:
    """One sentence or two for each. tokenizer: the model's."""
    if tokenizer.template_note:
        yield f"{tokenizer.template_note}. Until then chats are refused."
    yield from _of_tools(settings.tool_parser, tokenizer)
    yield from _of_reasoning(settings.reasoning_parser, tokenizer)


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


def _of_reasoning(parser: str, tokenizer: Any) -> Iterator[str]:
    """Of a parser that was named: whether the model knows its tags."""
    if parser in ("auto", "none"):
        return
    known = choose_reasoning("auto", tokenizer.chat_template, tokenizer)
    if known is FORMATS[parser]:
        return
    named = f"--reasoning-parser {parser}"
    if known is None:
        yield (
            f"{named}: neither the model's chat template nor its tokenizer knows {FORMATS[parser].end}. "
            "Reasoning is told apart only if the model writes these letters by itself. Serve a model "
            "that was tuned to reason, or leave the setting out."
        )
        return
    other = next(name for name, form in FORMATS.items() if form is known)
    yield (
        f"{named}: the model writes its reasoning as {other} does, between {known.begin} and "
        f"{known.end}, and with this setting that stays in the answer. Leave it out, or take "
        f"--reasoning-parser {other}."
    )
