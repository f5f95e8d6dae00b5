"""The tokenizer of a model's folder, as transformers reads it."""

from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.fields import TOKENIZER, check_fields
from yaie.models.json_files import read_json
from yaie.models.lookalikes import refuse_pointer

_VOCABULARIES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "*.model",
    "*.tiktoken",
    "tekken.json",
)


def loaded(folder: Path) -> Any:
    """The tokenizer of transformers. Raises ModelError if there is none, or it is bad."""
    from transformers import AutoTokenizer

    if not any(path for pattern in _VOCABULARIES for path in folder.glob(pattern)):
        raise ModelError(
            f"{folder} has no tokenizer (tokenizer.json, or the files of an older one). Copy the "
            "tokenizer files of the model it was trained from into the folder."
        )
    check_files(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # every kind of tokenizer fails in its own way
        for path in folder.iterdir():
            refuse_pointer(path)
        files = sorted(path.name for kind in _VOCABULARIES for path in folder.glob(kind))
        raise ModelError(
            f"the tokenizer in {folder} ({', '.join(files)}) cannot be loaded: "
            f"{first_line(error)}. If its files are whole, the kind is one that this installation "
            "of transformers does not know."
        ) from error
    if not tokenizer.chat_template and (folder / "chat_template.json").is_file():
        from yaie.models.processor_template import take_template

        take_template(tokenizer, folder)
    return tokenizer


def check_files(folder: Path) -> None:
    """Raise ModelError for a file that transformers would trip over, or take for what it is not."""
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        path = folder / name
        if path.is_file():
            values = read_json(path)
            if name != "added_tokens.json":
                check_fields(path, values, TOKENIZER)
    for name in ("tokenizer.json", "chat_template.jinja"):
        refuse_pointer(folder / name)


def first_line(error: Exception) -> str:
    """Of what it says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
