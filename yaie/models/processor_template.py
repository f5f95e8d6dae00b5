"""The chat template of a model for images, where it lies with its processor: in `chat_template.json`."""

from pathlib import Path
from typing import Any

from yaie.models.json_files import bad_field, read_json

NAME = "chat_template.json"


def take_template(tokenizer: Any, folder: Path) -> None:
    """Give a tokenizer of transformers without a template the one of the processor beside it.

    Raises ModelError for a file that holds something else.
    """
    path = folder / NAME
    template = read_json(path).get("chat_template")
    if not isinstance(template, str):
        raise bad_field(path, "chat_template", template, "a text")
    tokenizer.chat_template = template
